//! The life of a domain after its purchase, and imports.

use sandbox::{RegistrarFault, RegistrarOperation};
use serde_json::{Value, json};

use super::{COM_CENTS, DOMAINS, Kit, NAMESERVERS, purchase};
use crate::billing::org_id;
use crate::support::{eventually, time};

const NAME: &str = "shop.com";

async fn with_domain() -> Kit {
    let kit = Kit::start().await;
    kit.buy(NAME).await.expect(201);
    kit
}

#[tokio::test(flavor = "multi_thread")]
async fn domain_is_renewed_and_then_charged() {
    let kit = with_domain().await;
    let domain = kit.domain(NAME).await.expect(200).clone();
    assert_eq!(domain["renewalCents"], 1_599);
    let first = time(&domain["expiresAt"]);
    kit.registrar.inject_into(RegistrarOperation::Renew, RegistrarFault::LostResponse);
    kit.act(NAME, "renew", json!({ "years": 2 })).await.expect_error(502, "registrar_error");
    kit.registrar.inject(None);
    // A repeated request continues the same renewal.
    let renewed = time(&kit.act(NAME, "renew", json!({ "years": 2 })).await.expect(200)["expiresAt"]);
    assert!(renewed > first);
    assert_eq!(kit.orders(RegistrarOperation::Renew, NAME), 1);
    let charged = COM_CENTS + 2 * 1_599;
    eventually("the charge", async || (kit.payments.net_cents(&kit.org) == charged).then_some(())).await;
    // After a completed renewal, the next request starts another one.
    kit.act(NAME, "renew", json!({ "years": 1 })).await.expect(200);
    assert_eq!(kit.orders(RegistrarOperation::Renew, NAME), 2);
    eventually("the charge", async || (kit.payments.net_cents(&kit.org) == charged + 1_599).then_some(())).await;
    // A request without a key may be a retry of the last one.
    kit.act(NAME, "renew", json!({ "years": 1 })).await.expect(200);
    assert_eq!(kit.orders(RegistrarOperation::Renew, NAME), 2);
    // Another key means another renewal, unless the request with the first key received no final response.
    let renew = async |key: &str, years: i64| {
        kit.ada.post_with_key(key, &format!("{DOMAINS}/{NAME}/renew"), json!({ "years": years })).await
    };
    kit.registrar.inject_into(RegistrarOperation::Renew, RegistrarFault::LostResponse);
    renew("key-1", 2).await.expect_error(502, "registrar_error");
    kit.registrar.inject(None);
    for (key, years, renewals) in
        [("key-2", 2, 3), ("key-3", 2, 3), ("key-4", 1, 4), ("key-4", 1, 4), ("key-5", 1, 5), ("key-6", 1, 6)]
    {
        renew(key, years).await.expect(200);
        assert_eq!(kit.orders(RegistrarOperation::Renew, NAME), renewals, "{key}");
    }
    let refused = kit.act(NAME, "renew", json!({ "years": 10 })).await;
    let message = refused.expect_error(422, "registrar_rejected")["message"].as_str().unwrap();
    assert!(message.contains("request fewer years, otherwise send a new request"), "{message}");
    kit.act(NAME, "renew", json!({ "years": 11 })).await.expect_error(400, "bad_request");
    let events = kit.app.db_audit("ada").await;
    assert_eq!(events.iter().filter(|event| *event == "domain.renew").count(), 6);
}

