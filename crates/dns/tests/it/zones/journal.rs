use dns::{Change, Expected, ServedRepository as _};

use super::kit::{Kit, ZONE, actor};

async fn changes(kit: &Kit, from: u32) -> Option<Vec<Change>> {
    let zone = kit.served().await;
    kit.store.connection().await.unwrap().served_changes(zone.id, from, 2000).await.unwrap()
}

/// A zone file of so many names.
fn file(names: std::ops::Range<u32>, address: &str) -> String {
    names.map(|n| format!("n{n} 300 A {address}\n")).collect()
}

async fn import(kit: &Kit, text: String) -> u32 {
    kit.dns.zonefile_put(&actor(), (kit.org, ZONE), text, false, &Expected::Any).await.unwrap();
    kit.served().await.serial
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_tells_each_step_since_a_serial() {
    let kit = Kit::start().await;
    let born = kit.served().await.serial;
    let first = kit.put(("www", "A"), &["192.0.2.1"]).await;
    let second = kit.put(("www", "A"), &["192.0.2.2"]).await;
    let third = import(&kit, file(0..2, "192.0.2.3")).await;
    let told = changes(&kit, born).await.unwrap();
    let steps: Vec<(u32, u32)> = told.iter().map(|it| (it.from_serial, it.to_serial)).collect();
    assert_eq!(steps[..2], [(born, first), (first, second)]);
    assert_eq!(steps[2..], [(second, third); 3]);
    assert!(told[0].old.is_none() && told[1].old == told[0].new);
    assert_eq!(told.iter().filter(|it| it.new.is_none()).count(), 1, "www went with the import");
    assert_eq!(changes(&kit, second).await.unwrap().len(), 3);
    assert_eq!(changes(&kit, third).await, None, "nothing came after it");
    assert_eq!(changes(&kit, born - 2).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_is_bounded_and_never_tells_a_part_of_a_step() {
    let kit = Kit::start().await;
    let born = kit.served().await.serial;
    let first = import(&kit, file(0..600, "192.0.2.1")).await;
    assert_eq!(changes(&kit, born).await.unwrap().len(), 600);
    let second = import(&kit, file(0..600, "192.0.2.2")).await;
    assert_eq!(changes(&kit, born).await, None);
    assert_eq!(changes(&kit, first).await.unwrap().len(), 600);
    // More than the journal keeps: it begins anew.
    let third = import(&kit, file(0..1001, "192.0.2.3")).await;
    assert_eq!((changes(&kit, first).await, changes(&kit, second).await), (None, None));
    let rows = "SELECT count(*) FROM dns.changes c JOIN dns.zones z ON z.id = c.zone_id WHERE z.org_id IS NOT NULL";
    assert_eq!(kit.database.number(rows).await, 0);
    kit.put(("n0", "A"), &["192.0.2.4"]).await;
    // Nobody can tell any more whether that was all of the step.
    assert_eq!(changes(&kit, third).await, None);
    let next = kit.put(("n0", "A"), &["192.0.2.5"]).await;
    kit.put(("n0", "A"), &["192.0.2.6"]).await;
    assert_eq!(changes(&kit, next).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_changes_one_notice_waits() {
    let kit = Kit::start().await;
    for address in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
        kit.put(("www", "A"), &[address]).await;
    }
    let keys = kit.database.rows("SELECT key FROM store.outbox WHERE topic = 'dns.notify' ORDER BY key").await;
    assert_eq!(keys, [serde_json::json!({ "key": "catalog" }), serde_json::json!({ "key": ZONE })]);
}
