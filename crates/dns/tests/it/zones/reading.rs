//! Reads of zones with several pages.

use diesel_async::{AsyncConnection as _, SimpleAsyncConnection as _};
use dns::{ContentRepository as _, DnsError, NewZone, PageLimit, Precondition, Rrset, StoredSet, ZoneReader};

use super::kit::{Kit, ZONE, actor};

/// Returns a zone file with an address at each name, in several pages, and names in subdomains of different depth.
fn file(names: std::ops::Range<u32>) -> String {
    names.map(|n| format!("h{n}.s{} A 192.0.2.1\nh{n}.s{} AAAA 2001:db8::1\n", n % 7, n % 7)).collect()
}

async fn import(kit: &Kit, text: String) {
    kit.dns.zonefile_put(&actor(), (kit.org, ZONE), text, false, &Precondition::Any).await.unwrap();
}

async fn open(kit: &Kit) -> ZoneReader {
    kit.dns.zone(kit.org, ZONE).await.unwrap()
}

async fn rest(reader: &mut ZoneReader) -> Vec<StoredSet> {
    let mut sets = Vec::new();
    while let Some(page) = reader.next_page().await.unwrap() {
        sets.extend(page);
    }
    sets
}

fn key(stored: &StoredSet) -> (Vec<u8>, &'static str) {
    (stored.set.owner.canonical_key(), stored.set.kind.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_is_read_in_canonical_order_and_in_limited_pages() {
    let kit = Kit::start().await;
    import(&kit, file(0..4000)).await;
    let mut reader = open(&kit).await;
    let mut sets = Vec::new();
    let mut pages = 0;
    while let Some(page) = reader.next_page().await.unwrap() {
        assert!(page.len() <= 2001);
        sets.extend(page);
        pages += 1;
    }
    assert_eq!((sets.len(), pages), (8000 + 2, 5));
    assert_eq!(sets[0].set.kind.as_str(), "SOA");
    assert!(sets[1..].is_sorted_by(|one, next| key(one) < key(next)));

    // A page is also limited in bytes.
    let large: String = (0..20).map(|n| format!("t{n} TXT {}\n", "\"0123456789\" ".repeat(2000))).collect();
    import(&kit, large).await;
    let mut reader = open(&kit).await;
    let mut sizes = Vec::new();
    while let Some(page) = reader.next_page().await.unwrap() {
        let data = page.iter().flat_map(|stored| &stored.set.records);
        sizes.push(data.map(|record| record.wire().len()).sum::<usize>());
    }
    assert!(sizes.len() >= 4 && sizes.iter().all(|size| *size < (128 + 48) * 1024), "{sizes:?}");
    assert_eq!(sizes.iter().sum::<usize>() / 22_000, 20);
}

/// Inserts 20,000 rrsets, for which Postgres has no statistics.
const FILL: &str = "\
    ALTER TABLE dns.rrsets SET (autovacuum_enabled = off); \
    INSERT INTO dns.rrsets (zone_id, name, sort_key, kind, ttl, rdata) \
    SELECT z.id, 'h' || n, convert_to('h' || n, 'UTF8') || '\\x00', 'TXT', 300, '\\x000178' \
    FROM dns.zones z, generate_series(1, 20000) n WHERE z.name = 'example.org'";

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_zone_without_statistics_are_read_in_index_order() {
    let kit = Kit::start().await;
    let zone = kit.served().await.id;
    kit.db_execute(FILL).await;
    kit.database.close_sessions().await;
    let fetched = "SELECT coalesce(sum(idx_tup_fetch), 0) FROM pg_stat_user_tables WHERE relname = 'rrsets'";
    let before = kit.database.number(fetched).await;
    // Postgres updates the statistics when the connection closes.
    let mut connection = store::Connection::establish(&kit.database.url()).await.unwrap();
    connection.batch_execute("BEGIN").await.unwrap();
    let (limit, mut after, mut read) = (PageLimit { rrsets: 500, bytes: 1 << 20 }, None, 0);
    loop {
        let page = connection.rrset_page((zone, 20_001), after.as_ref(), limit).await.unwrap();
        read += page.sets.len();
        let Some(next) = page.next else { break };
        after = Some(next);
    }
    drop(connection);
    assert_eq!(read, 20_001);
    kit.database.wait_for_end_of_sessions("").await;
    let fetched = kit.database.number(fetched).await - before;
    assert!((20_000..30_000).contains(&fetched), "{fetched} rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_during_a_read_are_not_visible() {
    let kit = Kit::start().await;
    import(&kit, file(0..3500)).await;
    kit.put(("h1.s6", "TXT"), &["before"]).await;
    let expected = rest(&mut open(&kit).await).await;
    let zone = kit.dns.zone_entry(kit.org, ZONE).await.unwrap();

    let mut reader = open(&kit).await;
    let mut sets = reader.next_page().await.unwrap().unwrap();
    // After the first page was read, change an rrset, add one, delete one, and change these rrsets again.
    kit.put(("h1.s6", "TXT"), &["after"]).await;
    kit.put(("h1.s6", "TXT"), &["later"]).await;
    kit.put(("new.s5", "A"), &["192.0.2.9"]).await;
    kit.put(("zzz", "A"), &["192.0.2.9"]).await;
    kit.put(("zzz", "A"), &["192.0.2.10"]).await;
    let deleted = ("h5.s5", "A");
    kit.dns.rrset_delete(&actor(), (kit.org, ZONE), deleted, &Precondition::Any).await.unwrap();
    sets.extend(reader.next_page().await.unwrap().unwrap());
    import(&kit, file(100..3300)).await;
    sets.extend(rest(&mut reader).await);
    assert_eq!(sets, expected);
    assert_eq!(*reader.zone(), zone);
    // A later read sees these changes.
    assert_eq!(rest(&mut open(&kit).await).await.len(), 6400 + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn read_fails_if_the_journal_does_not_cover_the_changes() {
    let kit = Kit::start().await;
    import(&kit, file(0..2000)).await;
    let mut reader = open(&kit).await;
    reader.next_page().await.unwrap();
    import(&kit, file(0..10)).await;
    let failed = reader.next_page().await;
    assert!(matches!(failed, Err(DnsError::Store(store::Error::Unavailable(_)))), "{failed:?}");
    import(&kit, file(0..2000)).await;
    let mut reader = open(&kit).await;
    reader.next_page().await.unwrap();
    kit.dns.zone_delete(&actor(), kit.org, ZONE, &Precondition::Any).await.unwrap();
    kit.dns.zone_create(&actor(), kit.org, NewZone { name: ZONE.to_owned() }).await.unwrap();
    assert!(reader.next_page().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_large_zones_are_limited_for_each_organization() {
    let kit = Kit::start().await;
    import(&kit, file(0..2000)).await;
    let mut readers = Vec::new();
    for _ in 0..16 {
        readers.push(open(&kit).await);
    }
    let refused = kit.dns.zone(kit.org, ZONE).await;
    assert!(matches!(refused, Err(DnsError::TooManyReads)), "{refused:?}");
    // Neither writes nor reads of small zones need a permit.
    kit.put(("www", "A"), &["192.0.2.1"]).await;
    kit.dns.zone_create(&actor(), kit.org, NewZone { name: "small.example".to_owned() }).await.unwrap();
    kit.dns.zone(kit.org, "small.example").await.unwrap();
    readers.pop();
    open(&kit).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn journal_is_limited_in_bytes() {
    let kit = Kit::start().await;
    let journal = "SELECT journal_bytes FROM dns.zones WHERE org_id IS NOT NULL";
    let entries = "SELECT count(*) FROM dns.changes c JOIN dns.zones z ON z.id = c.zone_id WHERE z.org_id IS NOT NULL";
    let text = |n: usize| "\"0123456789\" ".repeat(3000 + n);
    let mut sizes = Vec::new();
    for n in 0..40 {
        kit.put(("a", "TXT"), &[&text(n)]).await;
        let size = kit.database.number(journal).await;
        assert!((1..=1 << 20).contains(&size), "{size} bytes");
        sizes.push(kit.database.number(entries).await);
    }
    assert!(sizes.iter().max() > Some(&10) && sizes.last() < Some(&20), "{sizes:?}");
    // A single larger update clears the journal.
    let large: String = (0..40).map(|n| format!("t{n} TXT {}\n", text(n))).collect();
    import(&kit, large).await;
    assert_eq!((kit.database.number(journal).await, kit.database.number(entries).await), (0, 0));
    let zone: Vec<Rrset> = kit.dns.zone(kit.org, ZONE).await.unwrap().collect().await.unwrap().rrsets;
    assert_eq!(zone.len(), 40 + 2);
}
