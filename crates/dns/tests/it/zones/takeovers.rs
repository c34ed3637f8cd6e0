//! Zones that the owner of a domain takes over from other organizations.

use std::sync::atomic::Ordering;

use diesel::dsl::sql;
use diesel::sql_types::Text;
use diesel_async::RunQueryDsl as _;
use dns::{DnsError, LinkResult, LookupFailure, Notice, Precondition};
use kernel::ownership::{TakeoverObstacle, VerifyRecord, verification_token};
use kernel::{Limits, OrgId};
use serde_json::{Value, json};
use store::Connection;

use super::kit::{Kit, ZONE, actor};

const NAME: &str = "late.example";

/// The record with which an organization proves that it owns a name.
fn record(org: OrgId, name: &str) -> VerifyRecord {
    VerifyRecord::txt(name, &verification_token(org, name))
}

impl Kit {
    /// Returns the names of the zones and their organizations, by name.
    async fn zones(&self) -> Vec<(String, OrgId)> {
        let rows = self.db_rows("SELECT name, org_id FROM dns.zones WHERE org_id IS NOT NULL ORDER BY name").await;
        let org = |row: &Value| OrgId::from_uuid(row["org_id"].as_str().unwrap().parse().unwrap());
        rows.iter().map(|row| (row["name"].as_str().unwrap().to_owned(), org(row))).collect()
    }

    async fn serial(&self, org: OrgId, name: &str) -> u32 {
        self.dns.zone_entry(org, name).await.unwrap().serial
    }

    async fn obstacle(&self, name: &str) -> TakeoverObstacle {
        let takeover = match self.create(self.org, name).await {
            Err(DnsError::ZoneTaken { takeover, .. }) => takeover,
            _ => None,
        };
        let (shown, obstacle) = takeover.unwrap();
        assert_eq!(shown, record(self.org, name));
        obstacle
    }
}

#[tokio::test]
async fn owner_takes_over_the_zones_at_and_below_its_name() {
    let kit = Kit::start().await;
    let (holder, other) = (kit.other_org().await, kit.other_org().await);
    let below = format!("a.b.{NAME}");
    kit.create(holder, NAME).await.unwrap();
    kit.create(holder, &format!("www.{NAME}")).await.unwrap();
    kit.create(holder, "holder.example").await.unwrap();
    // The zone of the third organization is not related to that of the holder.
    assert_eq!(kit.obstacle(NAME).await, TakeoverObstacle::NotPublished);
    kit.public.publish(&record(other, &below));
    kit.create(other, &below).await.unwrap();
    kit.public.set_texts(&record(other, &below).name, Ok(Vec::new()));
    // A zone whose serial is ahead of the clock.
    kit.db_execute(&format!("UPDATE dns.zones SET serial = serial + 1000 WHERE name = '{NAME}'")).await;
    let serial = kit.serial(holder, NAME).await;
    // The record of another organization proves nothing.
    kit.public.publish(&record(other, NAME));
    assert_eq!(kit.obstacle(NAME).await, TakeoverObstacle::NotPublished);
    let listed = "SELECT count(*) FROM dns.rrsets r JOIN dns.zones z ON z.id = r.zone_id AND z.org_id IS NULL \
                  WHERE r.kind = 'PTR'";
    assert_eq!(kit.db_number(listed).await, 5);

    kit.public.publish(&record(kit.org, NAME));
    kit.create(kit.org, NAME).await.unwrap();
    let expected = [("example.org", kit.org), ("holder.example", holder), (NAME, kit.org)];
    assert_eq!(kit.zones().await, expected.map(|(name, org)| (name.to_owned(), org)));
    assert!(kit.serial(kit.org, NAME).await > serial);
    assert_eq!(kit.db_number(listed).await, 3);
    // The deleted zones were not delegated here, so nothing has to be remembered.
    assert_eq!(kit.db_number("SELECT count(*) FROM dns.deleted_zones").await, 0);
    let mut notices = std::mem::take(&mut *kit.organizations.notices.lock().unwrap());
    notices.sort_by_key(|(org, _)| *org != holder);
    let lost = |names: &[&str]| Notice::ZonesTakenOver {
        zones: names.iter().map(|it| (*it).to_owned()).collect(),
        record: record(kit.org, NAME).name,
    };
    assert_eq!(notices, [(holder, lost(&[NAME, &format!("www.{NAME}")])), (other, lost(&[&below]))]);
    let events = "SELECT event, org_id, data FROM store.audit \
                  WHERE event = 'dns.zone.taken_over' OR data ? 'takenOver' ORDER BY data ->> 'zone', event";
    let event = |event, org: OrgId, data| json!({ "event": event, "org_id": org.as_uuid(), "data": data });
    let expected = [
        event("dns.zone.taken_over", other, json!({ "zone": below })),
        event("dns.zone.create", kit.org, json!({ "zone": NAME, "takenOver": 3 })),
        event("dns.zone.taken_over", holder, json!({ "zone": NAME })),
        event("dns.zone.taken_over", holder, json!({ "zone": format!("www.{NAME}") })),
    ];
    assert_eq!(kit.db_rows(events).await, expected);
}

