//! Purchases that succeed, at the first request or after failures.

use sandbox::{PaymentsFault, RegistrarFault, RegistrarOperation};
use serde_json::{Value, json};

use super::{COM_CENTS, DOMAINS, Kit, NAMESERVERS, purchase};
use crate::support::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn domain_is_bought_and_connected_to_a_project() {
    let kit = Kit::start().await;
    let checked =
        kit.ada.post(&format!("{DOMAINS}/check"), json!({ "names": ["SHOP.com", "taken-1.com", "svc.example"] })).await;
    let results = &checked.expect(200)["results"];
    let expected = json!([
        { "name": "shop.com", "available": true, "reason": null, "priceCents": 1299, "renewalCents": 1599, "premium": false },
        { "name": "taken-1.com", "available": false, "reason": "registered", "priceCents": null, "renewalCents": null,
          "premium": false },
        // A domain of the platform.
        { "name": "svc.example", "available": false, "reason": "reserved", "priceCents": null, "renewalCents": null,
          "premium": false },
    ]);
    assert_eq!(results, &expected);

    let bought = kit.buy("Shop.COM.").await.expect(201).clone();
    assert_eq!((&bought["name"], &bought["autoRenew"]), (&json!("shop.com"), &json!(true)));
    kit.assert_bought("shop.com").await;
    let at_registrar = kit.registrar.domain("shop.com").unwrap();
    let time = |value: &Value| crate::support::time(value);
    assert_eq!(time(&bought["expiresAt"]), time(&at_registrar["expireDate"]));
    assert_eq!(time(&bought["transferableAt"]), time(&at_registrar["transferLockExpiresAt"]));
    assert_eq!(kit.buy("shop.com").await.expect(200)["name"], "shop.com");
    let other_body = json!({ "name": "shop.com", "contact": super::contact(), "years": 9, "expectedPriceCents": 1 });
    kit.ada.post(DOMAINS, other_body).await.expect(200);
    kit.assert_bought("shop.com").await;

    let items = kit.ada.get(DOMAINS).await.expect(200)["items"].clone();
    assert_eq!(items.as_array().unwrap().len(), 1);
    assert_eq!(items[0]["nameservers"], json!(NAMESERVERS));
    let history = kit.domain("shop.com").await.expect(200)["history"].clone();
    assert_eq!((&history[0]["event"], &history[0]["actor"]), (&json!("domain.purchase"), &json!(kit.ada.user_id)));
    // Each operation writes one event. The purchase includes the zone.
    assert_eq!(kit.app.db_audit("ada").await, ["domain.purchase"]);
    let event = kit.ada.get("/v1/orgs/ada/audit").await.expect(200)["items"][0].clone();
    assert_eq!((&event["actor"], &event["actorName"]), (&json!(kit.ada.user_id), &json!("ada")));

    // The next call connects the domain to a project, without another verification.
    kit.ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let hostnames = "/v1/orgs/ada/projects/site/hostnames";
    kit.ada.post(hostnames, json!({ "name": "www.shop.com" })).await.expect(200);
    let verified = kit.ada.post(&format!("{hostnames}/www.shop.com/verify"), json!({})).await;
    assert_eq!(verified.expect(200)["state"], "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn active_hostname_gets_its_record_in_the_zone_of_a_bought_domain() {
    let kit = Kit::start().await;
    kit.ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    kit.ada.post("/v1/orgs/ada/projects/site/hostnames", json!({ "name": "www.shop.com" })).await.expect(200);
    let activate = "UPDATE projects.hostnames SET state = 'active', proof = 'txt', verified_at = now(), \
                    next_check_at = now() + interval '1 day', claim_expires_at = NULL, reserved_until = NULL \
                    WHERE name = 'www.shop.com'";
    kit.app.db_execute(activate).await.unwrap();
    kit.buy("shop.com").await.expect(201);
    let _other = kit.app.check_new_zones().await;
    let record = async || {
        let zone = kit.ada.get("/v1/orgs/ada/dns/zones/shop.com").await.expect(200).clone();
        zone["rrsets"].as_array().unwrap().iter().find(|rrset| rrset["managed_by"] == "project").cloned()
    };
    let record = eventually("the record is published", record).await;
    assert_eq!((&record["name"], &record["type"]), (&json!("www.shop.com"), &json!("CNAME")));
}

/// The provider is asked for a customer only if no webhook named it.
#[tokio::test(flavor = "multi_thread")]
async fn customer_of_an_earlier_webhook_is_charged() {
    let kit = Kit::start().await;
    let session = kit.ada.post("/v1/orgs/ada/billing/session", json!({})).await.expect(200).clone();
    let customer = session["customerId"].as_str().unwrap();
    let statement = format!(
        "INSERT INTO billing.customers (org_id, customer_id) SELECT id, '{customer}' FROM orgs.orgs WHERE slug = 'ada'"
    );
    kit.app.db_execute(&statement).await.unwrap();
    let lookup = format!("/customers/external/{}", kit.org);
    kit.payments.inject_into(lookup.leak(), PaymentsFault::Unavailable);
    kit.buy("shop.com").await.expect(201);
    kit.assert_bought("shop.com").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn price_is_the_first_year_and_the_renewals_and_guarded() {
    let kit = Kit::start().await;
    let buy = async |name: &str, years: i64, expected: Value| {
        let mut body = purchase(name);
        (body["years"], body["expectedPriceCents"]) = (json!(years), expected);
        kit.ada.post(DOMAINS, body).await
    };
    let changed = buy("a.com", 3, json!(4_496)).await;
    let error = changed.expect_error(409, "price_changed");
    assert_eq!(error["details"], json!({ "priceCents": 4_497, "expectedPriceCents": 4_496 }));
    assert_eq!(error["message"], "the price is $44.97, not the expected $44.96; check the name again");
    assert_eq!((kit.payments.orders().len(), kit.registrar.orders().len()), (0, 0));
    buy("a.com", 3, json!(4_497)).await.expect(201);
    assert_eq!((kit.payments.net_cents(&kit.org), kit.registrar.orders()[0].cents), (4_497, 4_497));
    // A premium name needs its price.
    let refused = buy("premium-1.com", 1, Value::Null).await;
    let field = &refused.expect_error(400, "bad_request")["details"]["fields"][0];
    assert_eq!(field["path"], "expectedPriceCents");
    assert!(field["message"].as_str().unwrap().ends_with("it costs $2500.00"), "{field}");
    buy("premium-1.com", 1, json!(250_000)).await.expect(201);
    assert_eq!(kit.payments.net_cents(&kit.org), 254_497);
}

#[tokio::test(flavor = "multi_thread")]
async fn same_request_continues_after_every_failure_of_the_registrar() {
    use RegistrarOperation::{Check, Register, SetNameservers};
    for (operation, fault) in [
        (Check, RegistrarFault::refusal(503)),
        (Register, RegistrarFault::refusal(503)),
        (Register, RegistrarFault::refusal(402)),
        (Register, RegistrarFault::LostResponse),
        (SetNameservers, RegistrarFault::html(404)),
        (SetNameservers, RegistrarFault::LostResponse),
    ] {
        let kit = Kit::start().await;
        kit.registrar.inject_into(operation, fault.clone());
        // The idempotency key of the first request can be used again, because its response was a 502.
        let failed = kit.ada.post_with_key("key-1", DOMAINS, purchase("shop.com")).await;
        failed.expect_error(502, "registrar_error");
        assert!(!failed.body.to_string().contains("ada@code.example"), "{}", failed.body);
        kit.registrar.inject(None);
        let continued = kit.ada.post_with_key("key-1", DOMAINS, purchase("shop.com")).await;
        // A background job may have completed the purchase.
        assert!([200, 201].contains(&continued.status), "{operation:?} {fault:?}: {}", continued.body);
        kit.assert_bought("shop.com").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn same_request_continues_after_every_failure_of_the_payments_provider() {
    for (path_end, fault) in [
        ("/orders/", PaymentsFault::Unavailable),
        ("/orders/", PaymentsFault::LostResponse),
        ("/orders/", PaymentsFault::HtmlError(422)),
        ("/finalize", PaymentsFault::Html),
        ("/finalize", PaymentsFault::HtmlError(402)),
        ("/finalize", PaymentsFault::LostResponse),
        ("/finalize", PaymentsFault::InProgress),
        ("/finalize", PaymentsFault::Pending),
    ] {
        let kit = Kit::start().await;
        kit.payments.inject_into(path_end, fault);
        kit.buy("shop.com").await.expect_error(502, "saga_incomplete");
        assert_eq!(kit.domain("shop.com").await.expect(200)["state"], "registering");
        kit.payments.inject(None);
        let continued = kit.buy("shop.com").await;
        assert!([200, 201].contains(&continued.status), "{path_end} {fault:?}: {}", continued.body);
        kit.assert_bought("shop.com").await;
        assert_eq!(kit.payments.net_cents(&kit.org), COM_CENTS);
    }
}
