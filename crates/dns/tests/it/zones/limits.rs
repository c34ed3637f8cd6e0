//! The limits of a plan: zones per organization, and bytes per zone.

use std::sync::atomic::Ordering;

use dns::{
    DnsError, ImportResult, InitialContent, LinkResult, NewZone, Precondition, RrsetContent, RrsetPatch, RrsetsPatch,
};
use futures_util::future::join_all;
use kernel::{Limits, Plan};
use serde_json::json;

use super::kit::{Kit, ZONE, actor};

/// Rows whose maintained sizes differ from the actual sizes.
const WRONG_SIZES: &str = "\
    SELECT z.name FROM dns.zones z WHERE \
        (rrset_count, bytes) <> (SELECT count(*), coalesce(sum(octet_length(name) + octet_length(rdata)), 0) \
            FROM dns.rrsets r WHERE r.zone_id = z.id) \
        OR journal_bytes <> (SELECT coalesce(sum(coalesce(octet_length(old_rdata), 0) \
            + coalesce(octet_length(new_rdata), 0)), 0) FROM dns.changes c WHERE c.zone_id = z.id)";

/// Limits with this many bytes per zone.
fn limits(free: u64, pro: u64) -> Limits {
    let mut limits = Limits::default();
    (limits.free.zone_bytes, limits.pro.zone_bytes) = (free, pro);
    limits
}

/// Returns a TXT record whose data in the column format has this many bytes. It consists of strings of up to 255 bytes,
/// each after its length.
fn text(bytes: usize) -> String {
    let (mut left, mut strings) = (bytes - 2, Vec::new());
    while left > 0 {
        let length = (left - 1).min(255);
        strings.push(format!("\"{}\"", "x".repeat(length)));
        left -= length + 1;
    }
    strings.join(" ")
}

async fn put_text(kit: &Kit, name: &str, bytes: usize) -> Result<(), DnsError> {
    let content = RrsetContent { ttl: None, records: vec![text(bytes)] };
    kit.dns.rrset_put(&actor(), (kit.org, ZONE), (name, "TXT"), content, &Precondition::Any).await.map(drop)
}

fn patch(sets: &[(&str, usize)], dry_run: bool) -> RrsetsPatch {
    let rrset = |(name, bytes): &(&str, usize)| RrsetPatch {
        name: (*name).to_owned(),
        kind: "TXT".to_owned(),
        ttl: None,
        records: if *bytes == 0 { Vec::new() } else { vec![text(*bytes)] },
    };
    RrsetsPatch { rrsets: sets.iter().map(rrset).collect(), dry_run }
}

async fn patch_texts(kit: &Kit, sets: &[(&str, usize)], dry_run: bool) -> Result<(), DnsError> {
    let target = (kit.org, ZONE);
    kit.dns.rrsets_patch(&actor(), target, patch(sets, dry_run), &Precondition::Any).await.map(drop)
}

async fn import(kit: &Kit, file: String, dry_run: bool) -> Result<ImportResult, DnsError> {
    kit.dns.zonefile_put(&actor(), (kit.org, ZONE), file, dry_run, &Precondition::Any).await
}

async fn bytes(kit: &Kit) -> u64 {
    assert!(kit.database.rows(WRONG_SIZES).await.is_empty());
    kit.dns.zone_entry(kit.org, ZONE).await.unwrap().bytes
}