#[tokio::test]
async fn creation_of_a_zone_is_reported_for_the_organization_that_gets_it() {
    let kit = Kit::start().await;
    let holder = kit.other_org().await;
    let below = format!("www.{NAME}");
    kit.create(holder, &below).await.unwrap();
    kit.public.publish(&record(kit.org, NAME));
    for _ in 0..2 {
        kit.create(kit.org, NAME).await.unwrap();
    }
    kit.dns.zone_delete(&actor(), kit.org, NAME, &Precondition::Any).await.unwrap();
    kit.create(kit.org, NAME).await.unwrap();
    let created = std::mem::take(&mut *kit.hostnames.0.lock().unwrap());
    let expected = [(kit.org, ZONE), (holder, below.as_str()), (kit.org, NAME), (kit.org, NAME)];
    assert_eq!(created, expected.map(|(org, name)| (org, name.to_owned())));
}

#[tokio::test]
async fn zone_that_is_in_use_or_proved_by_its_holder_stays() {
    let kit = Kit::start().await;
    let holder = kit.other_org().await;
    let below = format!("sub.{NAME}");
    kit.create(holder, NAME).await.unwrap();
    kit.create(holder, &below).await.unwrap();
    let zones = kit.zones().await;
    let own = record(kit.org, NAME);
    for failure in [LookupFailure::ServerFailure, LookupFailure::Unavailable("no response".to_owned())] {
        kit.public.set_texts(&own.name, Err(failure.clone()));
        assert_eq!(kit.obstacle(NAME).await, TakeoverObstacle::LookupFailed(failure.to_string()));
    }
    kit.public.set_texts(&own.name, Ok(vec![own.value.clone()]));
    let here = || Ok(vec!["ns.other.example".to_owned(), "ns.svc.example".to_owned()]);
    for (name, records, nameservers) in [
        (NAME, here(), vec!["ns.svc.example".to_owned()]),
        (&below, here(), vec!["ns.svc.example".to_owned()]),
        (NAME, Err(LookupFailure::ServerFailure), Vec::new()),
    ] {
        kit.public.set(name, records);
        match kit.create(kit.org, NAME).await {
            Err(DnsError::ZoneInUse { zone, nameservers: found }) => assert_eq!((&*zone, found), (name, nameservers)),
            other => panic!("{name}: {other:?}"),
        }
        kit.public.set(name, Ok(vec!["ns.other.example".to_owned()]));
    }
    kit.public.set(NAME, Err(LookupFailure::Unavailable("no response".to_owned())));
    assert!(matches!(kit.create(kit.org, NAME).await, Err(DnsError::DelegationUnknown(_))));
    kit.public.set(NAME, Ok(vec!["ns.other.example".to_owned()]));

    // The holder publishes its record, too.
    kit.public.publish(&record(holder, NAME));
    assert_eq!(kit.obstacle(NAME).await, TakeoverObstacle::HolderProves);
    kit.public.set_texts(&own.name, Ok(vec![own.value.clone()]));
    let of_holder = record(holder, &below);
    kit.public.publish(&of_holder);
    match kit.create(kit.org, NAME).await {
        Err(DnsError::ZoneProved { zone, record }) => assert_eq!((zone, record), (below.clone(), of_holder.clone())),
        other => panic!("{other:?}"),
    }
    kit.public.set_texts(&of_holder.name, Err(LookupFailure::ServerFailure));

    // The holder registers the domain here.
    kit.registered.0.store(true, Ordering::SeqCst);
    assert!(matches!(kit.create(kit.org, NAME).await, Err(DnsError::ZoneTaken { takeover: None, .. })));
    kit.registered.0.store(false, Ordering::SeqCst);
    assert_eq!(kit.zones().await, zones);
    assert!(kit.organizations.notices.lock().unwrap().is_empty());

    // The owner may have delegated the name below to nameservers that the public cannot reach.
    kit.public.set(&below, Err(LookupFailure::ServerFailure));
    kit.create(kit.org, NAME).await.unwrap();
    assert_eq!(kit.zones().await.len(), 2);
}