/// The registrar executes each request for a renewal, whatever its idempotency key is.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_whose_result_is_unknown_is_not_repeated_while_it_may_be_in_progress() {
    let kit = with_domain().await;
    let renew = async |years: i64| kit.act(NAME, "renew", json!({ "years": years })).await;
    let charged = async |cents: i64| {
        eventually("the charge", async || (kit.payments.net_cents(&kit.org) == COM_CENTS + cents).then_some(())).await;
    };
    // The registry is slower than the caller.
    kit.registrar.inject_into(RegistrarOperation::Renew, RegistrarFault::HangBefore);
    assert_ne!(renew(1).await.status, 200);
    // A request without enough time left leaves the call to the background job.
    eventually("the call", async || (kit.registrar.hanging() == 1).then_some(())).await;
    assert_ne!(renew(1).await.status, 200);
    assert_eq!(kit.registrar.hanging(), 1);
    kit.registrar.inject(None);
    eventually("the renewal", async || (renew(1).await.status == 200).then_some(())).await;
    assert_eq!(kit.orders(RegistrarOperation::Renew, NAME), 1);
    charged(1_599).await;
    // The registrar never receives the first request of the next renewal.
    kit.registrar.inject_into(RegistrarOperation::Renew, RegistrarFault::Close);
    renew(2).await.expect_error(502, "registrar_error");
    // The first of these calls was the slow one.
    let unanswered = || kit.registrar.calls().iter().filter(|call| *call == "Renew shop.com: no response").count();
    eventually("the call", async || (unanswered() == 2).then_some(())).await;
    kit.registrar.inject(None);
    renew(2).await.expect_error(502, "registrar_error");
    assert_eq!(kit.orders(RegistrarOperation::Renew, NAME), 1);
    kit.app.clock.advance(3_600);
    eventually("the renewal", async || (renew(2).await.status == 200).then_some(())).await;
    assert_eq!(kit.orders(RegistrarOperation::Renew, NAME), 2);
    charged(3 * 1_599).await;
}

