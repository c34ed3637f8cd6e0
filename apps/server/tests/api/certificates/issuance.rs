//! Issuance, renewal and removal.

use reqwest::Method;
use sandbox::RecordType;
use serde_json::{Value, json};

use super::eventually;
use super::rig::{DEFAULT, HOSTNAMES, Rig, ZONE, ZONES, set_platform_org};
use crate::support::ManualNode;

#[tokio::test(flavor = "multi_thread")]
async fn hostname_gets_a_certificate_by_http_01() {
    let Some(rig) = Rig::start().await else { return };
    rig.activate("www.example.net").await;
    let tls = rig.tls_becomes("www.example.net", "active").await;
    assert!(tls["expiresAt"].is_string() && tls["lastError"].is_null(), "{tls}");
    let default = rig.tls_becomes(DEFAULT, "active").await;
    assert!(default["expiresAt"].is_string(), "{default}");
    let reference = rig.reference("www.example.net").await.unwrap();
    assert_eq!(reference["notAfter"], tls["expiresAt"]);
    rig.handshake(&reference, "www.example.net").await;

    let (orders, rrsets) = (rig.orders().await, rig.challenge_rrsets().await);
    assert_eq!((orders, rrsets), (0, Vec::new()));
    let events = rig.app.db_audit("ada").await;
    let count = |name: &str| events.iter().filter(|event| *event == name).count();
    assert_eq!((count("certificate.order"), count("certificate.issue")), (2, 2), "{events:?}");
    let sealed = rig.app.db_rows("SELECT encode(sealed, 'escape') AS key FROM certificates.certificates").await;
    assert!(sealed.iter().all(|row| !row["key"].as_str().unwrap().contains("PRIVATE KEY")));

    // Another node may not have the private key.
    let other = ManualNode::named(&rig.app, "other").await;
    let path = format!("certificates/{}", reference["id"].as_str().unwrap());
    other.send(Method::GET, &path, |request| request).await.expect_error(404, "not_found");

    rig.ada.delete(&format!("{HOSTNAMES}/www.example.net")).await.expect(204);
    assert_eq!(rig.reference("www.example.net").await, None);
    let is_removed = async || {
        let left = rig.app.db_rows("SELECT name FROM certificates.names WHERE name = 'www.example.net'").await;
        left.is_empty().then_some(())
    };
    eventually("the name is removed", is_removed).await;
    rig.node.send(Method::GET, &path, |request| request).await.expect_error(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn wildcard_and_hosted_names_use_dns_01() {
    let Some(rig) = Rig::start().await else { return };
    rig.tls_becomes("site-ada.apps.svc.example", "active").await;
    let zones = "/v1/orgs/ada/dns/zones";
    // The domains of the platform are reserved for its organization.
    rig.ada.post(zones, json!({ "name": "svc.example" })).await.expect_error(400, "bad_request");
    let org = rig.org().await;
    let rig = rig.continue_with(|config| set_platform_org(config, org)).await;
    rig.ada.post(zones, json!({ "name": "svc.example" })).await.expect(200);
    rig.ada.post(zones, json!({ "name": "example.org" })).await.expect(200);
    for zone in ["svc.example", "example.org"] {
        rig.dns.set(zone, RecordType::NS, &["ns1.svc.example"]);
        rig.dns.set(zone, RecordType::SOA, &["ns1.svc.example. hostmaster.svc.example. 1"]);
    }
    // The wildcard waits for its zone.
    rig.app.clock.advance(10);
    let wildcard = async || {
        let desired = rig.node.send(Method::GET, "desired?since=0", |request| request).await;
        desired.expect(200)["platform"]["certificates"].as_array().unwrap().first().cloned()
    };
    let wildcard = eventually("the wildcard is issued", wildcard).await;
    assert_eq!(wildcard["name"], "*.apps.svc.example");
    rig.handshake(&wildcard, "site-ada.apps.svc.example").await;
    let default = rig.tls_becomes("site-ada.apps.svc.example", "active").await;
    assert_eq!(default["expiresAt"], wildcard["notAfter"]);
    // The certificate for only the default hostname is no longer needed.
    let own = async || rig.reference("site-ada.apps.svc.example").await.is_none().then_some(());
    eventually("the wildcard replaces the certificate", own).await;

    rig.activate("www.example.org").await;
    rig.tls_becomes("www.example.org", "active").await;
    rig.handshake(&rig.reference("www.example.org").await.unwrap(), "www.example.org").await;
    assert_eq!((rig.orders().await, rig.challenge_rrsets().await), (0, Vec::new()));
    let challenges =
        "SELECT data ->> 'challenge' AS challenge FROM store.audit WHERE event = 'certificate.order' ORDER BY id";
    let challenges = rig.app.db_rows(challenges).await;
    let challenges: Vec<&str> = challenges.iter().map(|row| row["challenge"].as_str().unwrap()).collect();
    assert_eq!(challenges, ["http-01", "dns-01", "dns-01"]);
    let zone = rig.ada.get(ZONE).await.expect(200).clone();
    assert!(!zone.to_string().contains("_acme-challenge"), "{zone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn knot_serves_the_challenge_of_a_hosted_name() {
    let Some(rig) = Rig::with_knot().await else { return };
    let knot = rig.knot.as_ref().unwrap();
    rig.ada.post(ZONES, json!({ "name": "example.org" })).await.expect(200);
    rig.dns.set("example.org", RecordType::NS, &["ns1.svc.example"]);
    let is_served = async || (knot.query("example.org", "NS").await.data.len() == 2).then_some(());
    eventually("Knot serves the zone", is_served).await;
    rig.activate("www.example.org").await;
    rig.tls_becomes("www.example.org", "active").await;
    rig.handshake(&rig.reference("www.example.org").await.unwrap(), "www.example.org").await;

    let orders = "SELECT data ->> 'challenge' AS challenge FROM store.audit \
         WHERE event = 'certificate.order' AND data ->> 'name' = 'www.example.org'";
    assert_eq!(rig.app.db_rows(orders).await, [json!({ "challenge": "dns-01" })]);
    assert!(rig.dns.queries("_acme-challenge.www.example.org", RecordType::TXT) > 0);
    assert!(!format!("{:?}", rig.dns.records()).contains("_acme-challenge"));
    assert_eq!((rig.orders().await, rig.challenge_rrsets().await), (0, Vec::new()));
    let is_deleted = async || knot.query("_acme-challenge.www.example.org", "TXT").await.is(&[]).then_some(());
    eventually("Knot serves the record no longer", is_deleted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_is_renewed_and_the_organization_is_notified_of_a_failure() {
    let Some(mut rig) = Rig::start().await else { return };
    rig.tls_becomes(DEFAULT, "active").await;
    let certificate = async |rig: &Rig| -> Value {
        let rows =
            "SELECT id, extract(epoch FROM not_after - now())::bigint AS lifetime FROM certificates.certificates";
        rig.app.db_rows(rows).await[0].clone()
    };
    let first = certificate(&rig).await;
    let lifetime = first["lifetime"].as_i64().unwrap();
    let renew = "SELECT extract(epoch FROM renew_at - now())::bigint AS after FROM certificates.names";
    let renew_after = rig.app.db_rows(renew).await[0]["after"].as_i64().unwrap();
    assert!((lifetime * 65 / 100..lifetime * 71 / 100).contains(&renew_after), "{renew_after} of {lifetime}");

    rig.app.clock.advance(renew_after + 10);
    let renewed = async || Some(certificate(&rig).await).filter(|renewed| renewed["id"] != first["id"]);
    let renewed = eventually("the certificate is renewed", renewed).await;

    // The authority is down until shortly before the expiry.
    rig.pebble.stop().await;
    let advanced = renew_after + 10;
    rig.app.clock.advance(renewed["lifetime"].as_i64().unwrap() - advanced - 6 * 24 * 3600);
    let notification = "SELECT title FROM orgs.notifications WHERE kind = 'certificate.failed'";
    let notified = async || rig.app.db_rows(notification).await.into_iter().next();
    let notified = eventually("the organization is notified", notified).await;
    assert!(notified["title"].as_str().unwrap().ends_with(" was not renewed"), "{notified}");
    let state = "SELECT state, last_error FROM certificates.names";
    let row = rig.app.db_rows(state).await[0].clone();
    assert_eq!(row["state"], "active", "{row}");
    assert!(row["last_error"].as_str().unwrap().contains("unavailable"), "{row}");
    rig.app.clock.advance(7 * 24 * 3600);
    let failed = async || Some(rig.app.db_rows(state).await[0].clone()).filter(|row| row["state"] == "failed");
    eventually("the expired certificate is reported", failed).await;
    assert_eq!(rig.app.db_rows(notification).await.len(), 1);

    // The authority has lost the account. A new one is created.
    rig.pebble.restart().await;
    rig.app.clock.advance(7 * 3600);
    let reissued = async || Some(certificate(&rig).await).filter(|current| current["id"] != renewed["id"]);
    eventually("the certificate is issued again", reissued).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosted_name_with_another_challenge_record_uses_http_01() {
    let Some(rig) = Rig::start().await else { return };
    rig.ada.post("/v1/orgs/ada/dns/zones", json!({ "name": "example.org" })).await.expect(200);
    rig.dns.set("example.org", RecordType::NS, &["ns1.svc.example"]);
    let record = format!("{ZONE}/rrsets/_acme-challenge.www/TXT");
    rig.ada.put(&record, json!({ "records": ["\"mine\""] })).await.expect(200);
    rig.activate("www.example.org").await;
    rig.tls_becomes("www.example.org", "active").await;
    let challenge = "SELECT data ->> 'challenge' AS challenge FROM store.audit \
         WHERE event = 'certificate.order' AND data ->> 'name' = 'www.example.org'";
    assert_eq!(rig.app.db_rows(challenge).await, [json!({ "challenge": "http-01" })]);
    let zone = rig.ada.get(ZONE).await.expect(200).clone();
    assert!(zone.to_string().contains("mine"), "{zone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hosted_name_below_a_delegation_uses_http_01() {
    let Some(rig) = Rig::start().await else { return };
    rig.ada.post("/v1/orgs/ada/dns/zones", json!({ "name": "example.org" })).await.expect(200);
    rig.dns.set("example.org", RecordType::NS, &["ns1.svc.example"]);
    rig.ada.put(&format!("{ZONE}/rrsets/shop/NS"), json!({ "records": ["ns1.example.com."] })).await.expect(200);
    rig.activate("www.shop.example.org").await;
    rig.tls_becomes("www.shop.example.org", "active").await;
    let challenge = "SELECT data ->> 'challenge' AS challenge FROM store.audit \
         WHERE event = 'certificate.order' AND data ->> 'name' = 'www.shop.example.org'";
    assert_eq!(rig.app.db_rows(challenge).await, [json!({ "challenge": "http-01" })]);
}