#[tokio::test]
async fn refusal_names_the_record_only_if_it_can_help() {
    let kit = Kit::start().await;
    let holder = kit.other_org().await;
    let below = format!("www.{NAME}");
    kit.create(holder, NAME).await.unwrap();
    let refused_for_use = async |name: &str, nameservers: &[&str]| match kit.create(kit.org, name).await {
        Err(DnsError::ZoneInUse { zone, nameservers: found }) => {
            assert!(zone == NAME && found == nameservers, "{name}: {zone} {found:?}");
        }
        other => panic!("{name}: {other:?}"),
    };
    kit.public.set(NAME, Ok(vec!["ns.svc.example".to_owned()]));
    refused_for_use(NAME, &["ns.svc.example"]).await;
    refused_for_use(&below, &["ns.svc.example"]).await;
    kit.public.set(NAME, Err(LookupFailure::ServerFailure));
    refused_for_use(NAME, &[]).await;
    assert_eq!(kit.obstacle(&below).await, TakeoverObstacle::NotPublished);
    kit.public.set(NAME, Err(LookupFailure::Unavailable("no response".to_owned())));
    assert_eq!(kit.obstacle(NAME).await, TakeoverObstacle::NotPublished);
    kit.public.set(NAME, Ok(vec!["ns.other.example".to_owned()]));
    kit.registered.1.lock().unwrap().push(NAME.to_owned());
    assert!(matches!(kit.create(kit.org, NAME).await, Err(DnsError::ZoneTaken { takeover: None, .. })));
    kit.registered.1.lock().unwrap().clear();
    // With its prefix, the name of the record is too long for the DNS.
    let long = format!("{0}.{0}.{0}.{1}.example.net", "a".repeat(63), "b".repeat(38));
    kit.create(holder, &long).await.unwrap();
    assert!(matches!(kit.create(kit.org, &long).await, Err(DnsError::ZoneTaken { takeover: None, .. })));
    // The name of a zone below is not shown before the proof.
    kit.create(holder, &below).await.unwrap();
    kit.public.set(&below, Ok(vec!["ns.svc.example".to_owned()]));
    assert_eq!(kit.obstacle(NAME).await, TakeoverObstacle::NotPublished);
}

