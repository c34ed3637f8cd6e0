use dns::{JournalEntry, Precondition, ServedRepository as _};
use uuid::Uuid;

use super::kit::{Kit, ZONE, actor};

async fn changes(kit: &Kit, from: u32) -> Option<Vec<JournalEntry>> {
    let zone = kit.served().await;
    kit.store.connection().await.unwrap().served_changes(zone.id, from, 2000).await.unwrap()
}

/// Returns a zone file with one address at each name.
fn file(names: std::ops::Range<u32>, address: &str) -> String {
    names.map(|n| format!("n{n} 300 A {address}\n")).collect()
}

async fn import(kit: &Kit, text: String) -> u32 {
    kit.dns.zonefile_put(&actor(), (kit.org, ZONE), text, false, &Precondition::Any).await.unwrap();
    kit.served().await.serial
}

#[tokio::test(flavor = "multi_thread")]
async fn journal_lists_all_changes_since_a_serial() {
    let kit = Kit::start().await;
    let initial = kit.served().await.serial;
    let first = kit.put(("www", "A"), &["192.0.2.1"]).await;
    let second = kit.put(("www", "A"), &["192.0.2.2"]).await;
    let third = import(&kit, file(0..2, "192.0.2.3")).await;
    let listed = changes(&kit, initial).await.unwrap();
    let steps: Vec<(u32, u32)> = listed.iter().map(|it| (it.from_serial, it.to_serial)).collect();
    assert_eq!(steps[..2], [(initial, first), (first, second)]);
    assert_eq!(steps[2..], [(second, third); 3]);
    assert!(listed[0].old.is_none() && listed[1].old == listed[0].new);
    assert_eq!(listed.iter().filter(|it| it.new.is_none()).count(), 1, "the import deletes www");
    assert_eq!(changes(&kit, second).await.unwrap().len(), 3);
    assert_eq!(changes(&kit, third).await, None, "no later change");
    assert_eq!(changes(&kit, initial - 2).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn journal_is_bounded_and_lists_only_complete_updates() {
    let kit = Kit::start().await;
    let initial = kit.served().await.serial;
    let first = import(&kit, file(0..600, "192.0.2.1")).await;
    assert_eq!(changes(&kit, initial).await.unwrap().len(), 600);
    let second = import(&kit, file(0..600, "192.0.2.2")).await;
    assert_eq!(changes(&kit, initial).await, None);
    assert_eq!(changes(&kit, first).await.unwrap().len(), 600);
    // An update larger than the journal clears it.
    let third = import(&kit, file(0..1001, "192.0.2.3")).await;
    assert_eq!((changes(&kit, first).await, changes(&kit, second).await), (None, None));
    let rows = "SELECT count(*) FROM dns.changes c JOIN dns.zones z ON z.id = c.zone_id WHERE z.org_id IS NOT NULL";
    assert_eq!(kit.database.number(rows).await, 0);
    kit.put(("n0", "A"), &["192.0.2.4"]).await;
    // The journal cannot prove that the update is complete.
    assert_eq!(changes(&kit, third).await, None);
    let next = kit.put(("n0", "A"), &["192.0.2.5"]).await;
    kit.put(("n0", "A"), &["192.0.2.6"]).await;
    assert_eq!(changes(&kit, next).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_changes_queue_one_notice() {
    let kit = Kit::start().await;
    for address in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
        kit.put(("www", "A"), &[address]).await;
    }
    let queued = "SELECT key, tenant_id FROM store.outbox WHERE topic = 'dns.notify' ORDER BY key";
    let notice = |key: &str, org: Uuid| serde_json::json!({ "key": key, "tenant_id": org.to_string() });
    // The organizations take turns.
    let expected = [notice("catalog", Uuid::nil()), notice(ZONE, kit.org.as_uuid())];
    assert_eq!(kit.database.rows(queued).await, expected);
}
