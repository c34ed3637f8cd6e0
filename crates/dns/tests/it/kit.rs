//! A database of its own for each test, with one organization, and a clock that stands.

use dns::{Dns, DnsRepository as _, Expected, Hosting, NewZone, RrsetContent, ServedZone};
use kernel::audit::Actor;
use kernel::{OrgId, Secret};
use store::testing::{TestClock, TestDatabase};
use store::{Config, Store};

pub struct Kit {
    pub dns: Dns,
    pub store: Store,
    pub org: OrgId,
    pub clock: TestClock,
    pub database: TestDatabase,
}

pub const ZONE: &str = "example.org";

impl Kit {
    /// With the zone `example.org`.
    pub async fn new() -> Self {
        let (database, clock) = (TestDatabase::create().await, TestClock::default());
        let config = Config { keys: store::testing::keys(), ..Config::new(Secret::new(database.url()), "test") };
        let store = Store::new(&config, clock.world()).unwrap();
        let mut hosting = Hosting::new(&["ns.svc.example".to_owned()], "fallback.svc.example").unwrap();
        (hosting.notifies, hosting.observes) = (true, true);
        let dns = Dns::new(store.clone(), Some(hosting));
        let org: OrgId = store.world().id();
        let insert =
            format!("INSERT INTO orgs.orgs VALUES ('{}', 'acme', 'Acme', 'free', false, now())", org.as_uuid());
        database.run(&insert).await;
        let kit = Self { dns, store, org, clock, database };
        kit.dns.zone_create(&actor(), org, NewZone { name: ZONE.to_owned() }).await.unwrap();
        kit
    }

    pub async fn put(&self, rrset: (&str, &str), records: &[&str]) -> u32 {
        let content = RrsetContent { ttl: None, records: records.iter().map(|it| (*it).to_owned()).collect() };
        self.dns.rrset_put(&actor(), (self.org, ZONE), rrset, content, &Expected::Any).await.unwrap().serial
    }

    /// As a nameserver sees it.
    pub async fn served(&self) -> ServedZone {
        self.store.connection().await.unwrap().served_find(ZONE).await.unwrap().unwrap()
    }
}

pub fn actor() -> Actor {
    Actor::service("test")
}
