//! Purchases that end without a domain, and requests that an installation cannot execute.

use kernel::Limits;
use sandbox::{PaymentsFault, PaymentsServer, RegistrarFault, RegistrarOperation, RegistrarServer};
use serde_json::{Value, json};
use server::config::CoreLink;
use testkit::reserved_address;

use super::{COM_CENTS, DOMAINS, Kit, contact, purchase, use_registrar};
use crate::billing::use_provider;
use crate::support::{ApiResponse, App, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn declined_card_ends_the_purchase() {
    let kit = Kit::start().await;
    kit.payments.set_card(&kit.org, true);
    let buy_with_key = async || kit.ada.post_with_key("key-1", DOMAINS, purchase("shop.com")).await;
    buy_with_key().await.expect_error(402, "payment_failed");
    kit.assert_not_bought("shop.com").await;
    // An imported domain is as it was before.
    let imported =
        kit.ada.post(&format!("{DOMAINS}/import"), json!({ "name": "imported.com" })).await.expect(201).clone();
    let mut body = purchase("imported.com");
    body["autoRenew"] = json!(false);
    kit.ada.post(DOMAINS, body).await.expect_error(402, "payment_failed");
    let mut domain = kit.domain("imported.com").await.expect(200).clone();
    for detail in ["history", "renewalCents", "unpaidCents", "unbilledCents"] {
        domain.as_object_mut().unwrap().remove(detail);
    }
    assert_eq!(domain, imported);
    kit.payments.set_card(&kit.org, false);
    let replayed = buy_with_key().await;
    replayed.expect_error(402, "payment_failed");
    assert_eq!(replayed.header("idempotent-replayed"), "true");
    kit.buy("shop.com").await.expect(201);
    kit.assert_bought("shop.com").await;

    // An organization that never paid has no card.
    let grace = kit.app.sign_in("grace").await;
    grace.post("/v1/orgs/grace/domains", purchase("grace.com")).await.expect_error(402, "payment_failed");
}

/// The buyer of AI credit enters the email of a customer of another product of the operator. The provider does not verify
/// it, so this customer pays the order.
#[tokio::test(flavor = "multi_thread")]
async fn card_of_a_customer_of_another_product_is_not_charged() {
    let listen = reserved_address();
    let payments = PaymentsServer::start(Some(format!("http://{listen}/v1/hooks/payments"))).await;
    let registrar = RegistrarServer::start().await;
    let app = App::with(|config| {
        config.listen = listen;
        use_provider(config, &payments);
        use_registrar(config, &registrar);
    })
    .await;
    let mallory = app.sign_in("mallory").await;
    payments.add_customer("victim@example.com");
    let checkout = json!({ "microCents": 500_000_000, "returnTo": "http://localhost:3000/" });
    let checkout = mallory.post("/v1/orgs/mallory/ai/credit/checkout", checkout).await.expect(200)["url"].clone();
    let _ = payments.pay_as(checkout.as_str().unwrap(), "victim@example.com");
    eventually("the credit", async || {
        let credit = mallory.get("/v1/orgs/mallory/ai/credit").await.expect(200).clone();
        (credit["balanceMicroCents"] == 500_000_000).then_some(())
    })
    .await;
    mallory.post("/v1/orgs/mallory/domains", purchase("shop.com")).await.expect_error(402, "payment_failed");
    // Only the order of the checkout exists.
    assert_eq!(payments.orders().len(), 1);
}

/// The provider is unavailable at the first attempt, and then ends the draft without a payment.
#[tokio::test(flavor = "multi_thread")]
async fn order_that_can_never_be_paid_ends_the_purchase() {
    let kit = Kit::start().await;
    kit.payments.inject_into("/finalize", PaymentsFault::Unavailable);
    kit.buy("shop.com").await.expect_error(502, "saga_incomplete");
    // The background job may be the one that learns it. Then the request starts a new purchase, with the same result.
    kit.payments.inject_into("/finalize", PaymentsFault::NotDraft);
    kit.buy("shop.com").await.expect_error(402, "payment_failed");
    kit.assert_not_bought("shop.com").await;
    kit.payments.inject(None);
    kit.buy("shop.com").await.expect(201);
    kit.assert_bought("shop.com").await;
}

/// The provider forbids charges without the customer until an operator acts, so the purchase does not wait for that.
#[tokio::test(flavor = "multi_thread")]
async fn forbidden_charge_ends_the_purchase() {
    for path_end in ["/orders/", "/finalize"] {
        let kit = Kit::start().await;
        kit.payments.inject_into(path_end, PaymentsFault::OffSessionForbidden);
        kit.buy("shop.com").await.expect_error(402, "payment_failed");
        kit.assert_not_bought("shop.com").await;
        kit.payments.inject(None);
        kit.buy("shop.com").await.expect(201);
        kit.assert_bought("shop.com").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_registration_is_refunded() {
    for (fault, status, code) in [
        (RegistrarFault::refusal(422), 422, "registrar_rejected"),
        (RegistrarFault::refusal(400), 422, "registrar_rejected"),
        (RegistrarFault::refusal(409), 409, "domain_unavailable"),
    ] {
        let kit = Kit::start().await;
        kit.registrar.inject_into(RegistrarOperation::Register, fault);
        let refused = kit.buy("shop.com").await;
        let message = refused.expect_error(status, code)["message"].as_str().unwrap();
        assert!(message.contains("any charge for it is refunded"), "{message}");
        for quoted in ["ada@code.example", "+4915112345678", "Invalid value"] {
            assert!(!refused.body.to_string().contains(quoted), "{}", refused.body);
        }
        eventually("the refund", async || (kit.payments.net_cents(&kit.org) == 0).then_some(())).await;
        assert_eq!(kit.payments.refunds().len(), 1);
        kit.assert_not_bought("shop.com").await;
        eventually("the event", async || {
            kit.app.db_audit("ada").await.contains(&"domain.refund".to_owned()).then_some(())
        })
        .await;
        // A corrected request is a new purchase, with a new key at the registrar.
        kit.registrar.inject(None);
        kit.buy("shop.com").await.expect(201);
        kit.assert_bought("shop.com").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refund_of_a_price_with_tax_is_complete() {
    let kit = Kit::start().await;
    kit.payments.set_tax(19);
    kit.registrar.inject_into(RegistrarOperation::Register, RegistrarFault::refusal(422));
    kit.buy("shop.com").await.expect_error(422, "registrar_rejected");
    let recorded = "SELECT e.data->'cents' AS event, c.cents AS charge, c.state FROM domains.charges c, store.audit e \
                    WHERE e.event = 'domain.refund'";
    let recorded = eventually("the event", async || kit.app.db_rows(recorded).await.pop()).await;
    assert_eq!(recorded, json!({ "event": COM_CENTS, "charge": COM_CENTS, "state": "refunded" }));
    let refunded: Vec<i64> = kit.payments.refunds().into_iter().map(|(_, cents)| cents).collect();
    assert_eq!(refunded, [COM_CENTS]);
    kit.assert_not_bought("shop.com").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refund_is_repeated_until_the_provider_confirms_it() {
    let kit = Kit::start().await;
    kit.registrar.inject_into(RegistrarOperation::Register, RegistrarFault::refusal(422));
    kit.payments.inject_into("/refunds/", PaymentsFault::LostResponse);
    kit.buy("shop.com").await.expect_error(422, "registrar_rejected");
    kit.payments.inject(None);
    kit.app.clock.advance(3_600);
    eventually("the end of the purchase", async || {
        let open = "SELECT count(*) AS count FROM store.sagas WHERE finished_at IS NULL";
        (kit.app.db_rows(open).await[0]["count"] == 0).then_some(())
    })
    .await;
    assert_eq!(kit.payments.refunds().len(), 1);
    assert_eq!(kit.payments.net_cents(&kit.org), 0);
    kit.assert_not_bought("shop.com").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_cannot_be_bought_are_refused_before_any_charge() {
    let kit = Kit::start().await;
    kit.buy("taken-1.com").await.expect_error(409, "domain_unavailable");
    kit.buy("aftermarket-1.com").await.expect_error(409, "domain_unavailable");
    kit.buy("missing-1.com").await.expect_error(409, "domain_unavailable");
    let checked = kit.ada.post(&format!("{DOMAINS}/check"), json!({ "names": ["missing-1.com"] })).await;
    assert_eq!(checked.expect(200)["results"][0]["reason"], "unsupported");
    let grace = kit.app.sign_in("grace").await;
    grace.post("/v1/orgs/grace/dns/zones", json!({ "name": "grace.com" })).await.expect(200);
    grace.post("/v1/orgs/grace/dns/zones", json!({ "name": "www.below.com" })).await.expect(200);
    kit.buy("grace.com").await.expect_error(409, "domain_taken");
    kit.buy("below.com").await.expect_error(409, "domain_taken");
    assert_eq!((kit.payments.orders().len(), kit.registrar.orders().len()), (0, 0));
    assert_eq!(kit.ada.get(DOMAINS).await.expect(200)["items"], json!([]));

    // While the name is reserved, no other organization can have it.
    kit.registrar.inject_into(RegistrarOperation::Register, RegistrarFault::refusal(503));
    kit.buy("shop.com").await.expect_error(502, "registrar_error");
    grace.post("/v1/orgs/grace/domains", purchase("shop.com")).await.expect_error(409, "domain_taken");
    grace.post("/v1/orgs/grace/domains/import", json!({ "name": "shop.com" })).await.expect_error(409, "domain_taken");
    for zone in ["shop.com", "www.shop.com"] {
        grace.post("/v1/orgs/grace/dns/zones", json!({ "name": zone })).await.expect_error(409, "zone_taken");
    }
    grace.get("/v1/orgs/grace/domains/shop.com").await.expect_error(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_validated() {
    let kit = Kit::start().await;
    let with = |member: &str, value: Value| {
        let mut body = purchase("shop.com");
        *body.pointer_mut(member).unwrap() = value;
        body
    };
    let add = |member: &str, value: Value| {
        let mut body = purchase("shop.com");
        body[member] = value;
        body
    };
    let without_contact = json!({ "name": "shop.com" });
    for (path, body, field) in [
        ("", without_contact, "contact"),
        ("", with("/name", json!("com")), "name"),
        ("", with("/name", json!("www.shop.com")), "name"),
        ("", with("/name", json!("localhost.svc.example")), "name"),
        ("", with("/name", json!("-shop.com")), "name"),
        ("", with("/contact/country", json!("XX")), "contact.country"),
        ("", with("/contact/phone", json!("030 123456")), "contact.phone"),
        ("", with("/contact/firstName", json!("a\u{0}")), "contact.firstName"),
        ("", with("/contact/city", json!("x".repeat(256))), "contact.city"),
        ("", with("/contact/street", json!("")), "contact.street"),
        ("", with("/contact/email", json!("nobody")), "contact.email"),
        ("", add("years", json!(0)), "years"),
        ("", add("years", json!(11)), "years"),
        ("", add("expectedPriceCents", json!(-1)), "expectedPriceCents"),
        ("", add("price", json!(1)), "price"),
        ("/check", json!({ "names": [] }), "names"),
        ("/check", json!({ "names": vec!["a.com"; 21] }), "names"),
        ("/import", json!({ "name": "co.uk" }), "name"),
    ] {
        let refused = kit.ada.post(&format!("{DOMAINS}{path}"), body.clone()).await;
        let fields = &refused.expect_error(400, "bad_request")["details"]["fields"];
        assert_eq!(fields[0]["path"], field, "{path} {body}");
        assert!(!refused.body.to_string().contains("ada@code.example"), "{}", refused.body);
    }
    let paths = |refused: &ApiResponse| {
        let fields = refused.expect_error(400, "bad_request")["details"]["fields"].as_array().unwrap().clone();
        fields.iter().map(|field| field["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut body = add("years", json!(11));
    body["name"] = json!("www.shop.com");
    body["contact"]["country"] = json!("XX");
    body["contact"]["phone"] = json!("030 123456");
    assert_eq!(paths(&kit.ada.post(DOMAINS, body).await), ["contact.country", "contact.phone", "name", "years"]);
    for (path, body, invalid) in [
        ("import", json!({ "name": "co.uk", "price": 1 }), ["name", "price"]),
        ("check", json!({ "names": ["com"], "price": 1 }), ["names[0]", "price"]),
    ] {
        assert_eq!(paths(&kit.ada.post(&format!("{DOMAINS}/{path}"), body).await), invalid);
    }
    // One invalid name makes the whole request fail with 400.
    let mixed = kit.ada.post(&format!("{DOMAINS}/check"), json!({ "names": ["a.com", "com", "b.com", "co.uk"] })).await;
    assert_eq!(paths(&mixed), ["names[1]", "names[3]"]);
    assert_eq!(kit.registrar.calls(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn installation_without_a_part_says_so() {
    let registrar = RegistrarServer::start().await;
    let bare = App::start().await;
    let ada = bare.sign_in("ada").await;
    ada.post(DOMAINS, purchase("shop.com")).await.expect_error(503, "registrar_not_configured");
    ada.post(&format!("{DOMAINS}/check"), json!({ "names": ["a.com"] }))
        .await
        .expect_error(503, "registrar_not_configured");
    assert_eq!(ada.get(DOMAINS).await.expect(200)["items"], json!([]));
    ada.post(&format!("{DOMAINS}/import"), json!({ "name": "shop.com" })).await.expect(201);

    let without_dns = bare.another_with(|config| (config.dns, config.limits) = (None, Limits::default())).await;
    let ada_there = without_dns.connect(&ada);
    let import = ada_there.post(&format!("{DOMAINS}/import"), json!({ "name": "b.com" })).await;
    import.expect_error(503, "dns_not_configured");
    let without_dns = bare
        .another_with(|config| {
            use_registrar(config, &registrar);
            config.dns = None;
        })
        .await;
    let ada_there = without_dns.connect(&ada);
    ada_there.post(DOMAINS, purchase("b.com")).await.expect_error(503, "dns_not_configured");

    let without_core = bare.another_with(|config| config.core = CoreLink::Off).await;
    let ada_there = without_core.connect(&ada);
    ada_there.get(DOMAINS).await.expect_error(503, "no_core");
    for (path, body) in
        [("", purchase("b.com")), ("/check", json!({ "names": ["b.com"] })), ("/import", json!({ "name": "b.com" }))]
    {
        ada_there.post(&format!("{DOMAINS}{path}"), body).await.expect_error(503, "no_core");
    }
}

/// Without a product, domains are registered and not charged for.
#[tokio::test(flavor = "multi_thread")]
async fn domain_is_free_without_a_product() {
    let registrar = RegistrarServer::start().await;
    let app = App::with(|config| {
        use_registrar(config, &registrar);
        config.domain_product = None;
    })
    .await;
    let ada = app.sign_in("ada").await;
    let body = json!({ "name": "shop.com", "contact": contact() });
    assert_eq!(ada.post(DOMAINS, body).await.expect(201)["state"], "active");
    assert_eq!(registrar.orders().len(), 1);
}
