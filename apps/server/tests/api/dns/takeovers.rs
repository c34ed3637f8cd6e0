//! Takeovers of zones by the owner of their domain, over HTTP and against a DNS server.

use sandbox::{DnsFault, RecordType};
use serde_json::{Value, json};

use super::slow_resolver::SlowResolver;
use super::{create, setup_with_resolver};
use crate::support::{ApiResponse, Caller, client};

const NAME: &str = "example.org";
const RECORD: &str = "_svc-verify.example.org";

async fn try_create(bob: &Caller) -> ApiResponse {
    bob.post("/v1/orgs/bob/dns/zones", json!({ "name": NAME })).await
}

async fn import(caller: &Caller, org: &str) -> ApiResponse {
    caller.post(&format!("/v1/orgs/{org}/domains/import"), json!({ "name": NAME })).await
}

/// Asserts that the zone is taken. Returns the value of the TXT record in the error.
#[track_caller]
fn refused(response: &ApiResponse, code: &str) -> String {
    let error = response.expect_error(409, code);
    let verify = &error["details"]["verify"];
    let value = verify["value"].as_str().unwrap().to_owned();
    assert!(value.starts_with("svc-verify="), "{value}");
    assert_eq!(*verify, json!({ "type": "TXT", "name": RECORD, "value": value }));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(RECORD), "{message}");
    value
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_of_a_domain_takes_its_zones_over_with_the_published_record() {
    let (_app, dns, ada, bob) = setup_with_resolver().await;
    // With its prefix, the name of the record of the last zone is too long for the DNS.
    let longest = format!("{0}.{0}.{0}.{1}.example.org", "a".repeat(63), "b".repeat(49));
    for name in [NAME, "www.example.org", "ada.example", &longest] {
        create(&ada, "ada", name).await;
    }
    let value = refused(&try_create(&bob).await, "zone_taken");
    dns.set(RECORD, RecordType::TXT, &["other", &value]);
    // A failed lookup proves nothing.
    dns.inject(Some(DnsFault::ServerFailure));
    assert_eq!(refused(&try_create(&bob).await, "zone_taken"), value);
    dns.inject(None);
    // A zone that is delegated here is in use.
    dns.set("www.example.org", RecordType::NS, &["ns1.svc.example."]);
    let error = try_create(&bob).await.expect_error(409, "zone_taken").clone();
    assert_eq!(error["details"], json!({ "zone": "www.example.org", "nameservers": ["ns1.svc.example"] }));
    dns.remove("www.example.org", "NS").unwrap();

    let zone = try_create(&bob).await.expect(200).clone();
    assert_eq!(zone["rrsetCount"], 2);
    let listed = ada.get("/v1/orgs/ada/dns/zones").await.expect(200)["items"].clone();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["name"]), (1, &json!("ada.example")));
    ada.get(&format!("/v1/orgs/ada/dns/zones/{NAME}")).await.expect_error(404, "not_found");
    let told = ada.get("/v1/orgs/ada/notifications").await.expect(200)["items"][0].clone();
    assert_eq!((&told["kind"], &told["project"]), (&json!("zone.taken_over"), &Value::Null));
    assert_eq!(told["title"], format!("Another organization took over example.org, {longest}, www.example.org"));
    assert!(told["message"].as_str().unwrap().contains(RECORD), "{told}");
    let events = ada.get("/v1/orgs/ada/audit?event=dns.zone.taken_over").await.expect(200)["items"].clone();
    assert_eq!(events.as_array().unwrap().len(), 3);
    assert_eq!((&events[0]["actor"], &events[0]["actorName"]), (&Value::Null, &json!("system")));
    let events = bob.get("/v1/orgs/bob/audit?event=dns.zone.create").await.expect(200)["items"].clone();
    assert_eq!(
        (&events[0]["data"], &events[0]["actor"]),
        (&json!({ "zone": NAME, "takenOver": 3 }), &json!(bob.user_id))
    );

    // The new holder's record is published, so the former holder cannot take the zone back.
    let of_ada = refused(&ada.post("/v1/orgs/ada/dns/zones", json!({ "name": NAME })).await, "zone_taken");
    dns.set(RECORD, RecordType::TXT, &[&value, &of_ada]);
    refused(&ada.post("/v1/orgs/ada/dns/zones", json!({ "name": NAME })).await, "zone_taken");
    dns.set(RECORD, RecordType::TXT, &[&of_ada]);
    ada.post("/v1/orgs/ada/dns/zones", json!({ "name": NAME })).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn import_takes_over_the_import_of_another_organization() {
    let (app, dns, ada, bob) = setup_with_resolver().await;
    import(&ada, "ada").await.expect(201);
    let value = refused(&import(&bob, "bob").await, "domain_taken");
    dns.set(RECORD, RecordType::TXT, &[&value]);
    assert_eq!(import(&bob, "bob").await.expect(201)["state"], "external");
    assert_eq!(import(&bob, "bob").await.expect(200)["name"], NAME);
    bob.get(&format!("/v1/orgs/bob/dns/zones/{NAME}")).await.expect(200);
    assert_eq!(ada.get("/v1/orgs/ada/domains").await.expect(200)["items"], json!([]));
    assert_eq!(app.db_audit("bob").await, ["domain.import"]);
    assert_eq!(app.db_audit("ada").await, ["domain.import", "dns.zone.taken_over"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_refusal_for_a_zone_that_is_delegated_here_names_its_nameservers() {
    let (_app, dns, ada, bob) = setup_with_resolver().await;
    create(&ada, "ada", NAME).await;
    dns.set(NAME, RecordType::NS, &["ns1.svc.example."]);
    let below = bob.post("/v1/orgs/bob/dns/zones", json!({ "name": "www.example.org" })).await;
    let zone = try_create(&bob).await;
    for (response, code) in [(below, "zone_taken"), (zone, "zone_taken"), (import(&bob, "bob").await, "domain_taken")] {
        let error = response.expect_error(409, code);
        assert_eq!(error["details"], json!({ "zone": NAME, "nameservers": ["ns1.svc.example"] }));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("remove the NS records") && !message.contains("_svc-verify"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn powerdns_route_names_the_record_and_takes_the_zone_over() {
    let (app, dns, ada, bob) = setup_with_resolver().await;
    create(&ada, "ada", NAME).await;
    let token = bob.post("/v1/me/tokens", json!({ "name": "pdns", "scopes": ["dns:write"] })).await;
    let token = token.expect(201)["token"].as_str().unwrap().to_owned();
    let post = async || {
        let body = json!({ "name": "example.org.", "kind": "Native" }).to_string();
        let url = format!("{}/api/v1/servers/localhost/zones", app.base);
        let response = client().post(&url).header("X-API-Key", &token).body(body).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let (status, error) = post().await;
    let value = refused(&try_create(&bob).await, "zone_taken");
    let message = error["error"].as_str().unwrap();
    assert!(status == 409 && message.contains(RECORD) && message.contains(&value), "{status} {message}");
    dns.set(RECORD, RecordType::TXT, &[&value]);
    assert_eq!(post().await.0, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_that_is_created_during_the_lookups_does_not_prevent_the_takeover() {
    let (app, dns, ada, bob) = setup_with_resolver().await;
    create(&ada, "ada", "one.example.org").await;
    let value = refused(&try_create(&bob).await, "zone_taken");
    dns.set(RECORD, RecordType::TXT, &[&value]);
    let mut slow = SlowResolver::start(dns.address()).await;
    let address = slow.address;
    let slowly = app.another_with(|config| config.dns_resolver = Some(address)).await.connect(&bob);
    let creation = tokio::spawn(async move { try_create(&slowly).await });
    slow.query().await;
    // The lookups hold no transaction, and block no other change.
    create(&ada, "ada", "two.example.org").await;
    create(&bob, "bob", "bob.example").await;
    slow.release();
    creation.await.unwrap().expect(200);
    assert_eq!(ada.get("/v1/orgs/ada/dns/zones").await.expect(200)["items"], json!([]));
    let events = bob.get("/v1/orgs/bob/audit?event=dns.zone.create").await.expect(200)["items"].clone();
    assert_eq!(events[0]["data"], json!({ "zone": NAME, "takenOver": 2 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_of_a_registered_domain_is_not_taken_over() {
    let (app, dns, ada, bob) = setup_with_resolver().await;
    import(&ada, "ada").await.expect(201);
    let value = refused(&try_create(&bob).await, "zone_taken");
    dns.set(RECORD, RecordType::TXT, &[&value]);
    app.db_execute(
        "UPDATE domains.domains SET state = 'active', registered_at = now(), expires_at = now() + interval '1 year'",
    )
    .await
    .unwrap();
    for (response, code) in [(try_create(&bob).await, "zone_taken"), (import(&bob, "bob").await, "domain_taken")] {
        assert_eq!(response.expect_error(409, code)["details"], Value::Null);
    }
    ada.get(&format!("/v1/orgs/ada/dns/zones/{NAME}")).await.expect(200);
}
