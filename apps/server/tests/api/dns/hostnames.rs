//! Records of project hostnames in hosted zones.

use providers::acme::AcmeConfig;
use reqwest::Method;
use sandbox::RecordType;
use serde_json::{Value, json};

use super::{ZONE, create, put, setup, setup_with_resolver, unmanaged};
use crate::support::{
    App, Caller, HeldLocks, ManualNode, client, eventually, eventually_with_retries, site, while_waiting,
};

const HOSTNAMES: &str = "/v1/orgs/ada/projects/site/hostnames";

/// A part of the statement with which a request locks a zone. The jobs that lock zones during the tests of requests find
/// them by id.
const LOCK_ZONE: &str = r#""zones"."name" = "#;

async fn claim(ada: &Caller, name: &str) -> Value {
    ada.post(HOSTNAMES, json!({ "name": name })).await.expect(200).clone()
}

/// Returns a hostname of the project.
async fn hostname(ada: &Caller, name: &str) -> Value {
    let listed = ada.get(HOSTNAMES).await.expect(200)["items"].clone();
    listed.as_array().unwrap().iter().find(|hostname| hostname["name"] == name).unwrap().clone()
}

/// Waits until the hostname is active with a `lastError` that contains this text, or with none.
async fn wait_for_check(app: &App, ada: &Caller, name: &str, error: Option<&str>) {
    let _other = app.check_new_zones().await;
    let hostname = eventually_with_retries("the hostname is checked", async || {
        let hostname = hostname(ada, name).await;
        let stored = hostname["lastError"].as_str();
        let is_expected = error.map_or(stored.is_none(), |error| stored.is_some_and(|it| it.contains(error)));
        is_expected.then_some(hostname)
    });
    assert_eq!(hostname.await["state"], "active");
}

/// Waits until the zone has these managed records.
async fn wait_for_managed(app: &App, ada: &Caller, zone: &str, records: &[&str]) {
    let _other = app.check_new_zones().await;
    let published = async || (managed_in(ada, zone).await == records).then_some(());
    eventually_with_retries("the records are published", published).await;
}

async fn managed(ada: &Caller) -> Vec<String> {
    managed_in(ada, "example.org").await
}

