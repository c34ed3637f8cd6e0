//! Zones within zones of the same organization.

use std::time::Duration;

use dns::{
    Dns, DnsError, DnssecSwitch, Hosting, InitialContent, LinkResult, ManagedBy, NewZone, Ports, Precondition,
    RrsetContent, RrsetPatch,
};
use kernel::Limits;
use kernel::ownership::{VerifyRecord, ZoneProof, verification_token};
use serde_json::json;
use store::Connection;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::kit::{Kit, ZONE, actor};

const DEV: &str = "dev.example.org";

impl Kit {
    /// Returns the service with these nameservers and the addresses of linked apexes.
    fn dns_with(&self, nameserver: &str, addresses: &[&str]) -> Dns {
        let mut hosting = Hosting::new(&[nameserver.to_owned()], "fallback.svc.example").unwrap();
        hosting.fallback_addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
        self.dns_of(Some(hosting))
    }

    fn dns_of(&self, hosting: Option<Hosting>) -> Dns {
        let (organizations, resolver) = (self.organizations.clone(), self.public.clone());
        let (registrations, hostnames) = (self.registered.clone(), self.hostnames.clone());
        let ports = Ports { organizations, resolver, registrations, hostnames };
        Dns::new(self.store.clone(), hosting, Limits::default(), ports)
    }

    /// Returns the rrsets of a zone below its apex, as `name type record manager`.
    async fn below_apex(&self, zone: &str) -> Vec<String> {
        let detail = self.dns.zone(self.org, zone).await.unwrap().collect().await.unwrap();
        let below = detail.rrsets.iter().filter(|rrset| rrset.name != zone);
        let manager = |by: Option<ManagedBy>| by.map_or("user", |by| by.as_str());
        below.map(|it| format!("{} {} {} {}", it.name, it.kind, it.records[0], manager(it.managed_by))).collect()
    }

    async fn link_host(&self, dns: &Dns, host: &str) -> LinkResult {
        let link = async |tx: &mut Connection| dns.link(tx, self.org, host).await;
        self.store.transaction_unaudited(link).await.unwrap()
    }

    async fn unlink_host(&self, host: &str) {
        let unlink = async |tx: &mut Connection| self.dns.unlink(tx, self.org, &[host]).await;
        self.store.transaction_unaudited(unlink).await.unwrap();
    }

    async fn delete_zone(&self, name: &str) {
        self.dns.zone_delete(&actor(), self.org, name, &Precondition::Any).await.unwrap();
    }

    /// Runs `lock` in a transaction and then does the other work. When that work waits for a lock, awaits `during` and
    /// commits the transaction.
    pub(super) async fn commit_during<T>(
        &self,
        lock: impl AsyncFnOnce(&mut Connection) -> Result<(), DnsError>,
        during: impl Future<Output = ()>,
        other: impl Future<Output = T>,
    ) -> T {
        let locked = Notify::new();
        let hold = async |tx: &mut Connection| {
            lock(tx).await?;
            locked.notify_one();
            self.wait_for_blocked_session("%").await;
            during.await;
            Ok::<_, DnsError>(())
        };
        let other = async {
            locked.notified().await;
            other.await
        };
        let (committed, result) = tokio::join!(self.store.transaction_unaudited(hold), other);
        committed.unwrap();
        result
    }

    /// Creates a zone in a transaction that commits when the other work waits for one of its locks.
    async fn create_during<T>(&self, name: &str, other: impl Future<Output = T>) -> T {
        let proof = ZoneProof::default();
        let create = async |tx: &mut Connection| self.dns.zone_create_within(tx, self.org, name, &proof).await;
        self.commit_during(create, async {}, other).await
    }

    /// Does work that waits for a zone of the organization that another transaction has locked. Checks that this row of
    /// `dns.zones` is not locked during the wait.
    async fn wait_without<T>(&self, row: &str, zone: &str, work: impl Future<Output = T>) -> T {
        let zones = [(self.org, zone.to_owned())];
        let lock = async |tx: &mut Connection| self.dns.lock_all_enclosing_zones(tx, &zones).await.map(drop);
        let check = format!("SELECT FROM dns.zones WHERE {row} FOR UPDATE NOWAIT");
        self.commit_during(lock, self.db_execute(&check), work).await
    }

    /// Waits until a statement like this pattern waits for a lock.
    async fn wait_for_blocked_session(&self, statement: &str) {
        let blocked = format!(
            "SELECT count(*) FROM pg_stat_activity \
             WHERE wait_event_type = 'Lock' AND datname = current_database() AND query LIKE '{statement}'"
        );
        let wait = async {
            while self.db_number(&blocked).await == 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(60), wait).await.unwrap();
    }
}

