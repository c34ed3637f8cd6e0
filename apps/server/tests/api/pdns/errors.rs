//! Errors of the PowerDNS-compatible API: messages and statuses.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::{PdnsClient, ZONES, assert_error, rrset, rrsets, setup, zone_rrsets};
use crate::overload::{connect, read_response};
use crate::support::{App, client};

const ZONE: &str = "/api/v1/servers/localhost/zones/example.org.";

#[tokio::test(flavor = "multi_thread")]
async fn patch_applies_all_changes_or_none() {
    let (_app, _, tool) = setup().await;
    tool.post(ZONES, json!({ "name": "example.org." })).await.expect(201);
    let good = rrset("www.example.org.", "A", 300, &["192.0.2.1"]);
    let at =
        |name: &str, kind: &str, ttl: u32, records: &[&str]| rrsets(&[good.clone(), rrset(name, kind, ttl, records)]);
    let field = |name: &str, value: Value| {
        let mut changed = rrset("x.example.org.", "A", 300, &["192.0.2.1"]);
        changed[name] = value;
        rrsets(&[good.clone(), changed])
    };
    for (body, text) in [
        (at("x.example.org.", "A", 300, &["192.0.2.256"]), "RRset x.example.org. IN A: "),
        (at("x.example.org.", "A", 29, &["192.0.2.1"]), "ttl: must be from 30 to 86400"),
        (at("x.example.org.", "ALIAS", 300, &["y.example.net."]), "RRset x.example.org. IN ALIAS: "),
        (at("www.example.org.", "CNAME", 300, &["y.example.net."]), "RRset www.example.org. IN "),
        (at("www.example.org.", "A", 300, &["192.0.2.2"]), "more than once"),
        (at("x.example.net.", "A", 300, &["192.0.2.1"]), "not in the zone"),
        (at("example.org.", "MX", 300, &["5 a.example.net.", "10 mail.example.net"]), "format: '10 mail.example.net'"),
        (at("x.example.org.", "CNAME", 300, &["@"]), "names end with a dot"),
        (at("x.example.org.", "TXT", 300, &["v=spf1 -all"]), "format: 'v=spf1 -all'"),
        (at("x.example.org.", "A", 300, &["192.0.2.1"; 101]), "has 101 records; the limit is 100"),
        (at("x", "A", 300, &["192.0.2.1"]), "DNS Name 'x' is not canonical"),
        (at("example.org.", "NS", 3600, &["ns.example.net."]), "ns1.svc.example., ns2.svc.example."),
        (at("example.org.", "NS", 600, &["ns1.svc.example.", "ns2.svc.example."]), "a TTL of 3600"),
        (at("example.org.", "NS", 3600, &[]), "RRset example.org. IN NS: "),
        (at("example.org.", "SOA", 3600, &["a. b. 1 2 3 4 5"]), "RRset example.org. IN SOA: "),
        (field("changetype", json!("EXTEND")), "Changetype not understood"),
        (field("changetype", Value::Null), "Key 'changetype' not present"),
        (field("records", json!([{ "content": "192.0.2.1", "disabled": true }])), "disabled"),
        (field("records", json!([{ "text": "192.0.2.1" }])), "content"),
        (field("ttl", json!(-1)), "ttl"),
        (field("name", json!(7)), "name"),
        (json!({}), "No rrsets given in update request"),
        (json!([]), ""),
    ] {
        assert_error(&tool.patch(ZONE, body).await, 422, text);
    }
    assert_eq!(zone_rrsets(&tool, "example.org.").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_with_unsupported_fields_is_rejected() {
    let (_app, _, tool) = setup().await;
    for (field, value, text) in [
        ("name", json!("org."), "name: "),
        ("name", json!("127.0.0.1"), "name: "),
        ("name", Value::Null, "name"),
        ("kind", json!("Slave"), "kind slave"),
        ("nsec3param", json!("1 0 1 ab"), "nsec3param"),
        ("nameservers", json!(["ns.example.net."]), "ns1.svc.example, ns2.svc.example"),
        ("zone", json!("@ A 192.0.2.1"), "send rrsets"),
        ("rrsets", json!([rrset("www.example.org.", "A", 300, &["nowhere"])]), "RRset www.example.org. IN A: "),
        ("rrsets", json!([rrset("example.org.", "CNAME", 300, &["example.net."])]), "CNAME"),
    ] {
        let mut body = json!({ "name": "example.org.", "kind": "Native" });
        body[field] = value;
        assert_error(&tool.post(ZONES, body).await, 422, text);
    }
    assert_eq!(tool.get(ZONES).await.expect(200), &json!([]));
    tool.post(ZONES, json!({ "name": "example.org." })).await.expect(201);
    assert_error(&tool.post(ZONES, json!({ "name": "example.org." })).await, 409, "Conflict");
    for (body, text) in [
        (json!({ "kind": "Slave" }), "kind slave"),
        (json!({ "nsec3param": "1 0 1 ab" }), "nsec3param"),
        (json!({ "rrsets": [] }), "PATCH"),
    ] {
        assert_error(&tool.put(ZONE, body).await, 422, text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_errors_have_the_powerdns_format() {
    let (app, ada, tool) = setup().await;
    tool.get(&format!("{ZONES}/example.org.")).await.expect(404);
    tool.get(&format!("{ZONES}/not%20a%20name")).await.expect(404);
    for path in ["/api/v1/servers/other/zones", "/api/v1/servers/localhost/nothing", "/api/v2", "/api/"] {
        tool.get(path).await.expect(404);
    }
    let wrong = tool.post("/api/v1/servers", json!({})).await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, "GET, HEAD"));
    tool.get(&format!("/api/{}", "x".repeat(9000))).await.expect(414);
    tool.get("/api/%41").await.expect(422);
    for (body, status) in [("{", 400), ("{\"name\":\"a.\",\"name\":\"b.\"}", 400), ("\"text\"", 422)] {
        let request = client().post(format!("{}{ZONES}", app.base)).header("X-API-Key", tool.key.clone().unwrap());
        let response = request.body(body).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{body}");
        assert!(response.json::<Value>().await.unwrap()["error"].is_string());
    }
    let large = json!({ "name": "example.org.", "comment": "x".repeat(2 << 20) });
    tool.post(ZONES, large).await.expect(413);
    // A large body reserves memory before it is read, so its declared length is checked first.
    let key = tool.key.as_deref().unwrap();
    let head = format!("POST {ZONES} HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nContent-Length: 3000000\r\n\r\n");
    let mut stream = connect(&app).await;
    stream.write_all(head.as_bytes()).await.unwrap();
    let response = read_response(&mut stream).await.unwrap();
    assert!(response.starts_with("http/1.1 413 "), "{response}");
    // Only a personal access token in the X-API-Key header is accepted.
    let session = PdnsClient::new(&app, ada.token.as_deref());
    session.get("/api").await.expect(401);
    let bearer = client().get(format!("{}/api", app.base)).bearer_auth(tool.key.as_deref().unwrap());
    assert_eq!(bearer.send().await.unwrap().status(), 401);
    // `/v1` does not accept this header.
    let v1 = client().get(format!("{}/v1/me", app.base)).header("X-API-Key", tool.key.clone().unwrap());
    assert_eq!(v1.send().await.unwrap().status(), 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_returns_503_if_no_zones_are_hosted() {
    let app = App::with(|config| config.dns = None).await;
    let ada = app.sign_in("ada").await;
    let tool = PdnsClient::new(&app, Some(&super::key(&ada, &["dns:write"], Value::Null).await));
    for (method, path) in [
        (Method::GET, "/api"),
        (Method::GET, ZONES),
        (Method::POST, ZONES),
        (Method::GET, ZONE),
        (Method::PATCH, ZONE),
        (Method::DELETE, ZONE),
    ] {
        let response = tool.send(method, path, json!({})).await;
        assert_error(&response, 503, "does not host zones");
        assert_eq!(response.header("retry-after"), "1");
    }
    PdnsClient::new(&app, None).get(ZONES).await.expect(401);
}

#[tokio::test(flavor = "multi_thread")]
async fn powerdns_requests_are_rate_limited() {
    let app = App::with(|config| {
        config.gateway.rate_limits.credential = std::num::NonZeroU32::new(60).unwrap();
    })
    .await;
    app.clock.stop();
    let ada = app.sign_in("ada").await;
    let tool = PdnsClient::new(&app, Some(&super::key(&ada, &["dns:read"], Value::Null).await));
    for _ in 0..60 {
        tool.get("/api").await.expect(200);
    }
    let last = tool.get("/api").await;
    assert_error(&last, 429, "too many requests");
    assert!(!last.header("retry-after").is_empty() && !last.header("ratelimit").is_empty());
}