#[tokio::test]
async fn proved_zone_below_the_zone_of_another_organization_serves_its_own_part() {
    let kit = Kit::start().await;
    let holder = kit.other_org().await;
    let shop = format!("shop.{NAME}");
    kit.create(holder, NAME).await.unwrap();
    assert_eq!(kit.obstacle(&shop).await, TakeoverObstacle::NotPublished);
    kit.public.publish(&record(kit.org, &shop));
    // The zone of the holder answers for the domain, so the holder decides on the names below it.
    kit.public.set(NAME, Ok(vec!["ns.svc.example".to_owned()]));
    assert!(matches!(kit.create(kit.org, &shop).await, Err(DnsError::ZoneInUse { zone, .. }) if zone == NAME));
    kit.public.set(NAME, Ok(vec!["ns.other.example".to_owned()]));
    kit.create(kit.org, &shop).await.unwrap();
    assert_eq!(kit.zones().await.len(), 3);

    let link = async |org, host: &str| {
        let host = format!("{host}{NAME}");
        let linked = async |tx: &mut Connection| {
            let zone = kit.dns.enclosing_zone(tx, org, &host).await?;
            let zone = zone.map(|(_, name)| name.as_str().to_owned());
            Ok::<_, DnsError>((zone, kit.dns.link(tx, org, &host).await?))
        };
        kit.store.transaction_unaudited(linked).await.unwrap()
    };
    let linked = LinkResult::Linked { changed: true };
    assert_eq!(link(kit.org, "www.shop.").await, (Some(shop.clone()), linked.clone()));
    for (org, host) in [(holder, "www.shop."), (holder, "shop."), (kit.org, "www.")] {
        assert_eq!(link(org, host).await, (None, LinkResult::NoZone), "{host}");
    }
    assert_eq!(link(holder, "www.").await, (Some(NAME.to_owned()), linked));

    // The holder can take its part over when its domain is delegated here, although the other zone answers for it.
    assert!(matches!(kit.create(holder, &shop).await, Err(DnsError::ZoneTaken { .. })));
    kit.public.set(NAME, Ok(vec!["ns.svc.example".to_owned()]));
    kit.public.set(&shop, Ok(vec!["ns.svc.example".to_owned()]));
    kit.create(holder, &shop).await.unwrap();
    assert!(!kit.zones().await.contains(&(shop, kit.org)));
}

#[tokio::test]
async fn any_number_of_zones_below_the_name_is_taken_over() {
    let mut limits = Limits::default();
    limits.free.zones = 200;
    let kit = Kit::with(limits).await;
    let holder = kit.other_org().await;
    for n in 0..120 {
        kit.create(holder, &format!("z{n}.{NAME}")).await.unwrap();
    }
    kit.advance(1);
    kit.public.publish(&record(kit.org, NAME));
    kit.create(kit.org, NAME).await.unwrap();
    assert_eq!(kit.zones().await.len(), 2);
    let events = "SELECT count(*) FROM store.audit WHERE event = 'dns.zone.taken_over'";
    assert_eq!(kit.db_number(events).await, 120);
    let notices = kit.organizations.notices.lock().unwrap().clone();
    let names = |notice: &Notice| match notice {
        Notice::ZonesTakenOver { zones, .. } => zones.len(),
    };
    assert_eq!(notices.iter().map(|(_, notice)| names(notice)).sum::<usize>(), 120);
}

/// The zones below the name do not fit in one transaction.
#[tokio::test]
async fn serial_continues_if_many_zones_are_taken_over() {
    let mut limits = Limits::default();
    limits.free.zones = 200;
    let kit = Kit::with(limits).await;
    let holder = kit.other_org().await;
    kit.create(holder, NAME).await.unwrap();
    for n in 0..60 {
        kit.create(holder, &format!("z{n}.{NAME}")).await.unwrap();
    }
    kit.advance(1);
    // A zone whose serial is ahead of the clock.
    kit.db_execute(&format!("UPDATE dns.zones SET serial = serial + 100000 WHERE name = '{NAME}'")).await;
    let serial = kit.serial(holder, NAME).await;
    kit.public.publish(&record(kit.org, NAME));
    kit.create(kit.org, NAME).await.unwrap();
    assert_eq!(kit.zones().await.len(), 2);
    assert!(kit.serial(kit.org, NAME).await > serial);
}