fn delegation(name: &str) -> String {
    format!("{name} NS ns.svc.example. system")
}

#[tokio::test]
async fn zone_delegates_the_zones_that_are_directly_below_it() {
    let kit = Kit::start().await;
    kit.create(kit.org, "a.b.example.org").await.unwrap();
    kit.create(kit.org, "x.y.a.b.example.org").await.unwrap();
    assert_eq!(kit.below_apex(ZONE).await, [delegation("a.b.example.org")]);
    assert_eq!(kit.below_apex("a.b.example.org").await, [delegation("x.y.a.b.example.org")]);
    // The zone between them takes the delegation over, and gives it back.
    kit.create(kit.org, "b.example.org").await.unwrap();
    assert_eq!(kit.below_apex(ZONE).await, [delegation("b.example.org")]);
    assert_eq!(kit.below_apex("b.example.org").await, [delegation("a.b.example.org")]);
    kit.delete_zone("b.example.org").await;
    assert_eq!(kit.below_apex(ZONE).await, [delegation("a.b.example.org")]);
    // A new zone delegates the zones that exist.
    kit.delete_zone(ZONE).await;
    kit.create(kit.org, "c.example.org").await.unwrap();
    kit.create(kit.org, ZONE).await.unwrap();
    assert_eq!(kit.below_apex(ZONE).await, [delegation("a.b.example.org"), delegation("c.example.org")]);
    kit.delete_zone("c.example.org").await;
    kit.delete_zone("a.b.example.org").await;
    assert_eq!(kit.below_apex(ZONE).await, [delegation("x.y.a.b.example.org")]);
}

#[tokio::test]
async fn managed_records_move_with_the_nearest_zone() {
    let kit = Kit::start().await;
    let (www, host) = ("www.dev.example.org", "_acme-challenge.www.dev.example.org");
    assert_eq!(kit.link_host(&kit.dns, www).await, LinkResult::Linked { changed: true });
    let publish = async |tx: &mut Connection| kit.dns.challenge_publish(tx, kit.org, host, "text").await;
    kit.store.transaction_unaudited(publish).await.unwrap();
    let records = [format!("{www} CNAME fallback.svc.example. project"), format!("{host} TXT \"text\" certificate")];
    assert_eq!(kit.below_apex(ZONE).await, records);
    kit.create(kit.org, DEV).await.unwrap();
    assert_eq!(kit.below_apex(ZONE).await, [delegation(DEV)]);
    assert_eq!(kit.below_apex(DEV).await, records);
    assert_eq!(kit.link_host(&kit.dns, www).await, LinkResult::Linked { changed: false });
    kit.delete_zone(DEV).await;
    assert_eq!(kit.below_apex(ZONE).await, records);
}

/// The records of a wildcard and of its parent have the same name.
#[tokio::test]
async fn challenges_at_one_name_do_not_replace_each_other() {
    let kit = Kit::start().await;
    let host = "_acme-challenge.example.org";
    let publish = async |text: &str| {
        let publish = async |tx: &mut Connection| kit.dns.challenge_publish(tx, kit.org, host, text).await;
        kit.store.transaction_unaudited(publish).await.unwrap();
    };
    let withdraw = async |text: &str| {
        let withdraw = async |tx: &mut Connection| kit.dns.challenge_withdraw(tx, kit.org, host, text).await;
        kit.store.transaction_unaudited(withdraw).await.unwrap();
    };
    let texts = async || {
        let detail = kit.dns.zone(kit.org, ZONE).await.unwrap().collect().await.unwrap();
        let at_host = detail.rrsets.into_iter().filter(|rrset| rrset.name == host);
        at_host.flat_map(|rrset| rrset.records).collect::<Vec<_>>()
    };
    publish("b").await;
    publish("a").await;
    assert_eq!(texts().await, ["\"a\"", "\"b\""]);
    withdraw("b").await;
    assert_eq!(texts().await, ["\"a\""]);
    let serial = kit.served().await.serial;
    withdraw("b").await;
    assert_eq!(kit.served().await.serial, serial);
    withdraw("a").await;
    assert_eq!(texts().await, [""; 0]);
}

