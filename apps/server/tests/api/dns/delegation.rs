//! Deleted zones whose delegation still names the platform's nameservers, against a DNS server.

use sandbox::{DnsFault, DnsServer, RecordType};
use serde_json::{Value, json};

use super::slow_resolver::SlowResolver;
use super::{create, setup_with_resolver};
use crate::support::{ApiResponse, App, Caller, client};

const OURS: [&str; 2] = ["NS2.svc.example.", "ns.other.example."];
const ELSEWHERE: [&str; 1] = ["ns.other.example."];

async fn try_create(caller: &Caller, org: &str, name: &str) -> ApiResponse {
    caller.post(&format!("/v1/orgs/{org}/dns/zones"), json!({ "name": name })).await
}

async fn create_and_delete(ada: &Caller, name: &str) {
    create(ada, "ada", name).await;
    ada.delete(&format!("/v1/orgs/ada/dns/zones/{name}")).await.expect(204);
}

/// Asserts that the zone cannot be created because of the delegation of this deleted zone.
#[track_caller]
fn assert_delegated(response: &ApiResponse, zone: &str, nameservers: &[&str]) {
    let error = response.expect_error(409, "zone_taken");
    assert_eq!(error["details"], json!({ "zone": zone, "nameservers": nameservers }));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("registrar") && message.contains("former organization"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_zone_that_is_still_delegated_here_cannot_be_taken_over() {
    let (app, dns, ada, bob) = setup_with_resolver().await;
    dns.set("example.org", RecordType::NS, &OURS);
    dns.set("www.example.org", RecordType::A, &["192.0.2.1"]);
    create_and_delete(&ada, "example.org").await;
    // A zone at or below the name of the deleted zone would serve a part of its domain.
    for name in ["example.org", "EXAMPLE.org.", "www.example.org", "a.b.example.org"] {
        assert_delegated(&try_create(&bob, "bob", name).await, "example.org", &["ns2.svc.example"]);
    }
    create(&bob, "bob", "other.org").await;
    create(&bob, "bob", "xexample.org").await;
    // The former organization may create it again.
    create_and_delete(&ada, "example.org").await;
    create_and_delete(&ada, "www.example.org").await;
    assert_delegated(&try_create(&bob, "bob", "example.org").await, "example.org", &["ns2.svc.example"]);
    assert_eq!(app.db_audit("bob").await, ["dns.zone.create"; 2]);

    dns.set("example.org", RecordType::NS, &ELSEWHERE);
    create(&bob, "bob", "example.org").await;
    // From now on, the zone is Bob's in every respect.
    try_create(&ada, "ada", "example.org").await.expect_error(409, "zone_taken");
    dns.set("example.org", RecordType::NS, &OURS);
    bob.delete("/v1/orgs/bob/dns/zones/example.org").await.expect(204);
    assert_delegated(&try_create(&ada, "ada", "example.org").await, "example.org", &["ns2.svc.example"]);
    create(&bob, "bob", "example.org").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_above_a_deleted_zone_is_taken_while_that_is_delegated_here() {
    let (_app, dns, ada, bob) = setup_with_resolver().await;
    dns.set("deep.sub.example.org", RecordType::NS, &OURS);
    create_and_delete(&ada, "deep.sub.example.org").await;
    create_and_delete(&ada, "gone.example.org").await;
    for name in ["deep.sub.example.org", "sub.example.org", "example.org", "x.deep.sub.example.org"] {
        assert_delegated(&try_create(&bob, "bob", name).await, "deep.sub.example.org", &["ns2.svc.example"]);
    }
    // A zone whose name is not below the deleted zone serves no part of its domain.
    create(&bob, "bob", "next.sub.example.org").await;
    dns.remove("deep.sub.example.org", "NS").unwrap();
    create(&bob, "bob", "example.org").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_delegation_is_unavailable_and_a_lame_one_is_taken() {
    let (app, dns, ada, bob) = setup_with_resolver().await;
    create_and_delete(&ada, "example.org").await;
    let unreachable =
        app.another_with(|config| config.dns_resolver = Some("255.255.255.255:53".parse().unwrap())).await;
    let refused = try_create(&unreachable.connect(&bob), "bob", "example.org").await;
    let error = refused.expect_error(503, "unavailable");
    assert!(error["message"].as_str().unwrap().contains("example.org: the name server is unreachable"), "{error}");
    assert!(!refused.header("retry-after").is_empty());
    for fault in [DnsFault::Refused, DnsFault::ServerFailure, DnsFault::Garbage] {
        dns.inject(Some(fault));
        try_create(&bob, "bob", "example.org").await.expect_error(503, "unavailable");
        // The resolver is needed only for names that overlap with a deleted zone.
        create(&bob, "bob", &format!("{fault:?}.example.net")).await;
    }
    dns.inject(None);
    // The resolver works, but our nameservers do not serve the zone. This is the response for a delegation that still
    // exists.
    dns.set_lame("example.org");
    for name in ["example.org", "www.example.org"] {
        assert_delegated(&try_create(&bob, "bob", name).await, "example.org", &[]);
    }
    create(&ada, "ada", "example.org").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn powerdns_route_rejects_a_zone_that_is_still_delegated_here() {
    let (app, dns, ada, bob) = setup_with_resolver().await;
    dns.set("example.org", RecordType::NS, &OURS);
    create_and_delete(&ada, "example.org").await;
    let token = bob.post("/v1/me/tokens", json!({ "name": "pdns", "scopes": ["dns:write"] })).await;
    let token = token.expect(201)["token"].as_str().unwrap().to_owned();
    let url = format!("{}/api/v1/servers/localhost/zones", app.base);
    let post = async || {
        let body = json!({ "name": "example.org.", "kind": "Native" }).to_string();
        let response = client().post(&url).header("X-API-Key", &token).body(body).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let (status, error) = post().await;
    assert_eq!((status, error.as_object().unwrap().len()), (409, 1), "{error}");
    assert!(error["error"].as_str().unwrap().contains("remove the delegation of example.org"), "{error}");
    dns.inject(Some(DnsFault::Refused));
    let (status, error) = post().await;
    assert_eq!(status, 503, "{error}");
    assert!(error["error"].as_str().unwrap().contains("the name server refused the query"), "{error}");
    dns.inject(None);
    dns.remove("example.org", "NS").unwrap();
    assert_eq!(post().await.0, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_that_is_deleted_during_the_lookups_is_checked_too() {
    let dns = DnsServer::start().await;
    let mut slow = SlowResolver::start(dns.address()).await;
    let address = slow.address;
    let app = App::with(|config| config.dns_resolver = Some(address)).await;
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    dns.set("sub.example.org", RecordType::NS, &ELSEWHERE);
    dns.set("example.org", RecordType::NS, &OURS);
    create_and_delete(&ada, "sub.example.org").await;
    let creation = tokio::spawn({
        let bob = bob.clone();
        async move { try_create(&bob, "bob", "example.org").await }
    });
    slow.query().await;
    create_and_delete(&ada, "example.org").await;
    slow.release();
    assert_delegated(&creation.await.unwrap(), "example.org", &["ns2.svc.example"]);
    assert!(app.db_audit("bob").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn lookups_block_no_other_change() {
    let dns = DnsServer::start().await;
    let mut slow = SlowResolver::start(dns.address()).await;
    let address = slow.address;
    let app = App::with(|config| config.dns_resolver = Some(address)).await;
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    for n in 0..4 {
        create_and_delete(&ada, &format!("z{n}.example")).await;
    }
    let creations: Vec<_> = (0..4)
        .map(|n| {
            let bob = bob.clone();
            tokio::spawn(async move { try_create(&bob, "bob", &format!("z{n}.example")).await })
        })
        .collect();
    // Each check sends two queries: one for the zone, and one for the top-level domain.
    for _ in 0..8 {
        slow.query().await;
    }
    // There are as many checks in progress as the organization may have, so a further one is rejected.
    let refused = try_create(&bob, "bob", "z0.example").await;
    let message = refused.expect_error(503, "unavailable")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("too many concurrent checks"), "{message}");
    create(&bob, "bob", "free.example").await;
    create(&ada, "ada", "z1.example").await;
    let open = "SELECT query FROM pg_stat_activity \
                WHERE datname = current_database() AND state LIKE 'idle in%' AND query LIKE '%dns.%'";
    assert_eq!(app.db_rows(open).await, [Value::Null; 0]);
    slow.release();
    for (n, creation) in creations.into_iter().enumerate() {
        let created = creation.await.unwrap();
        if n == 1 {
            // Ada's request was faster.
            created.expect_error(409, "zone_taken");
        } else {
            created.expect(200);
        }
    }
}
