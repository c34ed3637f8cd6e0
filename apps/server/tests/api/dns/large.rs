//! Zones that are too large for one page: their responses are streamed.

use reqwest::Method;
use serde_json::{Value, json};

use super::{ZONE, put, setup};
use crate::support::{ApiResponse, Caller};

const ZONES: &str = "/v1/orgs/ada/dns/zones";
const PDNS_ZONES: &str = "/api/v1/servers/localhost/zones";

async fn import(ada: &Caller, query: &str, file: String) -> ApiResponse {
    let path = format!("{ZONE}/zonefile{query}");
    ada.send(Method::PUT, &path, |it| it.header("content-type", "text/dns").body(file)).await
}

fn is_streamed(response: &ApiResponse) -> bool {
    assert_eq!(response.header("content-length").is_empty(), response.header("transfer-encoding") == "chunked");
    response.header("transfer-encoding") == "chunked"
}

fn rrsets(body: &Value) -> &Vec<Value> {
    body["rrsets"].as_array().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn large_zone_is_complete_in_every_response() {
    let (app, ada) = setup().await;
    let small = ada.get(ZONE).await;
    small.expect(200);
    assert!(!is_streamed(&small));
    let file: String =
        (0..2500).map(|n| format!("host-with-a-long-name-{n}.s{} A 192.0.2.{}\n", n % 7, n % 250)).collect();
    let preview = import(&ada, "?dryRun=true", file.clone()).await;
    assert_eq!(preview.expect(200)["added"].as_array().unwrap().len(), 2500);
    assert!(is_streamed(&preview));
    let imported = import(&ada, "", file).await;
    let detail = ada.get(ZONE).await;
    assert_eq!(imported.expect(200), detail.expect(200));
    assert_eq!(imported.header("etag"), detail.header("etag"));
    assert_eq!((rrsets(&detail.body).len(), &detail.body["rrsetCount"]), (2502, &json!(2502)));
    assert!(is_streamed(&detail));
    let again = ada.post_with_key("k", ZONES, json!({ "name": "example.org" })).await;
    assert_eq!(again.expect(200), &detail.body);
    let again = ada.post_with_key("k", ZONES, json!({ "name": "example.org" })).await;
    assert_eq!(again.expect(200), &detail.body);

    let exported = ada.get(&format!("{ZONE}/zonefile")).await;
    assert!(is_streamed(&exported));
    let text = String::from_utf8(exported.bytes).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("\tA\t")).count(), 2500);
    let unchanged = import(&ada, "", text.clone()).await;
    assert_eq!(unchanged.header("etag"), detail.header("etag"));

    let token = ada.post("/v1/me/tokens", json!({ "name": "pdns", "scopes": ["dns:read"] })).await;
    let key = token.expect(201)["token"].as_str().unwrap().to_owned();
    let get = async |path: &str, accept: &str| {
        let path = format!("{PDNS_ZONES}{path}");
        ada.send_unchecked(Method::GET, &path, |it| it.header("x-api-key", &key).header("accept", accept)).await
    };
    let all = get("/example.org.", "*/*").await;
    assert!(is_streamed(&all));
    assert_eq!(rrsets(all.expect(200)).len(), 2502);
    let some = get("/example.org.?rrset_name=Host-with-a-long-name-8.s1.example.org.&rrset_type=a", "*/*").await;
    assert_eq!(rrsets(some.expect(200)).len(), 1);
    assert_eq!(some.body["rrsets"][0]["records"][0]["content"], "192.0.2.8");
    assert_eq!(String::from_utf8(get("/example.org./export", "text/plain").await.bytes).unwrap(), text);
    assert_eq!(get("/example.org./export", "application/json").await.expect(200)["zone"], text);

    // The PowerDNS-compatible API lists all zones, although a page of zones has at most 200.
    app.db_execute(
        "INSERT INTO dns.zones (id, org_id, name, path, serial, rrset_count, bytes, last_change_number, journal_bytes, \
             dnssec_state, ds, created_at) \
         SELECT gen_random_uuid(), o.id, 'z' || n || '.example', 'example.z' || n || '.', 7, 0, 0, 0, 0, 'off', '[]', now() \
         FROM orgs.orgs o, generate_series(1, 450) n WHERE o.slug = 'ada'",
    )
    .await
    .unwrap();
    let listed = get("", "*/*").await;
    assert!(is_streamed(&listed));
    let mut names: Vec<&str> =
        listed.expect(200).as_array().unwrap().iter().map(|zone| zone["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 451);
    assert_eq!(get("?zone=z7.example.", "*/*").await.expect(200).as_array().unwrap().len(), 1);

    let cleared = import(&ada, "?dryRun=true", String::new()).await;
    assert_eq!(cleared.expect(200)["removed"].as_array().unwrap().len(), 2500);
    put(&ada, "www/A", &["192.0.2.1"]).await;
}
