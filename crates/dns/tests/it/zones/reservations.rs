//! Names that are being registered, and the zones of other organizations.

use std::sync::Arc;

use dns::DnsError;
use kernel::OrgId;
use store::Connection;
use tokio::sync::Barrier;

use super::kit::Kit;

impl Kit {
    async fn reserve(&self, org: OrgId, name: &str) -> Result<(), DnsError> {
        self.store.transaction_unaudited(async |tx: &mut Connection| self.dns.name_reserve(tx, org, name).await).await
    }

    async fn create_reserved(&self, name: &str) {
        let create = async |tx: &mut Connection| self.dns.zone_create_reserved(tx, self.org, name).await;
        self.store.transaction_unaudited(create).await.unwrap();
    }
}

#[tokio::test]
async fn reserved_name_excludes_zones_of_others_until_its_zone_exists() {
    let kit = Kit::start().await;
    let other = kit.other_org().await;
    for _ in 0..2 {
        kit.reserve(kit.org, "new.example").await.unwrap();
    }
    assert!(matches!(kit.reserve(other, "new.example").await, Err(DnsError::ZoneTaken { .. })));
    for name in ["new.example", "below.new.example"] {
        assert!(matches!(kit.create(other, name).await, Err(DnsError::ZoneTaken { .. })), "{name}");
    }
    kit.create(other, "renew.example").await.unwrap();
    let names = ["new.example", "free.example"].map(str::to_owned);
    let mut connection = kit.connection().await;
    assert_eq!(kit.dns.names_taken(&mut connection, other, &names).await.unwrap(), ["new.example"]);
    assert!(kit.dns.names_taken(&mut connection, kit.org, &names).await.unwrap().is_empty());
    for _ in 0..2 {
        kit.create_reserved("new.example").await;
    }
    let created = kit.hostnames.0.lock().unwrap().last().cloned();
    assert_eq!(created, Some((kit.org, "new.example".to_owned())));
    assert_eq!(kit.db_number("SELECT count(*) FROM dns.reservations").await, 0);
    assert_eq!(kit.db_number("SELECT count(*) FROM dns.zones WHERE name = 'new.example'").await, 1);
    assert!(matches!(kit.create(other, "new.example").await, Err(DnsError::ZoneTaken { .. })));
    // A released name is free.
    kit.reserve(kit.org, "freed.example").await.unwrap();
    let release = async |tx: &mut Connection| kit.dns.name_release(tx, "freed.example").await;
    kit.store.transaction_unaudited(release).await.unwrap();
    kit.create(other, "freed.example").await.unwrap();
    // An existing zone of another organization, also one below the name, prevents the reservation.
    kit.create(other, "sub.late.example").await.unwrap();
    assert!(matches!(kit.reserve(kit.org, "late.example").await, Err(DnsError::ZoneTaken { .. })));
}

/// If two organizations compete for a name, the first commit excludes the other.
#[tokio::test(flavor = "multi_thread")]
async fn reservations_and_zones_of_others_exclude_each_other() {
    let kit = Arc::new(Kit::start().await);
    let other = kit.other_org().await;
    for round in 0..10 {
        let name = format!("race-{round}.example");
        let barrier = Barrier::new(2);
        let reserve = async {
            barrier.wait().await;
            kit.reserve(kit.org, &name).await
        };
        let create = async {
            barrier.wait().await;
            kit.create(other, &format!("www.{name}")).await
        };
        let (reserved, created) = tokio::join!(reserve, create);
        assert!(reserved.is_ok() != created.is_ok(), "{name}: {reserved:?} {created:?}");
    }
}
