//! Invariants of zones under concurrent changes.

use futures_util::future::join_all;
use serde_json::json;

use super::{ZONE, create, serial, setup, setup_with_resolver};

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writes_never_put_a_cname_next_to_other_records() {
    let (app, ada) = setup().await;
    for round in 0..10 {
        let rrset = |kind: &str| format!("{ZONE}/rrsets/r{round}/{kind}");
        let writes = (0..8).map(|n| {
            let (path, record) = match n % 4 {
                0 => (rrset("CNAME"), "elsewhere.example."),
                1 => (rrset("A"), "192.0.2.1"),
                2 => (rrset("TXT"), "x"),
                _ => (rrset("AAAA"), "2001:db8::1"),
            };
            let ada = ada.clone();
            async move { ada.put(&path, json!({ "records": [record] })).await.status }
        });
        let statuses = join_all(writes).await;
        let is_expected = statuses.iter().all(|status| [200, 409].contains(status));
        assert!(is_expected && statuses.contains(&200), "{statuses:?}");
    }
    let conflicts =
        "SELECT zone_id, name FROM dns.rrsets GROUP BY zone_id, name HAVING count(*) > 1 AND bool_or(kind = 'CNAME')";
    assert!(app.db_rows(conflicts).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_concurrent_write_increments_the_serial_once() {
    let (app, ada) = setup().await;
    let before = serial(&ada).await;
    let writes = (0..30).map(|n| {
        let ada = ada.clone();
        async move { ada.put(&format!("{ZONE}/rrsets/n{n}/A"), json!({ "records": ["192.0.2.1"] })).await.status }
    });
    let statuses = join_all(writes).await;
    assert_eq!(statuses, [200; 30]);
    assert_eq!(serial(&ada).await, before + 30);
    // The journal has no gaps between serials.
    let gaps = "SELECT 1 FROM dns.changes c JOIN dns.zones z ON z.id = c.zone_id AND z.org_id IS NOT NULL \
                  LEFT JOIN dns.changes n ON n.zone_id = c.zone_id AND n.from_serial = c.to_serial \
                  WHERE n.zone_id IS NULL AND c.to_serial <> z.serial";
    assert!(app.db_rows(gaps).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creates_of_overlapping_zones_succeed_for_one_organization() {
    let (app, _dns, ada, bob) = setup_with_resolver().await;
    app.db_execute("UPDATE orgs.orgs SET plan = 'pro'").await.unwrap();
    for round in 0..10 {
        let names = [format!("r{round}.example"), format!("a.r{round}.example"), format!("a.b.r{round}.example")];
        let creates = names.iter().flat_map(|name| {
            [(&ada, "ada"), (&bob, "bob")].map(|(caller, org)| async move {
                let response = caller.post(&format!("/v1/orgs/{org}/dns/zones"), json!({ "name": name })).await;
                assert!([200, 409, 503].contains(&response.status), "{}", response.body);
            })
        });
        join_all(creates).await;
    }
    let overlaps = "SELECT a.name FROM dns.zones a JOIN dns.zones b ON a.org_id <> b.org_id \
                    AND (a.name = b.name OR a.name LIKE '%.' || b.name)";
    assert!(app.db_rows(overlaps).await.is_empty());
    create(&ada, "ada", "last.example").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creates_of_a_zone_create_it_once() {
    let (app, ada) = setup().await;
    let creates = (0..20).map(|_| ada.post("/v1/orgs/ada/dns/zones", json!({ "name": "once.example" })));
    let responses = join_all(creates).await;
    assert!(responses.iter().all(|response| response.status == 200));
    let zones = app.db_rows("SELECT count(*) FROM dns.zones WHERE name = 'once.example'").await;
    assert_eq!(zones, [json!({ "count": 1 })]);
    let events = app.db_audit("ada").await;
    assert_eq!(events.iter().filter(|event| *event == "dns.zone.create").count(), 2);
}