#[tokio::test]
async fn service_without_hosting_deletes_managed_records() {
    let kit = Kit::start().await;
    let (www, host) = ("www.example.org", "_acme-challenge.www.example.org");
    kit.link_host(&kit.dns, www).await;
    let publish = async |tx: &mut Connection| kit.dns.challenge_publish(tx, kit.org, host, "text").await;
    kit.store.transaction_unaudited(publish).await.unwrap();
    let before = kit.served().await.serial;
    let dns = kit.dns_of(None);
    let delete = async |tx: &mut Connection| {
        dns.unlink(tx, kit.org, &[www]).await?;
        dns.challenge_withdraw(tx, kit.org, host, "text").await
    };
    kit.store.transaction_unaudited(delete).await.unwrap();
    assert_eq!(kit.below_apex(ZONE).await, [""; 0]);
    assert_ne!(kit.served().await.serial, before);
}

/// The transaction of a hostname can lock all zones of the name for a certificate.
#[tokio::test]
async fn link_locks_the_zones_above_first() {
    let kit = Kit::start().await;
    kit.create(kit.org, DEV).await.unwrap();
    let link = kit.link_host(&kit.dns, "www.dev.example.org");
    let linked = kit.wait_without(&format!("name = '{DEV}'"), ZONE, link).await;
    assert_eq!(linked, LinkResult::Linked { changed: true });
}

#[tokio::test]
async fn hostname_with_the_name_of_the_new_zone_needs_addresses() {
    let kit = Kit::start().await;
    kit.link_host(&kit.dns, DEV).await;
    match kit.create(kit.org, DEV).await {
        Err(DnsError::ZoneOccupied { rrsets, .. }) => assert_eq!(rrsets, [format!("{DEV} CNAME")]),
        other => panic!("{other:?}"),
    }
    let dns = kit.dns_with("ns.svc.example", &["192.0.2.80"]);
    let new = dns::NewZone { name: DEV.to_owned() };
    let created = dns.zone_create(&actor(), kit.org, new).await.unwrap().collect().await.unwrap();
    let address = created.rrsets.iter().find(|rrset| rrset.kind == dns::RecordType::A).unwrap();
    assert_eq!((&*address.name, address.managed_by), (DEV, Some(ManagedBy::Project)));
    dns.zone_delete(&actor(), kit.org, DEV, &Precondition::Any).await.unwrap();
    assert_eq!(kit.below_apex(ZONE).await, [format!("{DEV} CNAME fallback.svc.example. project")]);
}

