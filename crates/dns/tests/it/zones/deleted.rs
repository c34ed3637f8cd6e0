//! Deleted zones, which are remembered while their delegations may name the platform's nameservers.

use diesel_async::RunQueryDsl as _;
use dns::{DnsError, LookupFailure, Precondition};
use serde_json::json;
use store::Connection;

use super::kit::{Kit, ZONE, actor};

const DAY: i64 = 24 * 3600;

/// Inserts more rrsets than a batch of the purge deletes.
const FILL: &str = "\
    INSERT INTO dns.rrsets (zone_id, name, sort_key, kind, ttl, rdata) \
    SELECT z.id, 'h' || n, convert_to('h' || n, 'UTF8') || '\\x00', 'A', 300, '\\x0004c0000201' \
    FROM dns.zones z, generate_series(1, 12000) n WHERE z.name = 'example.org'";

impl Kit {
    async fn delete(&self, name: &str) {
        self.dns.zone_delete(&actor(), self.org, name, &Precondition::Any).await.unwrap();
    }

    async fn create_and_delete(&self, name: &str) {
        self.create(self.org, name).await.unwrap();
        self.delete(name).await;
    }

    async fn remembered(&self) -> Vec<String> {
        let rows = self.db_rows("SELECT name FROM dns.deleted_zones ORDER BY name").await;
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_zones_are_purged_after_30_days_if_they_are_not_delegated_here() {
    let kit = Kit::start().await;
    for name in ["gone.example", "elsewhere.example", "here.example", "broken.example", "unknown.example"] {
        kit.create_and_delete(name).await;
    }
    kit.public.set("elsewhere.example", Ok(vec!["ns.other.example".to_owned()]));
    kit.public.set("here.example", Ok(vec!["ns.other.example".to_owned(), "ns.svc.example".to_owned()]));
    kit.public.set("broken.example", Err(LookupFailure::ServerFailure));
    kit.public.set("unknown.example", Err(LookupFailure::Unavailable("no response".to_owned())));
    kit.advance(30 * DAY - 1);
    assert_eq!(kit.dns.purge_deleted_zones().await.unwrap(), 0);
    kit.advance(1);
    assert_eq!(kit.dns.purge_deleted_zones().await.unwrap(), 2);
    assert_eq!(kit.remembered().await, ["broken.example", "here.example", "unknown.example"]);
    // The next check is a day later.
    for name in ["broken.example", "here.example", "unknown.example"] {
        kit.public.set(name, Ok(Vec::new()));
    }
    assert_eq!(kit.dns.purge_deleted_zones().await.unwrap(), 0);
    kit.advance(DAY);
    assert_eq!(kit.dns.purge_deleted_zones().await.unwrap(), 3);
    assert_eq!(kit.remembered().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_that_is_created_again_is_no_longer_remembered() {
    let kit = Kit::start().await;
    kit.delete(ZONE).await;
    assert_eq!(kit.remembered().await, [ZONE]);
    kit.create(kit.org, ZONE).await.unwrap();
    assert_eq!(kit.remembered().await, [""; 0]);
    // A zone that is delegated elsewhere is removed when another organization creates an overlapping zone.
    kit.delete(ZONE).await;
    kit.create(kit.other_org().await, "sub.example.org").await.unwrap();
    assert_eq!(kit.remembered().await, [""; 0]);
}

/// Nameservers that still have the deleted zone accept only a newer serial.
#[tokio::test(flavor = "multi_thread")]
async fn zone_that_is_created_again_continues_the_serial() {
    let kit = Kit::start().await;
    // The serial is ahead of the clock, as after many changes in a short time.
    kit.db_execute("UPDATE dns.zones SET serial = serial + 1000 WHERE org_id IS NOT NULL").await;
    let before = kit.served().await.serial;
    kit.delete(ZONE).await;
    kit.create(kit.org, ZONE).await.unwrap();
    assert!(dns::serial::is_newer(kit.served().await.serial, before));
}

#[tokio::test(flavor = "multi_thread")]
async fn organization_has_at_most_1000_remembered_zones() {
    let kit = Kit::start().await;
    let insert = format!(
        "INSERT INTO dns.deleted_zones (id, name, path, org_id, serial, deleted_at, next_check_at) \
         SELECT md5(n::text)::uuid, 'd' || n || '.example', 'example.d' || n || '.', '{}', 1, \
                timestamptz 'epoch' + n * interval '1 s', 'infinity' FROM generate_series(1, 1000) n",
        kit.org.as_uuid()
    );
    kit.db_execute(&insert).await;
    kit.delete(ZONE).await;
    assert_eq!(kit.db_number("SELECT count(*) FROM dns.deleted_zones").await, 1000);
    let oldest = "SELECT name FROM dns.deleted_zones ORDER BY deleted_at LIMIT 1";
    assert_eq!(kit.db_rows(oldest).await, [json!({ "name": "d2.example" })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_deleted_zones_below_a_name_are_checked_in_parts() {
    let kit = Kit::start().await;
    let other = kit.other_org().await;
    let insert = |count: u32| {
        format!(
            "INSERT INTO dns.deleted_zones (id, name, path, org_id, serial, deleted_at, next_check_at) \
             SELECT md5(n::text)::uuid, 'd' || n || '.large.example', 'example.large.d' || n || '.', '{}', 1, now(), now() \
             FROM generate_series(1, {count}) n",
            kit.org.as_uuid()
        )
    };
    kit.db_execute(&insert(200)).await;
    kit.create(other, "large.example").await.unwrap();
    assert_eq!(kit.remembered().await, [""; 0]);
    // A request checks at most 200 deleted zones. If there are more, the request is refused. A retry then checks only
    // the zones that were not checked.
    kit.db_execute(&insert(220).replace("large", "larger")).await;
    let refused = kit.create(other, "larger.example").await.unwrap_err();
    assert!(matches!(refused, DnsError::DelegationUnknown(_)), "{refused}");
    assert_eq!(kit.remembered().await.len(), 20);
    // Only the last zone of the list is still delegated here.
    kit.public.set(&kit.remembered().await[19], Ok(vec!["ns.svc.example".to_owned()]));
    let refused = kit.create(other, "larger.example").await.unwrap_err();
    assert!(matches!(refused, DnsError::ZoneDelegated { .. }), "{refused}");
}

/// A deletion and a takeover hold the lock of the catalog, which others wait for.
#[tokio::test(flavor = "multi_thread")]
async fn content_of_deleted_zones_is_purged_later() {
    let kit = Kit::start().await;
    kit.db_execute(FILL).await;
    kit.put(("www", "A"), &["192.0.2.1"]).await;
    kit.delete(ZONE).await;
    let left = "SELECT (SELECT count(*) FROM dns.rrsets) + (SELECT count(*) FROM dns.changes)";
    let of_zones = "SELECT (SELECT count(*) FROM dns.rrsets r JOIN dns.zones z ON z.id = r.zone_id) \
                    + (SELECT count(*) FROM dns.changes c JOIN dns.zones z ON z.id = c.zone_id)";
    assert!(kit.db_number(left).await > kit.db_number(of_zones).await + 12_000);
    // A new zone with the name has none of the rrsets.
    kit.create(kit.org, ZONE).await.unwrap();
    let zone = kit.served().await;
    assert_eq!(zone.rrset_count, 1);
    let content = kit.dns.zone(kit.org, ZONE).await.unwrap().collect().await.unwrap();
    assert_eq!(content.rrsets.len(), 2);
    let kept = kit.db_number(of_zones).await;
    kit.dns.purge_zone_contents().await.unwrap();
    assert_eq!(kit.db_number(left).await, kept);
    assert_eq!(kit.db_number(of_zones).await, kept);
    assert_eq!(kit.db_number("SELECT count(*) FROM dns.purges").await, 0);
    assert_eq!(kit.served().await, zone);
}

/// Another server can delete a batch after a purge has taken its snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_purges_of_a_zone_leave_no_content() {
    let kit = Kit::start().await;
    kit.db_execute(FILL).await;
    kit.delete(ZONE).await;
    let purge_batch = async |tx: &mut Connection| {
        let batch = "DELETE FROM dns.rrsets WHERE ctid = ANY (ARRAY( \
                     SELECT ctid FROM dns.rrsets WHERE zone_id = (SELECT zone_id FROM dns.purges) \
                     ORDER BY zone_id, sort_key, kind LIMIT 10000))";
        assert_eq!(diesel::sql_query(batch).execute(tx).await.map_err(store::Error::from)?, 10_000);
        Ok::<_, DnsError>(())
    };
    kit.commit_during(purge_batch, async {}, kit.dns.purge_zone_contents()).await.unwrap();
    let left = "SELECT count(*) FROM dns.rrsets WHERE zone_id NOT IN (SELECT id FROM dns.zones)";
    assert_eq!(kit.db_number(left).await, 0);
    assert_eq!(kit.db_number("SELECT count(*) FROM dns.purges").await, 0);
}
