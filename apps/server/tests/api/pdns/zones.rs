//! Zones in the PowerDNS-compatible API.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::{PdnsClient, ZONES, assert_error, key, rrset, rrsets, setup, setup_with, zone_rrsets};
use crate::support::{ApiResponse, client, use_short_waits, while_changes_wait};

const ZONE: &str = "/api/v1/servers/localhost/zones/example.org.";

fn ns() -> (String, String, u64, Vec<String>) {
    let records = ["ns1.svc.example.", "ns2.svc.example."].map(str::to_owned);
    ("example.org.".to_owned(), "NS".to_owned(), 3600, records.to_vec())
}

fn a(name: &str, ttl: u64, addresses: &[&str]) -> (String, String, u64, Vec<String>) {
    (name.to_owned(), "A".to_owned(), ttl, addresses.iter().map(|it| (*it).to_owned()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn server_information_has_a_supported_version() {
    let (_app, _, tool) = setup().await;
    assert_eq!(tool.get("/api").await.expect(200), &json!([{ "url": "/api/v1", "version": 1 }]));
    assert_eq!(tool.get("/api/v1").await.expect(200)[0]["server_url"], "/api/v1/servers{/server}");
    let server = tool.get("/api/v1/servers/localhost").await.expect(200).clone();
    assert_eq!((&server["id"], &server["daemon_type"]), (&json!("localhost"), &json!("authoritative")));
    let version: Vec<u32> =
        server["version"].as_str().unwrap().split('.').map(|number| number.parse().unwrap()).collect();
    assert_eq!(version[..2], [4, 7]);
    assert_eq!(tool.get("/api/v1/servers").await.expect(200), &json!([server]));
    assert_eq!(tool.get("/api/v1/servers/localhost/config").await.expect(200), &json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn large_response_to_a_created_zone_is_not_stored() {
    let (app, _, tool) = setup().await;
    let records: Vec<Value> =
        (0..200).map(|n| rrset(&format!("host-{n}.example.org."), "A", 300, &["192.0.2.1"])).collect();
    let new = json!({ "name": "example.org.", "kind": "Native", "rrsets": records });
    let create = async || {
        let request = client().post(format!("{}{ZONES}", app.base)).header("X-API-Key", tool.key.clone().unwrap());
        let request = request.header("idempotency-key", "key-1").body(new.to_string());
        ApiResponse::read(&Method::POST, ZONES, request.send().await.unwrap()).await
    };
    let created = create().await;
    created.expect(201);
    assert!(created.bytes.len() > 16 * 1024, "{}", created.bytes.len());
    assert!(app.db_rows("SELECT id FROM store.idempotency WHERE answer IS NOT NULL").await.is_empty());
    // A retry does not create the zone again.
    app.clock.advance(60);
    assert_error(&create().await, 409, "its response was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_is_created_changed_and_deleted() {
    let (app, ada, tool) = setup().await;
    let new = json!({
        "name": "Example.org.", "kind": "Native", "nameservers": [], "masters": [], "soa_edit_api": "DEFAULT", "serial": 0,
        "rrsets": [rrset("www.example.org.", "A", 60, &["192.0.2.2", "192.0.2.1"])],
    });
    let created = tool.post(ZONES, new).await.expect(201).clone();
    assert_eq!(
        (&created["id"], &created["name"], &created["kind"]),
        (&json!("example.org."), &created["id"], &json!("Master"))
    );
    assert_eq!((&created["account"], &created["dnssec"]), (&json!("ada"), &json!(false)));
    let listed = tool.get(ZONES).await.expect(200).clone();
    assert_eq!(listed[0]["serial"], created["serial"]);
    assert_eq!((listed[0]["url"].as_str(), listed.as_array().unwrap().len()), (Some(ZONE), 1));
    assert_eq!(
        zone_rrsets(&tool, "example.org.").await,
        [ns(), a("www.example.org.", 60, &["192.0.2.1", "192.0.2.2"])]
    );

    // A CNAME replaces an A rrset in one request.
    let change = rrsets(&[
        json!({ "name": "www.example.org.", "type": "A", "changetype": "DELETE" }),
        rrset("www.example.org.", "CNAME", 300, &["Web.example.org."]),
        json!({ "name": "gone.example.org.", "type": "A", "changetype": "delete", "kind": "" }),
        rrset("t.example.org.", "TXT", 120, &["\"a;b\""]),
    ]);
    assert_eq!(tool.patch(ZONE, change.clone()).await.expect(204), &Value::Null);
    let seen = ada.get("/v1/orgs/ada/dns/zones/example.org").await.expect(200).clone();
    let serial = seen["serial"].as_u64().unwrap();
    assert!(serial > created["serial"].as_u64().unwrap());
    let of_type = |kind: &str| seen["rrsets"].as_array().unwrap().iter().find(|rrset| rrset["type"] == kind).cloned();
    assert_eq!(of_type("CNAME").unwrap()["records"], json!(["web.example.org."]));
    assert_eq!((of_type("A"), &of_type("TXT").unwrap()["ttl"]), (None, &json!(120)));
    // A repeated request is a no-op.
    tool.patch(ZONE, change).await.expect(204);
    assert_eq!(tool.get(&format!("{ZONE}?rrsets=false")).await.expect(200)["serial"], serial);
    // An rrset without records is deleted. An rrset with only comments is unchanged.
    let change = json!([
        rrset("www.example.org.", "CNAME", 300, &[]),
        { "name": "t.example.org.", "type": "TXT", "changetype": "REPLACE", "comments": [{ "content": "why" }] },
    ]);
    tool.patch(ZONE, json!({ "rrsets": change })).await.expect(204);
    assert_eq!(
        zone_rrsets(&tool, "example.org").await.iter().map(|it| it.1.as_str()).collect::<Vec<_>>(),
        ["NS", "TXT"]
    );

    tool.delete(ZONE).await.expect(204);
    tool.get(ZONE).await.expect(404);
    assert_eq!(tool.get(ZONES).await.expect(200), &json!([]));
    let events = app.db_audit("ada").await;
    let expected = ["dns.zone.create", "dns.rrset.patch", "dns.rrset.patch", "dns.zone.delete"];
    assert_eq!(events[events.len() - expected.len()..], expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_is_returned_partially_and_as_a_file() {
    let (_app, _, tool) = setup().await;
    let www = rrset("www.example.org.", "A", 60, &["192.0.2.1"]);
    let mail = rrset("example.org.", "MX", 60, &["10 mail.example.org."]);
    let new = json!({ "name": "example.org.", "rrsets": [www, mail] });
    let short = tool.post(&format!("{ZONES}?rrsets=false"), new).await;
    assert_eq!(short.expect(201).get("rrsets"), None);
    tool.post(ZONES, json!({ "name": "example.net.", "kind": "Master" })).await.expect(201);

    assert_eq!(tool.get(&format!("{ZONE}?rrsets=false")).await.expect(200).get("rrsets"), None);
    let part = tool.get(&format!("{ZONE}?rrset_name=example.org.&rrset_type=MX")).await.expect(200).clone();
    assert_eq!(part["rrsets"].as_array().unwrap().len(), 1);
    let found = tool.get(&format!("{ZONES}?zone=example.net.&dnssec=false")).await.expect(200).clone();
    assert_eq!((found.as_array().unwrap().len(), &found[0]["name"]), (1, &json!("example.net.")));
    assert_eq!(tool.get(&format!("{ZONES}?zone=example.com.")).await.expect(200), &json!([]));

    let file = tool.get(&format!("{ZONE}/export")).await;
    let text = String::from_utf8(file.bytes.clone()).unwrap();
    assert!(file.header("content-type").starts_with("text/plain") && text.contains("192.0.2.1"), "{text}");
    let request = tool.client.get(format!("{}{ZONE}/export", tool.base)).header("Accept", "application/json");
    let in_json: Value =
        request.header("X-API-Key", tool.key.clone().unwrap()).send().await.unwrap().json().await.unwrap();
    assert_eq!(in_json["zone"], text);

    assert_eq!(tool.put(&format!("{ZONE}/notify"), Value::Null).await.expect(200)["result"], "Notification queued");
    assert_eq!(tool.put(&format!("{ZONE}/rectify"), Value::Null).await.expect(200)["result"], "Rectified");
    assert_eq!(tool.get(&format!("{ZONE}/metadata")).await.expect(200), &json!([]));
    assert_eq!(tool.get(&format!("{ZONE}/metadata/SOA-EDIT")).await.expect(200)["metadata"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_soa_and_ns_records_are_accepted() {
    let (_app, _, tool) = setup().await;
    let nameservers = ["ns2.svc.example.", "ns1.svc.example."];
    let created = tool.post(ZONES, json!({ "name": "example.org.", "nameservers": nameservers })).await;
    let created = created.expect(201).clone();
    let soa = created["rrsets"].as_array().unwrap().iter().find(|rrset| rrset["type"] == "SOA").unwrap();
    let soa = soa["records"][0]["content"].as_str().unwrap();
    // The serial in a submitted SOA is ignored.
    let older: Vec<&str> = soa.split(' ').enumerate().map(|(at, it)| if at == 2 { "1" } else { it }).collect();
    let same =
        [rrset("example.org.", "NS", 3600, &nameservers), rrset("example.org.", "SOA", 3600, &[&older.join(" ")])];
    tool.patch(ZONE, rrsets(&same)).await.expect(204);
    let after = tool.get(ZONE).await.expect(200).clone();
    assert_eq!(after["serial"], created["serial"]);
    // A delegation below the apex is not managed.
    tool.patch(ZONE, rrsets(&[rrset("sub.example.org.", "NS", 600, &["ns.example.net."])])).await.expect(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn managed_rrsets_are_hidden_and_read_only() {
    let (_app, ada, tool) = setup().await;
    tool.post(ZONES, json!({ "name": "example.org." })).await.expect(201);
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let hostname = json!({ "name": "www.example.org" });
    ada.post("/v1/orgs/ada/projects/site/hostnames", hostname).await.expect(200);
    assert_eq!(zone_rrsets(&tool, "example.org.").await, [ns()]);
    for change in [
        rrset("www.example.org.", "CNAME", 300, &["elsewhere.example."]),
        json!({ "name": "www.example.org.", "type": "CNAME", "changetype": "DELETE" }),
    ] {
        super::assert_error(&tool.patch(ZONE, rrsets(&[change])).await, 422, "RRset www.example.org. IN CNAME: ");
    }
    let seen = ada.get("/v1/orgs/ada/dns/zones/example.org").await.expect(200).clone();
    let managed = seen["rrsets"].as_array().unwrap().iter().filter(|rrset| rrset["managed_by"] == "project").count();
    assert_eq!(managed, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn delegation_of_a_zone_within_a_zone_is_hidden() {
    let (_app, _, tool) = setup().await;
    tool.post(ZONES, json!({ "name": "sub.example.org." })).await.expect(201);
    let api = rrset("api.dev.example.org.", "A", 60, &["192.0.2.1"]);
    let created = tool.post(ZONES, json!({ "name": "example.org.", "rrsets": [api] })).await.expect(201).clone();
    let types: Vec<&Value> = created["rrsets"].as_array().unwrap().iter().map(|rrset| &rrset["type"]).collect();
    assert_eq!(types, ["SOA", "NS", "A"]);
    let rrsets = [ns(), a("api.dev.example.org.", 60, &["192.0.2.1"])];
    assert_eq!(zone_rrsets(&tool, "example.org.").await, rrsets);
    // Clients interpret a 409 as a zone that exists.
    let refused = tool.post(ZONES, json!({ "name": "dev.example.org." })).await;
    super::assert_error(&refused, 422, "api.dev.example.org A");
    // The content of the new zone replaces these records.
    let new = json!({ "name": "dev.example.org.", "rrsets": [rrset("api.dev.example.org.", "A", 60, &["192.0.2.1"])] });
    tool.post(ZONES, new).await.expect(201);
    assert_eq!(zone_rrsets(&tool, "example.org.").await, [ns()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_delegation_of_a_zone_within_a_zone_is_accepted() {
    let (_app, ada, tool) = setup().await;
    let create = async |name: &str| tool.post(ZONES, json!({ "name": name })).await.expect(201).clone();
    let delegation = |name: &str| rrset(name, "NS", 300, &["ns2.svc.example.", "ns1.svc.example."]);
    create("example.org.").await;
    create("dev.example.org.").await;
    let change = rrsets(&[delegation("dev.example.org."), rrset("www.example.org.", "A", 60, &["192.0.2.1"])]);
    tool.patch(ZONE, change).await.expect(204);
    // The tool writes the delegation before the zone exists.
    let change = rrsets(&[delegation("sub.example.org.")]);
    tool.patch(ZONE, change.clone()).await.expect(204);
    create("sub.example.org.").await;
    tool.patch(ZONE, change).await.expect(204);
    assert_eq!(zone_rrsets(&tool, "example.org.").await, [ns(), a("www.example.org.", 60, &["192.0.2.1"])]);
    let other = rrsets(&[rrset("dev.example.org.", "NS", 300, &["ns.other.example."])]);
    super::assert_error(&tool.patch(ZONE, other).await, 422, "RRset dev.example.org. IN NS: ");
    let same = json!({ "records": ["ns1.svc.example.", "ns2.svc.example."] });
    ada.put("/v1/orgs/ada/dns/zones/example.org/rrsets/dev/NS", same).await.expect(409);
}

#[tokio::test(flavor = "multi_thread")]
async fn dnssec_is_switched_and_observed_keys_are_listed() {
    let (app, ada, tool) = setup().await;
    tool.post(ZONES, json!({ "name": "example.org.", "dnssec": true })).await.expect(201);
    let keys = format!("{ZONE}/cryptokeys");
    assert_eq!(tool.get(ZONE).await.expect(200)["dnssec"], true);
    let unobserved = tool.get(&keys).await.expect(200).clone();
    assert_eq!((&unobserved[0]["active"], unobserved.as_array().unwrap().len()), (&json!(true), 1));
    // Store observed keys, because the test has no signer.
    let observed = json!({
        "serial": 1, "cds": [], "error": null, "observedAt": "2026-01-01T00:00:00.000Z",
        "keys": [{ "keyTag": 4711, "flags": 257, "algorithm": 13, "publicKey": "AAAA" }],
    });
    app.db_execute(&format!("UPDATE dns.zones SET signer = '{observed}' WHERE name = 'example.org'")).await.unwrap();
    let digest = "AB".repeat(32);
    let ds = json!({ "ds": [{ "keyTag": 4711, "algorithm": 13, "digestType": 2, "digest": digest }] });
    ada.put("/v1/orgs/ada/dns/zones/example.org/dnssec/ds", ds).await.expect(200);
    assert_eq!(
        tool.get(&keys).await.expect(200),
        &json!([{
            "type": "Cryptokey", "id": 4711, "keytype": "csk", "active": true, "published": true, "flags": 257,
            "algorithm": "ECDSAP256SHA256", "dnskey": "257 3 13 AAAA", "ds": [format!("4711 13 2 {}", "ab".repeat(32))],
        }])
    );
    // Fields with default values are accepted.
    tool.put(ZONE, json!({ "kind": "Primary", "account": "", "soa_edit_api": "EPOCH", "api_rectify": true }))
        .await
        .expect(204);
    assert_eq!(tool.get(ZONE).await.expect(200)["dnssec"], true);
    tool.put(ZONE, json!({ "dnssec": false })).await.expect(204);
    assert_eq!(tool.get(ZONE).await.expect(200)["dnssec"], false);
    assert_eq!(tool.get(&keys).await.expect(200), &json!([]));
}

/// The requests of dnscontrol for AUTODNSSEC_ON and AUTODNSSEC_OFF.
#[tokio::test(flavor = "multi_thread")]
async fn keys_switch_dnssec() {
    let (app, _, tool) = setup().await;
    tool.post(ZONES, json!({ "name": "example.org." })).await.expect(201);
    let keys = format!("{ZONE}/cryptokeys");
    let new = json!({ "id": 0, "type": "", "keytype": "csk", "active": true, "published": true, "dnskey": "", "ds": null,
                      "privatekey": "", "algorithm": "", "bits": 0 });
    let rejected =
        [("keytype", json!("zsk")), ("active", json!(false)), ("published", json!(false)), ("privatekey", json!("x"))];
    for (field, value) in rejected {
        let mut other = new.clone();
        other[field] = value;
        super::assert_error(&tool.post(&keys, other).await, 422, "manages the keys");
    }
    assert_eq!(tool.get(ZONE).await.expect(200)["dnssec"], false);
    let created = tool.post(&keys, new).await.expect(201).clone();
    assert_eq!(tool.get(ZONE).await.expect(200)["dnssec"], true);
    assert_eq!(*tool.get(&keys).await.expect(200), json!([created]));
    let observed = json!({
        "serial": 1, "cds": [], "error": null, "observedAt": "2026-01-01T00:00:00.000Z",
        "keys": [{ "keyTag": 7, "flags": 256, "algorithm": 13, "publicKey": "AAAA" },
                 { "keyTag": 8, "flags": 257, "algorithm": 13, "publicKey": "AAAA" }],
    });
    app.db_execute(&format!("UPDATE dns.zones SET signer = '{observed}' WHERE name = 'example.org'")).await.unwrap();
    let listed = tool.get(&keys).await.expect(200).clone();
    assert_eq!((&listed[0]["id"], &listed[0]["keytype"], &listed[1]["id"]), (&json!(8), &json!("ksk"), &json!(7)));
    tool.put(&format!("{keys}/8"), json!({ "active": true })).await.expect(204);
    for key in [7, 9] {
        super::assert_error(&tool.delete(&format!("{keys}/{key}")).await, 422, "manages the keys");
    }
    assert_eq!(tool.get(ZONE).await.expect(200)["dnssec"], true);
    tool.delete(&format!("{keys}/8")).await.expect(204);
    assert_eq!(tool.get(ZONE).await.expect(200)["dnssec"], false);
    tool.post(&keys, json!({ "keytype": "ksk", "active": true })).await.expect(201);
    tool.put(&format!("{keys}/8"), json!({ "active": false })).await.expect(204);
    assert_eq!(tool.get(ZONE).await.expect(200)["dnssec"], false);
    let events = app.db_audit("ada").await;
    assert_eq!(events[events.len() - 4..], ["dns.dnssec.on", "dns.dnssec.off", "dns.dnssec.on", "dns.dnssec.off"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_of_any_secure_entry_point_turns_dnssec_off() {
    let (app, _, tool) = setup().await;
    tool.post(ZONES, json!({ "name": "example.org.", "dnssec": true })).await.expect(201);
    // The keys during a rollover.
    let observed = json!({
        "serial": 1, "cds": [], "error": null, "observedAt": "2026-01-01T00:00:00.000Z",
        "keys": [{ "keyTag": 8, "flags": 257, "algorithm": 13, "publicKey": "AAAA" },
                 { "keyTag": 9, "flags": 257, "algorithm": 13, "publicKey": "AAAB" }],
    });
    app.db_execute(&format!("UPDATE dns.zones SET signer = '{observed}' WHERE name = 'example.org'")).await.unwrap();
    tool.delete(&format!("{ZONE}/cryptokeys/9")).await.expect(204);
    assert_eq!(tool.get(ZONE).await.expect(200)["dnssec"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_zone_belongs_to_the_organization_of_the_token() {
    let (app, ada, tool) = setup().await;
    ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201);
    let new = |name: &str| json!({ "name": name, "kind": "Native" });
    super::assert_error(&tool.post(ZONES, new("example.org.")).await, 422, "restrict");
    let with = async |restrict: Value| PdnsClient::new(&app, Some(&key(&ada, &["dns:write"], restrict).await));
    let of_acme = with(json!({ "org": "acme" })).await;
    of_acme.post(ZONES, new("example.org.")).await.expect(201);
    with(json!({ "org": "ada" })).await.post(ZONES, new("example.net.")).await.expect(201);

    let names = async |tool: &PdnsClient| -> Vec<(String, String)> {
        let listed = tool.get(ZONES).await.expect(200).clone();
        let text = |zone: &Value, name: &str| zone[name].as_str().unwrap().to_owned();
        listed.as_array().unwrap().iter().map(|zone| (text(zone, "account"), text(zone, "name"))).collect()
    };
    let (acme, own) = (("acme".into(), "example.org.".into()), ("ada".into(), "example.net.".into()));
    assert_eq!(names(&tool).await, [acme.clone(), own]);
    assert_eq!(names(&of_acme).await, [acme]);
    // A zone outside of the restriction is not found, but its name is taken.
    of_acme.get(&format!("{ZONES}/example.net.")).await.expect(404);
    assert_eq!(of_acme.get(&format!("{ZONES}?zone=example.net.")).await.expect(200), &json!([]));
    super::assert_error(&of_acme.post(ZONES, new("www.example.net.")).await, 409, "another organization");
}

#[tokio::test(flavor = "multi_thread")]
async fn list_returns_all_zones() {
    let (app, ada, tool) = setup().await;
    app.db_execute("UPDATE orgs.orgs SET plan = 'pro'").await.unwrap();
    for number in 0..201 {
        ada.post("/v1/orgs/ada/dns/zones", json!({ "name": format!("z{number}.example") })).await.expect(200);
    }
    let listed = tool.get(ZONES).await.expect(200).clone();
    let mut names: Vec<&str> = listed.as_array().unwrap().iter().map(|zone| zone["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 201);
    drop(app);
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_zone_is_created_once_in_one_transaction() {
    let (app, _, tool) = setup().await;
    let new = json!({ "name": "example.org.", "dnssec": true });
    let attempts = (0..4).map(|_| tool.post(ZONES, new.clone()));
    let mut statuses: Vec<u16> = join_all(attempts).await.iter().map(|response| response.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409, 409, 409]);
    let created = "SELECT event, data FROM store.audit WHERE event LIKE 'dns.%'";
    let data = json!({ "zone": "example.org", "dnssec": true });
    assert_eq!(app.db_rows(created).await, [json!({ "event": "dns.zone.create", "data": data })]);
    assert_eq!(tool.get(ZONE).await.expect(200)["dnssec"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_zone_does_not_block_other_organizations() {
    let (app, _, tool) = setup_with(use_short_waits).await;
    let bob = app.sign_in("bob").await;
    tool.post(ZONES, json!({ "name": "example.org." })).await.expect(201);
    let holder = app.hold("SELECT id FROM dns.zones WHERE name = 'example.org' FOR UPDATE").await;
    let rrsets = rrsets(&[rrset("www.example.org.", "A", 60, &["192.0.2.1"])]);
    let change = async || tool.patch(ZONE, rrsets.clone()).await;
    while_changes_wait(&change, async {
        let free = async || bob.post("/v1/orgs/bob/projects", json!({ "name": "site" })).await;
        // The changes of a zone take turns.
        app.send_during_changes(1, free).await.expect(201);
    })
    .await;
    holder.commit("").await;
    change().await.expect(204);
}
