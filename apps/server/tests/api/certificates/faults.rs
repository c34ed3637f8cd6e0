//! Rejected accounts, and an authority that does not respond.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use kernel::seal::{AssociatedData, Sealed};
use providers::acme::AccountBinding;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

use super::eventually;
use super::proxy::{Moment, Refusal, Resource};
use super::rig::{DEFAULT, Rig};

#[tokio::test(flavor = "multi_thread")]
async fn account_is_bound_with_the_right_key() {
    let key = |byte: u8| URL_SAFE_NO_PAD.encode([byte; 32]);
    let Some(mut rig) = Rig::with_required_binding(json!({ "kid-1": key(1) })).await else { return };
    let refusals = [
        (None, "(externalAccountRequired)"),
        (Some(("kid-2", key(1))), "references a key that is not known"),
        (Some(("kid-1", key(2))), "external account binding JWS verification error"),
    ];
    for (binding, refusal) in refusals {
        if let Some((key_id, key)) = binding {
            rig = with_binding(rig, key_id, key).await;
        }
        let is_refused = async || {
            let tls = rig.tls(DEFAULT).await;
            tls["lastError"].as_str().is_some_and(|error| error.contains(refusal)).then_some(tls)
        };
        let failed = eventually(refusal, is_refused).await;
        let error = failed["lastError"].as_str().unwrap();
        assert!(failed["state"] == "failed" && error.starts_with("the certificate authority refused: "), "{failed}");
    }
    let rig = with_binding(rig, "kid-1", key(1)).await;
    let active = rig.tls_becomes(DEFAULT, "active").await;
    assert_eq!(active["lastError"], Value::Null);
}

/// Continues with a server that has this binding, after the delay of the failed order.
async fn with_binding(rig: Rig, key_id: &str, key: String) -> Rig {
    let binding = AccountBinding::new(key_id.to_owned(), &key).unwrap();
    let rig = rig.continue_with(|config| config.acme[0].binding = Some(binding)).await;
    rig.app.clock.advance(6 * 3600);
    rig
}

