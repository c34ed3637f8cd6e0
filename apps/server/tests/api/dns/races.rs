//! What must hold when many change a zone at once.

use futures_util::future::join_all;
use serde_json::json;

use super::{ZONE, create, serial, world};

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_stays_alone_however_many_write_at_its_name() {
    let (app, ada) = world().await;
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
        assert!(statuses.iter().all(|status| [200, 409].contains(status)) && statuses.contains(&200), "{statuses:?}");
    }
    let beside =
        "SELECT zone_id, name FROM dns.rrsets GROUP BY zone_id, name HAVING count(*) > 1 AND bool_or(kind = 'CNAME')";
    assert!(app.db_rows(beside).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_writers_raises_the_serial_once() {
    let (app, ada) = world().await;
    let before = serial(&ada).await;
    let writes = (0..30).map(|n| {
        let ada = ada.clone();
        async move { ada.put(&format!("{ZONE}/rrsets/n{n}/A"), json!({ "records": ["192.0.2.1"] })).await.status }
    });
    let statuses = join_all(writes).await;
    let done = statuses.iter().filter(|status| **status == 200).count() as u64;
    assert!(done > 0 && statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    assert_eq!(serial(&ada).await, before + done);
    // The journal leads from each serial to the next.
    let broken = "SELECT 1 FROM dns.changes c JOIN dns.zones z ON z.id = c.zone_id AND z.org_id IS NOT NULL \
                  LEFT JOIN dns.changes n ON n.zone_id = c.zone_id AND n.from_serial = c.to_serial \
                  WHERE n.zone_id IS NULL AND c.to_serial <> z.serial";
    assert!(app.db_rows(broken).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_organizations_that_want_overlapping_zones_one_gets_them() {
    let (app, ada) = world().await;
    let bob = app.sign_in("bob").await;
    for round in 0..10 {
        let names = [format!("r{round}.example"), format!("a.r{round}.example"), format!("a.b.r{round}.example")];
        let wishes = names.iter().flat_map(|name| {
            [(&ada, "ada"), (&bob, "bob")].map(|(caller, org)| async move {
                let answer = caller.post(&format!("/v1/orgs/{org}/dns/zones"), json!({ "name": name })).await;
                assert!([200, 409, 503].contains(&answer.status), "{}", answer.body);
            })
        });
        join_all(wishes).await;
    }
    let overlaps = "SELECT a.name FROM dns.zones a JOIN dns.zones b ON a.org_id <> b.org_id \
                    AND (a.name = b.name OR a.name LIKE '%.' || b.name)";
    assert!(app.db_rows(overlaps).await.is_empty());
    create(&ada, "ada", "last.example").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_name_of_twenty_is_created_once() {
    let (app, ada) = world().await;
    let wishes = (0..20).map(|_| ada.post("/v1/orgs/ada/dns/zones", json!({ "name": "once.example" })));
    let answers = join_all(wishes).await;
    assert!(answers.iter().all(|answer| [200, 503].contains(&answer.status)));
    let zones = app.db_rows("SELECT count(*) FROM dns.zones WHERE name = 'once.example'").await;
    assert_eq!(zones, [json!({ "count": 1 })]);
    let events = app.db_audit("ada").await;
    assert_eq!(events.iter().filter(|event| *event == "dns.zone.create").count(), 2);
}