#[track_caller]
fn assert_exceeds<T: std::fmt::Debug>(result: Result<T, DnsError>, (expected_limit, expected_plan): (u64, Plan)) {
    let error = result.unwrap_err();
    let DnsError::ZoneBytesLimit { limit, plan, bytes, .. } = error else { unreachable!("{error:?}") };
    assert_eq!((limit, plan), (expected_limit, expected_plan));
    assert!(bytes > limit);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_a_zone_follow_every_change() {
    let kit = Kit::start().await;
    let empty = bytes(&kit).await;
    // An empty zone contains the NS record at the apex.
    assert_eq!(empty, 1 + 2 + b"\x02ns\x03svc\x07example\0".len() as u64);
    put_text(&kit, "a", 100).await.unwrap();
    assert_eq!(bytes(&kit).await, empty + 101);
    put_text(&kit, "a", 50).await.unwrap();
    assert_eq!(bytes(&kit).await, empty + 51);
    patch_texts(&kit, &[("a", 0), ("bb", 300), ("c.d", 10)], false).await.unwrap();
    assert_eq!(bytes(&kit).await, empty + 302 + 13);
    import(&kit, format!("bb TXT {}\n*.e TXT {}\n", text(300), text(20)), false).await.unwrap();
    assert_eq!(bytes(&kit).await, empty + 302 + 23);
    let many: String = (0..1500).map(|n| format!("n{n} A 192.0.2.1\n")).collect();
    import(&kit, many, false).await.unwrap();
    let names: usize = (0..1500).map(|n| format!("n{n}").len()).sum();
    assert_eq!(bytes(&kit).await, empty + 1500 * 6 + names as u64);
    import(&kit, String::new(), false).await.unwrap();
    assert_eq!(bytes(&kit).await, empty);
    kit.dns.zone_delete(&actor(), kit.org, ZONE, &Precondition::Any).await.unwrap();
    assert!(kit.database.rows(WRONG_SIZES).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn change_that_exceeds_the_bytes_of_the_plan_is_rejected() {
    let kit = Kit::with(limits(1000, 2000)).await;
    let free = usize::try_from(1000 - bytes(&kit).await).unwrap();
    let serial = kit.served().await.serial;
    let file = |bytes| format!("a TXT {}\n", text(bytes));
    // The name has one byte.
    for dry_run in [true, false] {
        assert_exceeds(patch_texts(&kit, &[("a", free)], dry_run).await, (1000, Plan::Free));
        assert_exceeds(import(&kit, file(free), dry_run).await, (1000, Plan::Free));
    }
    assert_exceeds(put_text(&kit, "a", free).await, (1000, Plan::Free));
    assert_eq!(kit.served().await.serial, serial);
    let new = NewZone { name: "other.example".to_owned() };
    let large = patch(&[("a", free), ("b", 100)], false).rrsets;
    let content = InitialContent { rrsets: &large, dnssec: false };
    assert_exceeds(kit.dns.zone_create_with(&actor(), kit.org, new, content).await, (1000, Plan::Free));
    let zones = "SELECT count(*) FROM dns.zones WHERE name = 'other.example'";
    assert_eq!(kit.database.number(zones).await, 0);

    import(&kit, file(free - 1), true).await.unwrap();
    put_text(&kit, "a", free - 1).await.unwrap();
    assert_eq!(bytes(&kit).await, 1000);
    // The platform's records may not exceed the limit, except those that every zone has.
    let link = kit
        .store
        .transaction_unaudited(async |tx: &mut store::Connection| {
            kit.dns.link(tx, kit.org, "www.example.org").await.map_err(store::Error::inconsistent)
        })
        .await;
    assert_eq!(link.unwrap(), LinkResult::Full { zone: ZONE.to_owned() });
    // The larger plan allows more.
    kit.organizations.are_pro.store(true, Ordering::SeqCst);
    patch_texts(&kit, &[("b", 900)], false).await.unwrap();
    assert_exceeds(put_text(&kit, "c", 200).await, (2000, Plan::Pro));
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_above_the_limit_can_shrink_but_not_grow() {
    let kit = Kit::with(limits(1000, 10_000)).await;
    kit.organizations.are_pro.store(true, Ordering::SeqCst);
    put_text(&kit, "a", 5000).await.unwrap();
    kit.organizations.are_pro.store(false, Ordering::SeqCst);
    let before = bytes(&kit).await;
    assert_exceeds(put_text(&kit, "b", 10).await, (1000, Plan::Free));
    assert_exceeds(put_text(&kit, "a", 5001).await, (1000, Plan::Free));
    put_text(&kit, "a", 4000).await.unwrap();
    patch_texts(&kit, &[("a", 3000), ("b", 900)], false).await.unwrap();
    assert!(bytes(&kit).await < before);
    kit.dns.rrset_delete(&actor(), (kit.org, ZONE), ("a", "TXT"), &Precondition::Any).await.unwrap();
    put_text(&kit, "c", 10).await.unwrap();
}

/// Otherwise a request with thousands of equal records would occupy a thread for long.
#[tokio::test(flavor = "multi_thread")]
async fn records_of_an_rrset_are_counted_before_they_are_parsed() {
    let kit = Kit::start().await;
    let (target, records) = ((kit.org, ZONE), vec!["invalid".to_owned(); 101]);
    let content = RrsetContent { ttl: None, records: records.clone() };
    let refused = kit.dns.rrset_put(&actor(), target, ("a", "A"), content, &Precondition::Any).await.unwrap_err();
    assert!(refused.to_string().contains("has 101 records; the limit is 100"), "{refused}");
    let rrset = RrsetPatch { name: "a".to_owned(), kind: "A".to_owned(), ttl: None, records };
    let patch = RrsetsPatch { rrsets: vec![rrset], dry_run: false };
    let refused = kit.dns.rrsets_patch(&actor(), target, patch, &Precondition::Any).await.unwrap_err();
    assert!(refused.to_string().contains("has 101 records; the limit is 100"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creates_respect_the_zone_limit() {
    let mut limits = Limits::default();
    (limits.free.zones, limits.pro.zones) = (4, 5);
    let kit = Kit::with(limits).await;
    let create = |name: String| async { kit.dns.zone_create(&actor(), kit.org, NewZone { name }).await.map(drop) };
    let results = join_all((0..8).map(|n| create(format!("z{n}.example")))).await;
    let rejected: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    // The fixture has one zone.
    assert_eq!(rejected.len(), 8 - 3);
    for error in rejected {
        assert!(matches!(error, DnsError::ZoneLimit { limit: 4, count: 4, plan: Plan::Free }), "{error:?}");
    }
    let rows = kit.database.rows("SELECT zones FROM dns.zone_counts").await;
    assert_eq!(rows, [json!({ "zones": 4 })]);
    // At the limit, an existing zone is still returned, and the deletion of a zone makes room for another one.
    create(ZONE.to_owned()).await.unwrap();
    kit.dns.zone_delete(&actor(), kit.org, ZONE, &Precondition::Any).await.unwrap();
    create("another.example".to_owned()).await.unwrap();
    create("more.example".to_owned()).await.unwrap_err();
    kit.organizations.are_pro.store(true, Ordering::SeqCst);
    create("more.example".to_owned()).await.unwrap();
}
