//! The test fixture: a separate database with one organization, and a manual clock.

use std::ops::Deref;

use dns::{Dns, Hosting, NewZone, Precondition, RrsetContent, ServedRepository as _, ServedZone};
use kernel::OrgId;
use kernel::audit::Actor;
use testkit::TestStore;

pub struct Kit {
    pub dns: Dns,
    pub org: OrgId,
    base: TestStore,
}

impl Deref for Kit {
    type Target = TestStore;

    fn deref(&self) -> &TestStore {
        &self.base
    }
}

pub const ZONE: &str = "example.org";

impl Kit {
    /// Creates the fixture with the zone `example.org`.
    pub async fn start() -> Self {
        let base = TestStore::start().await;
        let mut hosting = Hosting::new(&["ns.svc.example".to_owned()], "fallback.svc.example").unwrap();
        (hosting.has_primary, hosting.has_signer) = (true, true);
        let dns = Dns::new(base.store.clone(), Some(hosting));
        let org: OrgId = base.store.clock_rng().id();
        let insert =
            format!("INSERT INTO orgs.orgs VALUES ('{}', 'acme', 'Acme', 'free', false, now())", org.as_uuid());
        base.db_execute(&insert).await;
        let kit = Self { dns, org, base };
        kit.dns.zone_create(&actor(), org, NewZone { name: ZONE.to_owned() }).await.unwrap();
        kit
    }

    pub async fn put(&self, rrset: (&str, &str), records: &[&str]) -> u32 {
        let content = RrsetContent { ttl: None, records: records.iter().map(|it| (*it).to_owned()).collect() };
        self.dns.rrset_put(&actor(), (self.org, ZONE), rrset, content, &Precondition::Any).await.unwrap().serial
    }

    /// The zone as nameservers transfer it.
    pub async fn served(&self) -> ServedZone {
        self.connection().await.served_find(ZONE).await.unwrap().unwrap()
    }
}

pub fn actor() -> Actor {
    Actor::service("test")
}
