//! The limits of a plan on zones, for all routes that create zones or write rrsets.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::{ZONE, create, put};
use crate::support::{App, Caller};

const ZONES: &str = "/v1/orgs/ada/dns/zones";
const PDNS_ZONES: &str = "/api/v1/servers/localhost/zones";

/// Ada with the zone `example.org`, and with these limits of the free plan.
async fn setup(zones: u32, zone_bytes: u64) -> (App, Caller) {
    let app = App::with(|config| {
        (config.limits.free.zones, config.limits.free.zone_bytes) = (zones, zone_bytes);
    })
    .await;
    let ada = app.sign_in("ada").await;
    create(&ada, "ada", "example.org").await;
    (app, ada)
}

/// Sends a request to the PowerDNS-compatible API with a new key. Returns the status and the error message.
async fn pdns(ada: &Caller, method: Method, path: &str, body: Value) -> (u16, String) {
    let token = ada.post("/v1/me/tokens", json!({ "name": "pdns", "scopes": ["dns:write"] })).await;
    let key = token.expect(201)["token"].as_str().unwrap().to_owned();
    let response = ada.send_unchecked(method, path, |it| it.header("x-api-key", key).json(&body)).await;
    (response.status, response.body["error"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creates_respect_the_zone_limit() {
    let (app, ada) = setup(4, 1 << 20).await;
    let new = |n: u32| ada.post(ZONES, json!({ "name": format!("z{n}.example") }));
    let (created, refused): (Vec<_>, Vec<_>) =
        join_all((0..8).map(new)).await.into_iter().partition(|response| response.status == 200);
    assert_eq!((created.len(), refused.len()), (3, 5));
    for response in refused {
        let details = &response.expect_error(409, "zone_limit")["details"];
        assert_eq!(*details, json!({ "limit": 4, "count": 4, "plan": "free" }));
    }
    let refused = ada.post(ZONES, json!({ "name": "more.example" })).await;
    let message = refused.expect_error(409, "zone_limit")["message"].as_str().unwrap().to_owned();
    assert_eq!(message, "the free plan allows 4 zones, and the organization already has 4");
    // PowerDNS's tools interpret a 409 as an existing zone, so the status is 422.
    let new = json!({ "name": "more.example.", "kind": "Master" });
    assert_eq!(pdns(&ada, Method::POST, PDNS_ZONES, new).await, (422, message));
    assert_eq!(create(&ada, "ada", "example.org").await["name"], "example.org");
    // Other organizations have their own limit.
    create(&app.sign_in("bob").await, "bob", "more.example").await;
    ada.delete(ZONE).await.expect(204);
    create(&ada, "ada", "again.example").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_write_respects_the_bytes_of_a_zone() {
    let (_app, ada) = setup(20, 500).await;
    let used = ada.get(ZONE).await.expect(200)["bytes"].as_u64().unwrap();
    put(&ada, "a/TXT", &[&"x".repeat(255)]).await;
    // The new bytes are the name, the length of the record, and the string after its length.
    let bytes = used + 1 + 2 + 256;
    assert_eq!(ada.get(ZONE).await.expect(200)["bytes"], bytes);
    let listed = ada.get(ZONES).await.expect(200)["items"][0].clone();
    assert_eq!((&listed["bytes"], &listed["rrsetCount"]), (&json!(bytes), &json!(3)));

    let (name, text) = ("bcd.example.org", "y".repeat(240));
    let limit = |bytes: u64| json!({ "limit": 500, "bytes": bytes, "plan": "free" });
    let exceeding = bytes + 3 + 2 + 241;
    let refused = ada.put(&format!("{ZONE}/rrsets/bcd/TXT"), json!({ "records": [text] })).await;
    assert_eq!(refused.expect_error(409, "zone_bytes_limit")["details"], limit(exceeding));
    for dry_run in [true, false] {
        let patch = json!({ "rrsets": [{ "name": name, "type": "TXT", "records": [text] }], "dryRun": dry_run });
        let refused = ada.patch(&format!("{ZONE}/rrsets"), patch).await;
        assert_eq!(refused.expect_error(409, "zone_bytes_limit")["details"], limit(exceeding));
        let file = format!("a TXT {}\nbcd TXT {text}\n", "x".repeat(255));
        let path = format!("{ZONE}/zonefile?dryRun={dry_run}");
        let import = ada.send(Method::PUT, &path, |it| it.header("content-type", "text/dns").body(file)).await;
        assert_eq!(import.expect_error(409, "zone_bytes_limit")["details"], limit(exceeding));
    }
    let rrset = |zone: &str| {
        let records = json!([{ "content": format!("\"{text}\" \"{text}\""), "disabled": false }]);
        json!({ "name": format!("bcd.{zone}."), "type": "TXT", "ttl": 300, "changetype": "REPLACE", "records": records })
    };
    let message = |zone: &str, bytes: u64| {
        format!(
            "the free plan allows 500 bytes of rrsets per zone, and {zone} would have {bytes}; make the change smaller \
             or delete other rrsets first"
        )
    };
    let patch = json!({ "rrsets": [rrset("example.org")] });
    let path = format!("{PDNS_ZONES}/example.org.");
    let expected = message("example.org", exceeding + 241);
    assert_eq!(pdns(&ada, Method::PATCH, &path, patch).await, (422, expected));
    let new = json!({ "name": "new.example.", "kind": "Master", "rrsets": [rrset("new.example")] });
    let expected = message("new.example", used + 3 + 2 + 2 * 241);
    assert_eq!(pdns(&ada, Method::POST, PDNS_ZONES, new).await, (422, expected));
    ada.get(&format!("{ZONES}/new.example")).await.expect_error(404, "not_found");
    assert_eq!(ada.get(ZONE).await.expect(200)["bytes"], bytes);
    // This change keeps the zone within the limit.
    put(&ada, "a/TXT", &["x"]).await;
    put(&ada, "bcd/TXT", &[&text]).await;
}