#[tokio::test]
async fn zone_that_would_hide_records_is_not_created() {
    let kit = Kit::start().await;
    kit.put(("dev", "MX"), &["10 mail"]).await;
    kit.put(("api.dev", "A"), &["192.0.2.1"]).await;
    kit.put(("dev-2", "A"), &["192.0.2.1"]).await;
    let serial = kit.served().await.serial;
    let refused = kit.create(kit.org, DEV).await.unwrap_err();
    assert!(refused.to_string().contains("example.org has records at and below dev.example.org"), "{refused}");
    match refused {
        DnsError::ZoneOccupied { zone, rrsets, .. } => {
            assert_eq!((zone.as_str(), rrsets), (ZONE, vec![format!("{DEV} MX"), format!("api.{DEV} A")]));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(kit.served().await.serial, serial);
    for rrset in [("dev", "MX"), ("api.dev", "A")] {
        kit.dns.rrset_delete(&actor(), (kit.org, ZONE), rrset, &Precondition::Any).await.unwrap();
    }
    kit.create(kit.org, DEV).await.unwrap();
    // Users cannot change the delegation.
    let content = RrsetContent { ttl: None, records: vec!["ns.other.example.".to_owned()] };
    let changed = kit.dns.rrset_put(&actor(), (kit.org, ZONE), ("dev", "NS"), content, &Precondition::Any).await;
    assert!(matches!(changed, Err(DnsError::Managed { .. })), "{changed:?}");
}

#[tokio::test]
async fn delegation_of_a_user_stays() {
    let kit = Kit::start().await;
    kit.put(("dev", "NS"), &["ns.other.example."]).await;
    let own = [format!("{DEV} NS ns.other.example. user")];
    kit.create(kit.org, DEV).await.unwrap();
    assert_eq!(kit.below_apex(ZONE).await, own);
    kit.link_host(&kit.dns, "www.dev.example.org").await;
    kit.delete_zone(DEV).await;
    assert_eq!(kit.below_apex(ZONE).await, own);
}

#[tokio::test]
async fn delegation_of_a_user_to_the_platform_becomes_managed() {
    let kit = Kit::start().await;
    kit.put(("dev", "NS"), &["ns.svc.example."]).await;
    kit.create(kit.org, DEV).await.unwrap();
    assert_eq!(kit.below_apex(ZONE).await, [delegation(DEV)]);
    kit.link_host(&kit.dns, "www.dev.example.org").await;
    kit.create(kit.org, "x.y.dev.example.org").await.unwrap();
    kit.delete_zone(DEV).await;
    let host = "www.dev.example.org CNAME fallback.svc.example. project".to_owned();
    assert_eq!(kit.below_apex(ZONE).await, [host, delegation("x.y.dev.example.org")]);
}

#[tokio::test]
async fn records_do_not_move_below_a_delegation_of_a_user() {
    let kit = Kit::start().await;
    kit.put(("b", "NS"), &["ns.other.example."]).await;
    kit.create(kit.org, "a.b.example.org").await.unwrap();
    kit.link_host(&kit.dns, "www.a.b.example.org").await;
    kit.delete_zone("a.b.example.org").await;
    assert_eq!(kit.below_apex(ZONE).await, ["b.example.org NS ns.other.example. user"]);
}

#[tokio::test]
async fn content_of_a_new_zone_replaces_the_records_in_the_zone_above() {
    let kit = Kit::start().await;
    kit.put(("dev", "MX"), &["10 mail"]).await;
    kit.put(("api.dev", "A"), &["192.0.2.1"]).await;
    let rrset = |name: &str, kind: &str, record: &str| RrsetPatch {
        name: name.to_owned(),
        kind: kind.to_owned(),
        ttl: None,
        records: vec![record.to_owned()],
    };
    let rrsets = [rrset("api", "A", "192.0.2.1"), rrset("@", "MX", "10 mail.example.org.")];
    let create = async |rrsets: &[RrsetPatch]| {
        let new = NewZone { name: DEV.to_owned() };
        kit.dns.zone_create_with(&actor(), kit.org, new, InitialContent { rrsets, dnssec: false }).await.map(drop)
    };
    match create(&rrsets[..1]).await {
        Err(DnsError::ZoneOccupied { rrsets, .. }) => assert_eq!(rrsets, [format!("{DEV} MX")]),
        other => panic!("{other:?}"),
    }
    create(&rrsets).await.unwrap();
    assert_eq!(kit.below_apex(ZONE).await, [delegation(DEV)]);
    assert_eq!(kit.below_apex(DEV).await, ["api.dev.example.org A 192.0.2.1 user"]);
}

/// A nameserver that had the delegation before the new zone could answer for neither.
#[tokio::test]
async fn zone_above_is_notified_after_the_catalog() {
    let kit = Kit::start().await;
    kit.put(("www", "A"), &["192.0.2.1"]).await;
    kit.create(kit.org, DEV).await.unwrap();
    let keys = kit.db_rows("SELECT key FROM store.outbox WHERE topic = 'dns.notify' ORDER BY key").await;
    assert_eq!(keys, [json!({ "key": "catalog" }), json!({ "key": "example.org after catalog" })]);
}

#[tokio::test]
async fn records_are_deleted_from_a_zone_that_is_created_concurrently() {
    let kit = Kit::start().await;
    let host = "www.dev.example.org";
    kit.link_host(&kit.dns, host).await;
    kit.create_during(DEV, kit.unlink_host(host)).await;
    assert_eq!(kit.below_apex(ZONE).await, [delegation(DEV)]);
    assert_eq!(kit.below_apex(DEV).await, [""; 0]);
}

#[tokio::test]
async fn records_are_written_into_a_zone_that_is_created_concurrently() {
    let kit = Kit::start().await;
    let host = "www.dev.example.org";
    let linked = kit.create_during(DEV, kit.link_host(&kit.dns, host)).await;
    assert_eq!(linked, LinkResult::Linked { changed: true });
    assert_eq!(kit.below_apex(DEV).await, [format!("{host} CNAME fallback.svc.example. project")]);
}

#[tokio::test]
async fn records_that_users_added_meanwhile_stay_when_the_zone_is_deleted() {
    let kit = Kit::start().await;
    kit.create(kit.org, DEV).await.unwrap();
    kit.link_host(&kit.dns, "www.dev.example.org").await;
    kit.put(("www.dev", "A"), &["192.0.2.1"]).await;
    kit.delete_zone(DEV).await;
    assert_eq!(kit.below_apex(ZONE).await, ["www.dev.example.org A 192.0.2.1 user"]);
}

#[tokio::test]
async fn delegations_follow_the_configured_nameservers() {
    let kit = Kit::start().await;
    kit.create(kit.org, DEV).await.unwrap();
    let dns = kit.dns_with("new.svc.example", &[]);
    assert_eq!(dns.reconcile_nameservers().await.unwrap(), 2);
    assert_eq!(kit.below_apex(ZONE).await, [format!("{DEV} NS new.svc.example. system")]);
    assert_eq!(dns.reconcile_nameservers().await.unwrap(), 0);
}

#[tokio::test]
async fn nameservers_of_zones_after_a_full_page_are_updated() {
    let kit = Kit::start().await;
    // These zones have lower ids than the zone of the fixture, and no managed nameservers.
    kit.db_execute(&format!(
        "INSERT INTO dns.zones (id, org_id, name, path, serial, rrset_count, bytes, last_change_number, journal_bytes, \
             dnssec_state, ds, created_at) \
         SELECT ('00000000-0001-7000-8000-' || lpad(n::text, 12, '0'))::uuid, '{}', 'z' || n || '.example', \
             'example.z' || n || '.', 0, 0, 0, 0, 0, 'off', '[]', now() FROM generate_series(1, 2000) n",
        kit.org.as_uuid()
    ))
    .await;
    let dns = kit.dns_with("new.svc.example", &[]);
    assert_eq!(dns.reconcile_nameservers().await.unwrap(), 1);
    assert_eq!(dns.reconcile_nameservers().await.unwrap(), 0);
}

#[tokio::test]
async fn zone_that_another_organization_takes_over_is_no_longer_delegated() {
    let kit = Kit::start().await;
    let owner = kit.other_org().await;
    kit.create(kit.org, DEV).await.unwrap();
    kit.advance(1);
    kit.public.publish(&VerifyRecord::txt(DEV, &verification_token(owner, DEV)));
    kit.create(owner, DEV).await.unwrap();
    assert_eq!(kit.below_apex(ZONE).await, [""; 0]);
}

/// A tenant can hold the lock of its zone, and all others wait for the catalog.
#[tokio::test]
async fn catalog_is_not_locked_during_the_wait_for_a_zone() {
    let kit = Kit::start().await;
    let catalog = "org_id IS NULL";
    let switch = DnssecSwitch { enabled: true };
    kit.wait_without(catalog, ZONE, kit.dns.dnssec_switch(&actor(), kit.org, ZONE, switch)).await.unwrap();
    kit.wait_without(catalog, ZONE, kit.create(kit.org, DEV)).await.unwrap();
    kit.wait_without(catalog, ZONE, kit.delete_zone(DEV)).await;
    let owner = kit.other_org().await;
    kit.advance(1);
    kit.public.publish(&VerifyRecord::txt(ZONE, &verification_token(owner, ZONE)));
    kit.wait_without(catalog, ZONE, kit.create(owner, ZONE)).await.unwrap();
    assert_eq!(kit.db_number("SELECT count(*) FROM dns.zones WHERE org_id IS NOT NULL").await, 1);
}

/// The zone above is created and locked while the creation, which found no zone to lock, waits for the catalog.
#[tokio::test]
async fn creation_waits_for_a_zone_above_that_appears_concurrently() {
    let kit = Kit::start().await;
    let other = kit.other_org().await;
    kit.create(kit.org, "late.example").await.unwrap();
    let (appeared, locked) = (Notify::new(), Notify::new());
    let lock_zone = async |tx: &mut Connection| {
        kit.dns.lock_all_enclosing_zones(tx, &[(kit.org, "above.example".to_owned())]).await?;
        locked.notify_one();
        // The catalog has no condition on the name.
        kit.wait_for_blocked_session("%\"name\" = %").await;
        Ok::<_, DnsError>(())
    };
    let hold_zone = async {
        appeared.notified().await;
        kit.store.transaction_unaudited(lock_zone).await
    };
    let proof = ZoneProof::default();
    let lock_catalog = async |tx: &mut Connection| kit.dns.zone_create_within(tx, other, "other.example", &proof).await;
    let appear = async {
        // A creation would wait for the catalog.
        let rename = "UPDATE dns.zones SET name = 'above.example', path = 'example.above.' WHERE name = 'late.example'";
        kit.db_execute(rename).await;
        appeared.notify_one();
        locked.notified().await;
    };
    let create = kit.create(kit.org, "a.above.example");
    let (held, created) = tokio::join!(hold_zone, kit.commit_during(lock_catalog, appear, create));
    held.unwrap();
    created.unwrap();
    assert_eq!(kit.below_apex("above.example").await, [delegation("a.above.example")]);
}