async fn managed_in(ada: &Caller, zone: &str) -> Vec<String> {
    let zone = ada.get(&format!("/v1/orgs/ada/dns/zones/{zone}")).await.expect(200).clone();
    let rrsets = zone["rrsets"].as_array().unwrap().iter().filter(|rrset| rrset["managed_by"] == "project");
    rrsets.map(|it| format!("{} {} {}", it["name"], it["type"], it["records"]).replace(['"', '[', ']'], "")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hostname_in_a_hosted_zone_is_active_immediately_and_its_record_is_managed() {
    let (app, ada) = setup().await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let name = claim(&ada, "www.example.org").await;
    assert_eq!((&name["state"], &name["lastError"]), (&json!("active"), &Value::Null));
    assert_eq!(managed(&ada).await, ["www.example.org CNAME fallback.localhost."]);
    ada.put(&format!("{ZONE}/rrsets/www/CNAME"), json!({ "records": ["x"] })).await.expect_error(409, "managed_rrset");
    ada.put(&format!("{ZONE}/rrsets/www/A"), json!({ "records": ["192.0.2.1"] }))
        .await
        .expect_error(409, "cname_conflict");
    ada.delete(&format!("{ZONE}/rrsets/www/CNAME")).await.expect_error(409, "managed_rrset");
    ada.delete(&format!("{HOSTNAMES}/www.example.org")).await.expect(204);
    assert_eq!(managed(&ada).await, [""; 0]);

    claim(&ada, "a.example.org").await;
    claim(&ada, "b.deep.example.org").await;
    assert_eq!(managed(&ada).await.len(), 2);
    ada.send(Method::DELETE, "/v1/orgs/ada/projects/site", |it| it.json(&json!({ "confirm": "site" })))
        .await
        .expect(204);
    assert_eq!(managed(&ada).await, [""; 0]);
    let events = app.db_audit("ada").await;
    assert_eq!(
        events.iter().filter(|event| event.starts_with("dns.rrset")).count(),
        0,
        "an operation wrote more than one audit event"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_nameservers_deletes_the_records_of_released_hostnames() {
    let (app, ada) = setup().await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    for host in ["www.example.org", "a.example.org", "b.deep.example.org"] {
        claim(&ada, host).await;
    }
    assert_eq!(managed(&ada).await.len(), 3);
    let other = app.another_with(|config| config.dns = None).await;
    let elsewhere = other.connect(&ada);
    elsewhere.delete(&format!("{HOSTNAMES}/www.example.org")).await.expect(204);
    assert_eq!(managed(&ada).await.len(), 2);
    elsewhere
        .send(Method::DELETE, "/v1/orgs/ada/projects/site", |it| it.json(&json!({ "confirm": "site" })))
        .await
        .expect(204);
    assert_eq!(managed(&ada).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_records_are_kept_and_reported() {
    let (app, ada) = setup().await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    put(&ada, "www/A", &["192.0.2.1"]).await;
    put(&ada, "same/CNAME", &["fallback.localhost."]).await;
    let name = claim(&ada, "www.example.org").await;
    assert_eq!(name["state"], "active");
    assert!(name["lastError"].as_str().unwrap().contains("other records"), "{name}");
    assert_eq!(claim(&ada, "same.example.org").await["lastError"], Value::Null);
    assert_eq!(managed(&ada).await, ["same.example.org CNAME fallback.localhost."]);
    let apex = claim(&ada, "example.org").await;
    assert!(apex["lastError"].as_str().unwrap().contains("cannot be a CNAME"), "{apex}");

    let verify = format!("{HOSTNAMES}/www.example.org/verify");
    let still = ada.post(&verify, json!({})).await.expect(200).clone();
    assert!(still["lastError"].as_str().unwrap().contains("other records"), "{still}");
    ada.delete(&format!("{ZONE}/rrsets/www/A")).await.expect(204);
    let verified = ada.post(&verify, json!({})).await.expect(200).clone();
    assert_eq!((&verified["state"], &verified["lastError"]), (&json!("active"), &Value::Null));
    assert_eq!(managed(&ada).await.len(), 2);
    assert_eq!(unmanaged(&ada).await, [""; 0]);
    assert_eq!(app.db_audit("ada").await.last().unwrap(), "hostname.link");
}

#[tokio::test(flavor = "multi_thread")]
async fn hostname_below_a_delegation_gets_no_record_and_the_reason() {
    let (_app, ada) = setup().await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    put(&ada, "shop/NS", &["ns.other.example."]).await;
    for host in ["shop.example.org", "www.shop.example.org"] {
        let name = claim(&ada, host).await;
        assert!(name["lastError"].as_str().unwrap().contains("to other nameservers"), "{name}");
    }
    assert_eq!(managed(&ada).await, [""; 0]);
    ada.delete(&format!("{ZONE}/rrsets/shop/NS")).await.expect(204);
    let verified = ada.post(&format!("{HOSTNAMES}/www.shop.example.org/verify"), json!({})).await.expect(200).clone();
    assert_eq!(verified["lastError"], Value::Null);
    assert_eq!(managed(&ada).await, ["www.shop.example.org CNAME fallback.localhost."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostname_at_the_apex_gets_address_records() {
    let app = App::with(|config| {
        let addresses = ["192.0.2.80", "2001:db8::80"].map(|it| it.parse().unwrap());
        config.dns.as_mut().unwrap().fallback_addresses = addresses.to_vec();
    })
    .await;
    let ada = app.sign_in("ada").await;
    create(&ada, "ada", "example.org").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    put(&ada, "@/TXT", &["mine"]).await;
    assert_eq!(claim(&ada, "example.org").await["lastError"], Value::Null);
    assert_eq!(managed(&ada).await, ["example.org A 192.0.2.80", "example.org AAAA 2001:db8::80"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostname_at_the_apex_loses_the_addresses_that_are_no_longer_configured() {
    let set_addresses = |config: &mut server::config::Config, addresses: &[&str]| {
        let addresses = addresses.iter().map(|it| it.parse().unwrap());
        config.dns.as_mut().unwrap().fallback_addresses = addresses.collect();
    };
    let app = App::with(|config| set_addresses(config, &["192.0.2.80", "2001:db8::80"])).await;
    let ada = app.sign_in("ada").await;
    create(&ada, "ada", "example.org").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    claim(&ada, "example.org").await;
    let verify = format!("{HOSTNAMES}/example.org/verify");
    let later = app.another_with(|config| set_addresses(config, &["192.0.2.81"])).await;
    let verified = later.connect(&ada).post(&verify, json!({})).await.expect(200).clone();
    assert_eq!(verified["lastError"], Value::Null);
    assert_eq!(managed(&ada).await, ["example.org A 192.0.2.81"]);
    let last = later.another_with(|config| set_addresses(config, &[])).await;
    let verified = last.connect(&ada).post(&verify, json!({})).await.expect(200).clone();
    assert!(verified["lastError"].as_str().unwrap().contains("cannot be a CNAME"), "{verified}");
    assert_eq!(managed(&ada).await, [""; 0]);
    let events = app.db_audit("ada").await;
    assert_eq!(events[events.len() - 2..], ["hostname.link", "hostname.link"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn record_of_a_hostname_moves_into_a_new_zone_and_back() {
    let (app, ada) = setup().await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    claim(&ada, "www.dev.example.org").await;
    let record = "www.dev.example.org CNAME fallback.localhost.";
    assert_eq!(managed(&ada).await, [record]);
    let created = create(&ada, "ada", "dev.example.org").await;
    let moved = created["rrsets"].as_array().unwrap().iter().find(|rrset| rrset["type"] == "CNAME").unwrap();
    assert_eq!((&moved["name"], &moved["managed_by"]), (&json!("www.dev.example.org"), &json!("project")));
    assert_eq!(managed(&ada).await, [""; 0]);
    ada.delete("/v1/orgs/ada/dns/zones/dev.example.org").await.expect(204);
    assert_eq!(managed(&ada).await, [record]);
    ada.delete(&format!("{HOSTNAMES}/www.dev.example.org")).await.expect(204);
    assert_eq!(managed(&ada).await, [""; 0]);
    let events = app.db_audit("ada").await;
    assert_eq!(events[events.len() - 3..], ["dns.zone.create", "dns.zone.delete", "hostname.delete"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn active_hostname_gets_its_record_when_its_zone_is_created_later() {
    let (app, dns, ada, _) = setup_with_resolver().await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    for host in ["www.created.org", "www.imported.org", "www.tool.org", "new.tool.org"] {
        claim(&ada, host).await;
        dns.set(host, RecordType::CNAME, &["fallback.localhost."]);
        assert_eq!(ada.post(&format!("{HOSTNAMES}/{host}/verify"), json!({})).await.expect(200)["state"], "active");
    }
    create(&ada, "ada", "created.org").await;
    ada.post("/v1/orgs/ada/domains/import", json!({ "name": "imported.org" })).await.expect(201);
    let token = ada.post("/v1/me/tokens", json!({ "name": "pdns", "scopes": ["dns:write"] })).await;
    let token = token.expect(201)["token"].as_str().unwrap().to_owned();
    let records = json!([{ "content": "192.0.2.1", "disabled": false }]);
    let www = json!({ "name": "www.tool.org.", "type": "A", "ttl": 60, "changetype": "REPLACE", "records": records });
    let zone = json!({ "name": "tool.org.", "kind": "Native", "rrsets": [www] }).to_string();
    let post = client().post(format!("{}/api/v1/servers/localhost/zones", app.base)).header("X-API-Key", &token);
    assert_eq!(post.body(zone).send().await.unwrap().status().as_u16(), 201);

    for zone in ["created.org", "imported.org"] {
        let record = format!("www.{zone} CNAME fallback.localhost.");
        wait_for_managed(&app, &ada, zone, &[&record]).await;
    }
    wait_for_managed(&app, &ada, "tool.org", &["new.tool.org CNAME fallback.localhost."]).await;
    wait_for_check(&app, &ada, "www.tool.org", Some("other records")).await;
    let links = app.db_audit("ada").await.into_iter().filter(|event| event == "hostname.link");
    assert_eq!(links.count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn active_hostname_gets_its_record_when_its_zone_is_created_again() {
    let (app, ada) = setup().await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    claim(&ada, "www.example.org").await;
    ada.delete(ZONE).await.expect(204);
    create(&ada, "ada", "example.org").await;
    wait_for_managed(&app, &ada, "example.org", &["www.example.org CNAME fallback.localhost."]).await;
    assert_eq!(hostname(&ada, "www.example.org").await["lastError"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn active_hostname_gets_its_record_when_a_zone_below_its_zone_is_created() {
    let (app, ada) = setup().await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    put(&ada, "dev/NS", &["ns.other.example."]).await;
    let host = "www.dev.example.org";
    assert!(claim(&ada, host).await["lastError"].as_str().unwrap().contains("to other nameservers"));
    create(&ada, "ada", "dev.example.org").await;
    wait_for_managed(&app, &ada, "dev.example.org", &["www.dev.example.org CNAME fallback.localhost."]).await;
    wait_for_check(&app, &ada, host, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostname_that_waits_for_its_zone_does_not_block_the_node() {
    let (app, ada) = setup().await;
    let bob = app.sign_in("bob").await;
    // Both projects have the same home node.
    ManualNode::new(&app).await;
    let deploy = async |caller: &Caller, org: &str| {
        caller.upload(&format!("/v1/orgs/{org}/projects/site/deployments"), site("page")).await.expect(201);
    };
    for (caller, org) in [(&ada, "ada"), (&bob, "bob")] {
        caller.post(&format!("/v1/orgs/{org}/projects"), json!({ "name": "site" })).await.expect(201);
        deploy(caller, org).await;
    }
    let add = async || ada.post(HOSTNAMES, json!({ "name": "www.example.org" })).await;
    let delete = async || ada.delete(&format!("{HOSTNAMES}/www.example.org")).await;
    let lock_zone = async || app.hold("SELECT FROM dns.zones WHERE name = 'example.org' FOR UPDATE").await;
    let deploy_during_wait = async |zone: HeldLocks| {
        assert!(!app.waiting_transaction_locks_node(LOCK_ZONE).await, "the node is locked before the zone");
        deploy(&bob, "bob").await;
        zone.commit("").await;
    };
    let zone = lock_zone().await;
    while_waiting(add, deploy_during_wait(zone)).await.expect(200);
    assert_eq!(managed(&ada).await.len(), 1);
    let zone = lock_zone().await;
    while_waiting(delete, deploy_during_wait(zone)).await.expect(204);
    assert_eq!(managed(&ada).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_of_a_project_locks_its_zones_in_a_fixed_order() {
    let (app, ada) = setup().await;
    create(&ada, "ada", "second.example").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    for name in ["a.second.example", "b.example.org"] {
        claim(&ada, name).await;
    }
    let first = app.hold("SELECT FROM dns.zones WHERE name = 'example.org' FOR UPDATE").await;
    let second = app.hold("SELECT FROM dns.zones WHERE name = 'second.example' FOR UPDATE").await;
    let delete = async || {
        let confirm = json!({ "confirm": "site" });
        ada.send(Method::DELETE, "/v1/orgs/ada/projects/site", |request| request.json(&confirm)).await
    };
    let others = async {
        let blocker = format!(
            "SELECT b.query FROM pg_stat_activity a JOIN pg_stat_activity b ON b.pid = ANY (pg_blocking_pids(a.pid)) \
             WHERE a.wait_event_type = 'Lock' AND a.datname = current_database() \
             AND position('{LOCK_ZONE}' IN a.query) > 0"
        );
        let blocked_by = async || app.db_rows(&blocker).await.first().map(|row| row["query"].to_string());
        let statement = eventually("the deletion waits for a zone", blocked_by).await;
        // The shorter name comes first.
        assert!(statement.contains("'example.org'"), "{statement}");
        first.commit("").await;
        second.commit("").await;
    };
    while_waiting(delete, others).await.expect(204);
    assert_eq!(managed(&ada).await, [""; 0]);
}

/// A change of a hostname locks its zone and then the name of its certificate. The job that ends the certificate of a
/// removed hostname deletes the record of an unfinished challenge in the zone. HTTP-01 has no record.
#[tokio::test(flavor = "multi_thread")]
async fn end_of_a_certificate_locks_the_zone_before_the_name() {
    let directory = "http://127.0.0.1:9".parse().unwrap();
    let app = App::with(|config| config.acme = vec![AcmeConfig { directory, contact: None, binding: None, ca: None }]);
    let app = app.await;
    let ada = app.sign_in("ada").await;
    create(&ada, "ada", "example.org").await;
    for challenge in ["dns-01", "http-01"] {
        ada.post("/v1/orgs/ada/projects", json!({ "name": challenge })).await.expect(201);
    }
    let zone = app.hold("SELECT FROM dns.zones WHERE name = 'example.org' FOR UPDATE").await;
    app.db_execute(
        "INSERT INTO certificates.names (name, org_id, project_id, wanted, state, due_at, created_at) \
             SELECT name || '.example.org', org_id, id, false, 'pending', created_at, created_at \
             FROM projects.projects; \
         INSERT INTO certificates.orders \
             (id, name, org_id, directory, url, challenge, token, response, zone, created_at) \
             SELECT gen_random_uuid(), n.name, n.org_id, '', '', p.name, '', '', \
                 CASE p.name WHEN 'dns-01' THEN 'example.org' END, n.created_at \
             FROM certificates.names n JOIN projects.projects p ON p.id = n.project_id",
    )
    .await
    .unwrap();
    let wait_for_rest = async |rest: usize| {
        let names = async || app.db_rows("SELECT name FROM certificates.names").await.len();
        eventually("a certificate has ended", async || (names().await == rest).then_some(())).await;
    };
    wait_for_rest(1).await;
    app.wait_for_lock(LOCK_ZONE).await;
    zone.commit("SELECT FROM certificates.names FOR UPDATE NOWAIT").await;
    wait_for_rest(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_of_another_organization_does_not_verify_a_hostname() {
    let (app, _) = setup().await;
    let bob = app.sign_in("bob").await;
    bob.post("/v1/orgs/bob/projects", json!({ "name": "site" })).await.expect(201);
    let claimed = bob.post("/v1/orgs/bob/projects/site/hostnames", json!({ "name": "www.example.org" })).await;
    assert_eq!(claimed.expect(200)["state"], "pending_dns");
}