#[tokio::test(flavor = "multi_thread")]
async fn deactivated_account_is_replaced_in_the_same_run() {
    let Some(rig) = Rig::start().await else { return };
    rig.tls_becomes(DEFAULT, "active").await;
    deactivate_account(&rig).await;
    rig.app.clock.advance(61);
    rig.activate("www.example.net").await;
    rig.tls_becomes("www.example.net", "active").await;
    let events = "SELECT event FROM store.audit WHERE event LIKE 'certificate.account%' OR event = 'certificate.fail' \
         ORDER BY id";
    let events = rig.app.db_rows(events).await;
    let events: Vec<&str> = events.iter().map(|row| row["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["certificate.account_create", "certificate.account_delete", "certificate.account_create"]);
}

/// Deactivates the account at Pebble (RFC 8555 section 7.3.6), with its stored key.
#[expect(clippy::disallowed_methods, reason = "ring signs only with its own random numbers")]
async fn deactivate_account(rig: &Rig) {
    let account = "SELECT directory, key_id, replace(encode(sealed, 'base64'), E'\\n', '') AS sealed \
         FROM certificates.accounts";
    let account = rig.app.db_rows(account).await.remove(0);
    let text = |name: &str| account[name].as_str().unwrap().to_owned();
    let (directory, bytes) = (text("directory"), STANDARD.decode(text("sealed")).unwrap());
    let data = AssociatedData { table: "certificates.accounts", row: &directory, field: "sealed" };
    let credentials = testkit::keys().open(data, &Sealed { key_id: text("key_id"), bytes }).unwrap();
    let credentials: Value = serde_json::from_slice(&credentials).unwrap();
    let (url, random) = (credentials["id"].as_str().unwrap(), SystemRandom::new());
    let key = URL_SAFE_NO_PAD.decode(credentials["key_pkcs8"].as_str().unwrap()).unwrap();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key, &random).unwrap();
    let client = rig.pebble.client();
    let nonce = client.head(directory.replace("/dir", "/nonce-plz")).send().await.unwrap();
    let nonce = nonce.headers()["replay-nonce"].to_str().unwrap().to_owned();
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let protected = encode(&json!({ "alg": "ES256", "kid": url, "nonce": nonce, "url": url }));
    let payload = encode(&json!({ "status": "deactivated" }));
    let signature = key.sign(&random, format!("{protected}.{payload}").as_bytes()).unwrap();
    let signature = URL_SAFE_NO_PAD.encode(signature.as_ref());
    let jws = json!({ "protected": protected, "payload": payload, "signature": signature });
    let request = client.post(url).header("content-type", "application/jose+json").body(jws.to_string());
    let response: Value = request.send().await.unwrap().json().await.unwrap();
    assert_eq!(response["status"], "deactivated", "{response}");
}

/// RFC 8555 section 6.5.
#[tokio::test(flavor = "multi_thread")]
async fn request_with_a_rejected_nonce_is_repeated() {
    let Some((rig, proxy)) = Rig::behind_proxy().await else { return };
    rig.tls_becomes(DEFAULT, "active").await;
    let signed = [
        Resource::NewOrder,
        Resource::Order,
        Resource::Authorization,
        Resource::Challenge,
        Resource::Finalize,
        Resource::Certificate,
    ];
    for resource in signed {
        proxy.refuse(resource, Refusal { status: 400, kind: "badNonce", retry_after: None }, 2);
    }
    rig.activate("www.example.net").await;
    rig.tls_becomes("www.example.net", "active").await;
    assert_eq!(proxy.refusals(), 0);
    let events = "SELECT event FROM store.audit WHERE event IN ('certificate.order', 'certificate.fail')";
    assert_eq!(rig.app.db_rows(events).await, vec![json!({ "event": "certificate.order" }); 2]);
}

/// The times of the rows move instead of the clock, so that the authority is down for a day.
#[tokio::test(flavor = "multi_thread")]
async fn authority_does_not_respond_for_a_day() {
    let Some((mut rig, mut proxy)) = Rig::behind_proxy().await else { return };
    rig.tls_becomes(DEFAULT, "active").await;
    proxy.hold(Resource::Challenge, Moment::Before);
    rig.activate("www.example.net").await;
    let held = proxy.held().await;
    rig.pebble.stop().await;
    drop(held);
    // The order waits for the authority.
    let error = async || Some(rig.tls("www.example.net").await).filter(|tls| !tls["lastError"].is_null());
    let waiting = eventually("the outage is explained", error).await;
    assert!(waiting["lastError"].as_str().unwrap().contains("the certificate authority is unavailable"), "{waiting}");
    assert_eq!((&waiting["state"], rig.orders().await), (&json!("pending"), 1));

    // The renewal becomes due, and the order is too old to continue. Each further attempt fails.
    let names = [DEFAULT, "www.example.net"];
    for (round, interval) in ["4 years", "6 hours", "6 hours", "6 hours", "6 hours"].into_iter().enumerate() {
        rig.lapse(interval).await;
        for name in names {
            let expected = Value::from(round + 1);
            let attempted = async || (rig.name(name).await["failures"] == expected).then_some(());
            eventually(&format!("attempt {round} of {name}"), attempted).await;
        }
    }
    let (default, other) = (rig.tls(DEFAULT).await, rig.tls("www.example.net").await);
    assert_eq!((&default["state"], &other["state"]), (&json!("active"), &json!("failed")));
    assert!(default["expiresAt"].is_string() && other["expiresAt"].is_null(), "{default} {other}");
    for tls in [default, other] {
        assert!(tls["lastError"].as_str().unwrap().contains("the certificate authority is unavailable"), "{tls}");
    }
    assert_eq!(rig.orders().await, 0);

    // It has lost the account.
    rig.pebble.restart().await;
    rig.lapse("6 hours").await;
    for name in names {
        let active = async || Some(rig.tls(name).await).filter(|tls| tls["lastError"].is_null());
        let active = eventually(&format!("{name} is issued"), active).await;
        assert!(active["state"] == "active" && active["expiresAt"].is_string(), "{active}");
        assert_eq!(rig.name(name).await["failures"], 0);
    }
    assert_eq!(rig.orders().await, 0);
}
