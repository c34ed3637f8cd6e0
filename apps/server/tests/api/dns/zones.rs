//! Zones: creation, listing, deletion, serials and the catalog.

use serde_json::{Value, json};

use super::{ZONE, create, put, serial, setup};
use crate::support::{App, eventually};

const ZONES: &str = "/v1/orgs/ada/dns/zones";

#[tokio::test(flavor = "multi_thread")]
async fn new_zone_has_soa_and_ns_records() {
    let (app, ada) = setup().await;
    let zone = ada.get(ZONE).await;
    let (tag, zone) = (zone.header("etag").to_owned(), zone.expect(200));
    assert_eq!(tag, format!("\"{}\"", zone["serial"]));
    assert!(zone["id"].as_str().unwrap().starts_with("zon_"));
    assert_eq!(zone["nameservers"], json!(["ns1.svc.example", "ns2.svc.example"]));
    assert_eq!((&zone["name"], &zone["rrsetCount"]), (&json!("example.org"), &json!(2)));
    assert_eq!(zone["dnssec"], json!({ "state": "off", "ds": [] }));
    let soa = format!("ns1.svc.example. hostmaster.example.org. {} 3600 600 1209600 300", zone["serial"]);
    assert_eq!(
        zone["rrsets"],
        json!([
            { "name": "example.org", "type": "SOA", "ttl": 3600, "records": [soa], "managed_by": "system" },
            { "name": "example.org", "type": "NS", "ttl": 3600,
              "records": ["ns1.svc.example.", "ns2.svc.example."], "managed_by": "system" },
        ])
    );
    // Creating it again, in another spelling, returns the same zone.
    assert_eq!(create(&ada, "ada", "EXAMPLE.org.").await, *zone);
    ada.delete(ZONE).await.expect(204);
    ada.delete(ZONE).await.expect_error(404, "not_found");
    ada.get(ZONE).await.expect_error(404, "not_found");
    assert_eq!(app.db_audit("ada").await, ["dns.zone.create", "dns.zone.delete"]);
    // The zone and its catalog entries no longer exist.
    let left =
        "SELECT count(*) FROM dns.rrsets r JOIN dns.zones z ON z.id = r.zone_id WHERE r.name NOT IN ('@', 'version')";
    let left = app.db_rows(left).await;
    assert_eq!(left, [json!({ "count": 0 })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn list_is_paginated() {
    let (_app, ada) = setup().await;
    for name in ["b.example", "a.example", "münchen.example"] {
        create(&ada, "ada", name).await;
    }
    let mut names = Vec::new();
    let mut path = format!("{ZONES}?limit=3");
    loop {
        let page = ada.get(&path).await.expect(200).clone();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 3 && items.iter().all(|zone| zone.get("rrsets").is_none()));
        names.extend(items.iter().map(|zone| zone["name"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("{ZONES}?limit=3&cursor={cursor}");
    }
    assert_eq!(names, ["a.example", "b.example", "example.org", "xn--mnchen-3ya.example"]);
    ada.get(&format!("{ZONES}?cursor=x")).await.expect_error(400, "bad_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_zone_names_are_rejected() {
    let (_app, ada) = setup().await;
    for name in
        ["org", "co.uk", "github.io", "", "a..example", "*.example", "192.0.2.1", "ns1.svc.example", "localhost"]
    {
        let refused = ada.post(ZONES, json!({ "name": name })).await;
        assert_eq!(refused.expect_error(400, "bad_request")["details"]["fields"][0]["path"], "name", "{name}");
    }
    let both = ada.post(ZONES, json!({ "name": "co.uk", "x": 1 })).await;
    let fields = both.expect_error(400, "bad_request")["details"]["fields"].as_array().unwrap();
    assert_eq!(fields.iter().map(|field| &field["path"]).collect::<Vec<_>>(), ["name", "x"]);
    ada.post(ZONES, json!({ "name": "a.example", "x": 1 })).await.expect_error(400, "bad_request");
    ada.get(&format!("{ZONES}/co.uk")).await.expect_error(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn zones_above_and_below_a_zone_of_another_organization_are_taken() {
    let (app, ada) = setup().await;
    let bob = app.sign_in("bob").await;
    for name in ["example.org", "a.example.org", "x.y.example.org"] {
        bob.post("/v1/orgs/bob/dns/zones", json!({ "name": name })).await.expect_error(409, "zone_taken");
    }
    create(&ada, "ada", "sub.other.example").await;
    bob.post("/v1/orgs/bob/dns/zones", json!({ "name": "other.example" })).await.expect_error(409, "zone_taken");
    create(&bob, "bob", "another.example").await;
    create(&bob, "bob", "xexample.org").await;
    create(&bob, "bob", "sub-other.example").await;
    // Zones of one organization may enclose each other.
    create(&ada, "ada", "a.example.org").await;
    bob.get("/v1/orgs/bob/dns/zones/example.org").await.expect_error(404, "not_found");
    bob.get(ZONE).await.expect_error(403, "forbidden");
    ada.delete(ZONE).await.expect(204);
    bob.post("/v1/orgs/bob/dns/zones", json!({ "name": "example.org" })).await.expect_error(409, "zone_taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_within_a_zone_is_delegated_and_hides_no_records() {
    let (_app, ada) = setup().await;
    put(&ada, "api.dev/A", &["192.0.2.1"]).await;
    let refused = ada.post(ZONES, json!({ "name": "dev.example.org" })).await;
    let details = json!({ "zone": "example.org", "rrsets": ["api.dev.example.org A"] });
    assert_eq!(refused.expect_error(409, "zone_taken")["details"], details);
    ada.delete(&format!("{ZONE}/rrsets/api.dev/A")).await.expect(204);
    let before = serial(&ada).await;
    create(&ada, "ada", "dev.example.org").await;
    let above = ada.get(ZONE).await.expect(200).clone();
    assert!(above["serial"].as_u64().unwrap() > before);
    let delegation = json!({ "name": "dev.example.org", "type": "NS", "ttl": 3600,
                             "records": ["ns1.svc.example.", "ns2.svc.example."], "managed_by": "system" });
    assert_eq!((&above["rrsets"][2], &above["rrsetCount"]), (&delegation, &json!(3)));
    ada.delete(&format!("{ZONE}/rrsets/dev/NS")).await.expect_error(409, "managed_rrset");
    ada.delete(&format!("{ZONES}/dev.example.org")).await.expect(204);
    assert_eq!(ada.get(ZONE).await.expect(200)["rrsetCount"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn serial_increases_once_per_change() {
    let (app, ada) = setup().await;
    app.clock.stop();
    put(&ada, "www/A", &["192.0.2.251"]).await;
    let mut last = serial(&ada).await;
    for _ in 0..3 {
        put(&ada, "www/A", &[&format!("192.0.2.{}", last % 250)]).await;
        let next = serial(&ada).await;
        assert_eq!(next, last + 1);
        put(&ada, "www/A", &[&format!("192.0.2.{}", last % 250)]).await;
        assert_eq!(serial(&ada).await, next);
        last = next;
    }
    app.clock.advance(1000);
    put(&ada, "www/A", &["198.51.100.1"]).await;
    let now = u64::try_from(kernel::Clock::now(&app.clock).unix_seconds()).unwrap();
    assert_eq!(serial(&ada).await, now + 1);
    // The stored rrset count is correct.
    let counts =
        "SELECT z.rrset_count = (SELECT count(*) FROM dns.rrsets r WHERE r.zone_id = z.id) AS right FROM dns.zones z";
    assert!(app.db_rows(counts).await.iter().all(|row| row["right"] == json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn dns_is_unavailable_without_nameservers_or_the_link() {
    let off = App::with(|config| config.dns = None).await;
    let no_link = App::with(|config| config.core = server::config::CoreLink::Off).await;
    for (app, code) in [(off, "dns_not_configured"), (no_link, "no_core")] {
        let ada = app.sign_in("ada").await;
        let body = json!({ "name": "example.org" });
        ada.post(ZONES, body).await.expect_error(503, code);
        for path in [ZONES.to_owned(), ZONE.to_owned(), format!("{ZONE}/zonefile"), format!("{ZONE}/dnssec")] {
            ada.get(&path).await.expect_error(503, code);
        }
        ada.delete(ZONE).await.expect_error(503, code);
        ada.put(&format!("{ZONE}/rrsets/www/A"), json!({ "records": ["192.0.2.1"] })).await.expect_error(503, code);
        ada.delete(&format!("{ZONE}/rrsets/www/A")).await.expect_error(503, code);
        ada.patch(&format!("{ZONE}/rrsets"), json!({ "rrsets": [] })).await.expect_error(503, code);
        ada.post(&format!("{ZONE}/dnssec"), json!({ "enabled": true })).await.expect_error(503, code);
        ada.put(&format!("{ZONE}/dnssec/ds"), json!({ "ds": [] })).await.expect_error(503, code);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn catalog_lists_each_zone_with_its_group() {
    let (app, ada) = setup().await;
    let entries = "SELECT kind, encode(rdata, 'hex') AS rdata FROM dns.rrsets r JOIN dns.zones z ON z.id = r.zone_id \
                   WHERE z.org_id IS NULL AND r.name LIKE '%zones' ORDER BY kind";
    let listed = app.db_rows(entries).await;
    let rdata = |rows: &[Value], at: usize| rows[at]["rdata"].as_str().unwrap().to_owned();
    let hex = |text: &str| kernel::hex(text.as_bytes());
    assert_eq!(listed.len(), 2);
    assert_eq!(rdata(&listed, 0), format!("000d07{}03{}00", hex("example"), hex("org")));
    assert_eq!(rdata(&listed, 1), format!("000605{}", hex("plain")));
    let raised = "SELECT serial FROM dns.zones WHERE org_id IS NULL";
    let before = app.db_rows(raised).await;
    ada.post(&format!("{ZONE}/dnssec"), json!({ "enabled": true })).await.expect(200);
    assert_eq!(rdata(&app.db_rows(entries).await, 1), format!("000706{}", hex("signed")));
    assert!(app.db_rows(raised).await[0]["serial"].as_u64() > before[0]["serial"].as_u64());
}

#[tokio::test(flavor = "multi_thread")]
async fn zones_are_updated_when_the_configured_nameservers_change() {
    let (app, ada) = setup().await;
    let before = serial(&ada).await;
    let other = app
        .another_with(|config| {
            let nameservers = ["a.ns.example".to_owned(), "b.ns.example".to_owned()];
            config.dns = Some(dns::Hosting::new(&nameservers, "fallback.localhost").unwrap());
        })
        .await;
    let ada = other.connect(&ada);
    let zone = eventually("the zone has the new nameservers", async || {
        let zone = ada.get(ZONE).await.expect(200).clone();
        (zone["rrsets"][1]["records"] == json!(["a.ns.example.", "b.ns.example."])).then_some(zone)
    })
    .await;
    assert!(zone["rrsets"][0]["records"][0].as_str().unwrap().starts_with("a.ns.example. "));
    assert!(zone["serial"].as_u64().unwrap() > before);
    assert_eq!(app.db_audit("ada").await.last().unwrap(), "dns.zone.nameservers");
    // The journal is empty: the SOA has changed too, so an IXFR from the journal would be wrong.
    assert!(
        app.db_rows("SELECT 1 FROM dns.changes c JOIN dns.zones z ON z.id = c.zone_id WHERE z.org_id IS NOT NULL")
            .await
            .is_empty()
    );
}