/// The zones below the name do not fit in one transaction.
#[tokio::test]
async fn zones_below_a_registered_domain_stay() {
    let mut limits = Limits::default();
    limits.free.zones = 200;
    let kit = Kit::with(limits).await;
    let holder = kit.other_org().await;
    kit.create(holder, NAME).await.unwrap();
    for n in 0..60 {
        kit.create(holder, &format!("z{n}.{NAME}")).await.unwrap();
    }
    kit.advance(1);
    kit.registered.1.lock().unwrap().push(NAME.to_owned());
    kit.public.publish(&record(kit.org, NAME));
    assert!(matches!(kit.create(kit.org, NAME).await, Err(DnsError::ZoneTaken { takeover: None, .. })));
    assert_eq!(kit.zones().await.len(), 62);
    assert!(kit.organizations.notices.lock().unwrap().is_empty());
}

#[tokio::test]
async fn plan_limit_prevents_a_takeover() {
    let mut limits = Limits::default();
    limits.free.zones = 1;
    let kit = Kit::with(limits).await;
    let holder = kit.other_org().await;
    kit.create(holder, NAME).await.unwrap();
    kit.public.publish(&record(kit.org, NAME));
    assert!(matches!(kit.create(kit.org, NAME).await, Err(DnsError::ZoneLimit { .. })));
    assert!(kit.zones().await.contains(&(NAME.to_owned(), holder)));
}

/// After the zones, the transaction waits for rows while all other tenants wait for the catalog.
#[tokio::test]
async fn takeover_waits_longer_only_for_zones() {
    let kit = Kit::start().await;
    let holder = kit.other_org().await;
    kit.create(holder, NAME).await.unwrap();
    kit.public.publish(&record(kit.org, NAME));
    let proof = kit.dns.zone_prepare(&actor(), kit.org, NAME).await.unwrap();
    let lock_timeout = async |tx: &mut Connection| {
        let setting = diesel::select(sql::<Text>("current_setting('lock_timeout')"));
        setting.get_result::<String>(tx).await.unwrap()
    };
    let take_over = async |tx: &mut Connection| {
        let before = lock_timeout(tx).await;
        kit.dns.zone_create_within(tx, kit.org, NAME, &proof).await?;
        assert_eq!(lock_timeout(tx).await, before);
        Ok::<_, DnsError>(())
    };
    kit.store.transaction_unaudited(take_over).await.unwrap();
    assert!(kit.zones().await.contains(&(NAME.to_owned(), kit.org)));
}

/// The holder cannot prevent the takeover: neither by deleting its zone nor by creating others all the time.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_do_not_prevent_a_takeover() {
    let kit = Kit::start().await;
    let holder = kit.other_org().await;
    for round in 0..5 {
        let name = format!("race-{round}.example");
        kit.create(holder, &name).await.unwrap();
        kit.advance(1);
        kit.public.publish(&record(kit.org, &name));
        let create = || kit.create(kit.org, &name);
        let delete = async || kit.dns.zone_delete(&actor(), holder, &name, &Precondition::Any).await;
        let churn = async || {
            for n in 0..10 {
                let below = format!("z{n}.{name}");
                let created = kit.create(holder, &below).await;
                assert!(matches!(created, Ok(()) | Err(DnsError::ZoneTaken { .. })), "{created:?}");
                let deleted = kit.dns.zone_delete(&actor(), holder, &below, &Precondition::Any).await;
                assert!(matches!(deleted, Ok(()) | Err(DnsError::ZoneNotFound)), "{deleted:?}");
            }
        };
        let (first, second, deleted, ()) = tokio::join!(create(), create(), delete(), churn());
        first.and(second).unwrap();
        assert!(matches!(deleted, Ok(()) | Err(DnsError::ZoneNotFound)), "{deleted:?}");
        let of_others = format!(
            "SELECT count(*) FROM dns.zones WHERE name LIKE '%{name}' AND (org_id <> '{}' OR name <> '{name}')",
            kit.org.as_uuid()
        );
        assert_eq!(kit.db_number(&of_others).await, 0);
        let events = format!(
            "SELECT count(*) FROM store.audit WHERE event = 'dns.zone.taken_over' AND data ->> 'zone' = '{name}'"
        );
        assert_eq!(kit.db_number(&events).await, i64::from(deleted.is_err()), "{deleted:?}");
    }
}