/// The response of the registrar contains the old expiry, and the domain has the new one only later.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_that_succeeded_is_never_repeated() {
    let kit = with_domain().await;
    let domain = kit.registrar.domain(NAME).unwrap();
    let response = json!({ "domain": domain, "order": 1, "totalPaid": 15.99 }).to_string();
    kit.registrar.inject_into(RegistrarOperation::Renew, RegistrarFault::Response(200, "application/json", response));
    let renew = async || kit.act(NAME, "renew", json!({ "years": 1 })).await;
    renew().await.expect_error(502, "registrar_error");
    let is_sent = || kit.registrar.calls().iter().any(|call| call == "Renew shop.com: 200");
    eventually("the call", async || is_sent().then_some(())).await;
    kit.registrar.inject(None);
    for _ in 0..2 {
        kit.app.clock.advance(3_600);
        renew().await.expect_error(502, "registrar_error");
    }
    let (year, rest) = domain["expireDate"].as_str().unwrap().split_at(4);
    let year: i32 = year.parse().unwrap();
    kit.registrar.set_expiry(NAME, format!("{}{rest}", year + 1).parse().unwrap());
    eventually("the renewal", async || (renew().await.status == 200).then_some(())).await;
    assert_eq!(kit.registrar.calls().iter().filter(|call| call.starts_with("Renew")).count(), 1);
    let charged = COM_CENTS + 1_599;
    eventually("the charge", async || (kit.payments.net_cents(&kit.org) == charged).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn declined_renewal_charge_is_notified_and_undoes_nothing() {
    let kit = with_domain().await;
    kit.payments.set_card(&kit.org, true);
    kit.act(NAME, "renew", json!({ "years": 1 })).await.expect(200);
    let notified = eventually("the notification", async || {
        let page = kit.ada.get("/v1/orgs/ada/notifications").await.expect(200).clone();
        page["items"].as_array()?.iter().find(|item| item["kind"] == "payment.failed").cloned()
    })
    .await;
    assert!(notified.to_string().contains(NAME), "{notified}");
    assert!(kit.app.db_audit("ada").await.contains(&"notification.raise".to_owned()));
    assert_eq!(kit.orders(RegistrarOperation::Renew, NAME), 1);
    assert_eq!(kit.domain(NAME).await.expect(200)["state"], "active");
    // Further renewals are refused until the first one is paid.
    let refused = kit.act(NAME, "renew", json!({ "years": 2 })).await;
    let message = refused.expect_error(402, "payment_failed")["message"].as_str().unwrap();
    assert!(message.contains(NAME) && message.contains("the charge of $15.99 was declined"), "{message}");
    assert_eq!(kit.orders(RegistrarOperation::Renew, NAME), 1);
    kit.payments.set_card(&kit.org, false);
    kit.act(NAME, "renew", json!({ "years": 2 })).await.expect(200);
    let charged = COM_CENTS + 3 * 1_599;
    eventually("the charges", async || (kit.payments.net_cents(&kit.org) == charged).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_transfer_code_and_auto_renewal() {
    let kit = with_domain().await;
    // If the lock is already set, the service makes no call.
    let calls = kit.registrar.calls().len();
    assert_eq!(kit.act(NAME, "lock", json!({ "locked": true })).await.expect(200)["locked"], true);
    assert_eq!(kit.registrar.calls().len(), calls);
    assert_eq!(kit.act(NAME, "lock", json!({ "locked": false })).await.expect(200)["locked"], false);
    assert!(kit.registrar.domain(NAME).unwrap()["locked"].is_null());
    // The registrar sets the lock, and its response is lost.
    kit.registrar.inject_into(RegistrarOperation::SetLock, RegistrarFault::LostResponse);
    kit.act(NAME, "lock", json!({ "locked": true })).await.expect_error(502, "registrar_error");
    kit.registrar.inject(None);
    assert_eq!(kit.domain(NAME).await.expect(200)["locked"], Value::Null);
    // The registrar refuses the repeated change, because it has no effect.
    assert_eq!(kit.act(NAME, "lock", json!({ "locked": true })).await.expect(200)["locked"], true);
    assert_eq!(kit.registrar.calls().last().unwrap(), "Read shop.com: 200");
    assert_eq!(kit.act(NAME, "lock", json!({ "locked": false })).await.expect(200)["locked"], false);
    assert!(kit.registrar.domain(NAME).unwrap()["locked"].is_null());
    // After the refusal of a change, the lock is known.
    kit.registrar.inject_into(RegistrarOperation::SetLock, RegistrarFault::refusal(409));
    kit.act(NAME, "lock", json!({ "locked": true })).await.expect_error(502, "registrar_error");
    kit.registrar.inject(None);
    assert_eq!(kit.domain(NAME).await.expect(200)["locked"], false);

    let code = kit.act(NAME, "auth-code", json!({})).await.expect(200).clone();
    assert!(!code["authCode"].as_str().unwrap().is_empty() && code["transferableAt"].is_string(), "{code}");
    kit.registrar.end_transfer_lock(NAME);

    assert_eq!(kit.act(NAME, "auto-renew", json!({ "enabled": false })).await.expect(200)["autoRenew"], false);
    // The registrar's own auto-renewal stays on.
    assert_eq!(kit.registrar.domain(NAME).unwrap()["autorenewEnabled"], true);
    let events = kit.app.db_audit("ada").await;
    for event in ["domain.lock", "domain.auth_code", "domain.auto_renew"] {
        assert!(events.contains(&event.to_owned()), "{event}: {events:?}");
    }
    let audit = kit.app.db_rows("SELECT to_jsonb(a) AS row FROM store.audit a").await;
    assert!(!format!("{audit:?}").contains(code["authCode"].as_str().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_reads_what_changed_at_the_registrar() {
    let kit = with_domain().await;
    let now = kit.app.clock.clock_rng().now();
    kit.registrar.set_locked(NAME, false);
    kit.registrar.set_expiry(NAME, "2001-01-01T00:00:00Z".parse().unwrap());
    let synced = kit.act(NAME, "sync", json!({})).await.expect(200).clone();
    assert_eq!((&synced["state"], &synced["locked"]), (&json!("expired"), &json!(false)));
    kit.registrar.set_expiry(NAME, "2099-01-01T00:00:00Z".parse().unwrap());
    let synced = kit.act(NAME, "sync", json!({})).await.expect(200).clone();
    assert_eq!(synced["state"], "active");
    assert!(time(&synced["expiresAt"]) > now);

    // An HTML 404 is not a transfer.
    let json_404 = |body: &str| RegistrarFault::Response(404, "application/json", body.to_owned());
    let faults =
        [RegistrarFault::html(404), json_404("[]"), RegistrarFault::refusal(403), RegistrarFault::TooManyRequests];
    for fault in faults {
        kit.registrar.inject(Some(fault));
        kit.act(NAME, "sync", json!({})).await.expect_error(502, "registrar_error");
    }
    kit.registrar.inject(None);
    assert_eq!(kit.domain(NAME).await.expect(200)["state"], "active");
    // A JSON object is, whatever its members are.
    kit.registrar.inject(Some(json_404("{}")));
    assert_eq!(kit.act(NAME, "sync", json!({})).await.expect(200)["state"], "transferred_out");
    kit.registrar.inject(None);
    assert_eq!(kit.act(NAME, "sync", json!({})).await.expect(200)["state"], "active");
    kit.registrar.transfer_away(NAME);
    assert_eq!(kit.act(NAME, "sync", json!({})).await.expect(200)["state"], "transferred_out");
    for (action, body) in
        [("renew", json!({ "years": 1 })), ("lock", json!({ "locked": true })), ("auth-code", json!({}))]
    {
        kit.act(NAME, action, body).await.expect_error(409, "domain_not_managed");
    }
    // The zone stays.
    kit.ada.get(&format!("/v1/orgs/ada/dns/zones/{NAME}")).await.expect(200);
    let events = kit.app.db_audit("ada").await;
    assert!(events.contains(&"domain.purchase".to_owned()), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn import_creates_a_zone_and_calls_no_registrar() {
    let kit = Kit::start().await;
    let import = |name: &str| json!({ "name": name });
    let imported = kit.ada.post(&format!("{DOMAINS}/import"), import("BÜCHER.example")).await.expect(201).clone();
    assert_eq!((&imported["name"], &imported["state"]), (&json!("xn--bcher-kva.example"), &json!("external")));
    assert_eq!(imported["nameservers"], json!(NAMESERVERS));
    for member in ["expiresAt", "locked", "registeredAt", "transferableAt"] {
        assert_eq!(imported[member], Value::Null, "{member}");
    }
    kit.ada.post(&format!("{DOMAINS}/import"), import("xn--bcher-kva.example")).await.expect(200);
    kit.ada.get("/v1/orgs/ada/dns/zones/xn--bcher-kva.example").await.expect(200);
    let synced = kit.act("xn--bcher-kva.example", "sync", json!({})).await.expect(200).clone();
    assert_eq!(synced["state"], "external");
    kit.act("bücher.example", "renew", json!({ "years": 1 })).await.expect_error(409, "domain_not_managed");
    assert_eq!(kit.registrar.calls(), Vec::<String>::new());

    let grace = kit.app.sign_in("grace").await;
    let taken = grace.post("/v1/orgs/grace/domains/import", import("bücher.example")).await;
    taken.expect_error(409, "domain_taken");
    // A domain of another organization does not exist.
    let path = "/v1/orgs/grace/domains/xn--bcher-kva.example";
    grace.get(path).await.expect_error(404, "not_found");
    for (action, body) in [
        ("renew", json!({ "years": 1 })),
        ("auto-renew", json!({ "enabled": true })),
        ("lock", json!({ "locked": true })),
        ("auth-code", json!({})),
        ("sync", json!({})),
    ] {
        grace.post(&format!("{path}/{action}"), body).await.expect_error(404, "not_found");
    }
    // Each operation writes one event. The import includes the zone.
    assert_eq!(kit.app.db_audit("ada").await, ["domain.import"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_of_its_zone_ends_an_import() {
    let kit = Kit::start().await;
    let body = json!({ "name": "bigcorp.com" });
    let import = async || kit.ada.post(&format!("{DOMAINS}/import"), body.clone()).await;
    let delete_zone = async || kit.ada.delete("/v1/orgs/ada/dns/zones/bigcorp.com").await.expect(204).clone();
    import().await.expect(201);
    // A purchase of the imported name is in progress.
    kit.registrar.inject_into(RegistrarOperation::Register, RegistrarFault::refusal(503));
    kit.buy("bigcorp.com").await.expect_error(502, "registrar_error");
    delete_zone().await;
    kit.registrar.inject_into(RegistrarOperation::Register, RegistrarFault::refusal(422));
    kit.app.clock.advance(3_600);
    eventually("the end of the purchase", async || (kit.domain("bigcorp.com").await.status == 404).then_some(())).await;
    kit.registrar.inject(None);
    // An import after the deletion creates the zone again.
    import().await.expect(201);
    kit.ada.get("/v1/orgs/ada/dns/zones/bigcorp.com").await.expect(200);
    delete_zone().await;
    kit.domain("bigcorp.com").await.expect_error(404, "not_found");
    // The name is free for others.
    let grace = kit.app.sign_in("grace").await;
    kit.payments.set_card(org_id(&grace).await.as_str().unwrap(), false);
    grace.post("/v1/orgs/grace/domains", purchase("bigcorp.com")).await.expect(201);
    import().await.expect_error(409, "domain_taken");
}
