//! The test fixture: a separate database with one organization, a manual clock, and fakes of the ports.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dns::{
    Dns, DnsError, Hosting, LookupFailure, NewZone, NsRecords, Organizations, Ports, Precondition, Registrations,
    Resolver, RrsetContent, ServedRepository as _, ServedZone,
};
use kernel::audit::Actor;
use kernel::{Limits, OrgId, Plan};
use testkit::TestStore;

pub struct Kit {
    pub dns: Dns,
    pub org: OrgId,
    pub delegations: Arc<PublicDelegations>,
    pub plans: Arc<Plans>,
    pub registered: Arc<Registered>,
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
        Self::with(Limits::default()).await
    }

    /// Creates a zone.
    pub async fn create(&self, org: OrgId, name: &str) -> Result<(), DnsError> {
        self.dns.zone_create(&actor(), org, NewZone { name: name.to_owned() }).await.map(drop)
    }

    /// Creates another organization.
    pub async fn other_org(&self) -> OrgId {
        let org: OrgId = self.store.clock_rng().id();
        let (id, slug) = (org.as_uuid(), org.as_uuid().simple());
        self.db_execute(&format!("INSERT INTO orgs.orgs VALUES ('{id}', '{slug}', 'O', 'free', false, now())")).await;
        org
    }

    /// Creates the fixture with these limits.
    pub async fn with(limits: Limits) -> Self {
        let base = TestStore::start().await;
        let mut hosting = Hosting::new(&["ns.svc.example".to_owned()], "fallback.svc.example").unwrap();
        (hosting.has_primary, hosting.has_signer) = (true, true);
        let delegations = Arc::<PublicDelegations>::default();
        let plans = Arc::new(Plans(Mutex::new(Plan::Free)));
        let registered = Arc::<Registered>::default();
        let ports =
            Ports { organizations: plans.clone(), resolver: delegations.clone(), registrations: registered.clone() };
        let dns = Dns::new(base.store.clone(), Some(hosting), limits, ports);
        let org: OrgId = base.store.clock_rng().id();
        let insert =
            format!("INSERT INTO orgs.orgs VALUES ('{}', 'acme', 'Acme', 'free', false, now())", org.as_uuid());
        base.db_execute(&insert).await;
        let kit = Self { dns, org, delegations, plans, registered, base };
        kit.dns.zone_create(&actor(), org, NewZone { name: ZONE.to_owned() }).await.unwrap();
        kit
    }

    pub async fn put(&self, rrset: (&str, &str), records: &[&str]) -> u32 {
        let content = RrsetContent { ttl: None, records: records.iter().map(|it| (*it).to_owned()).collect() };
        self.dns.rrset_put(&actor(), (self.org, ZONE), rrset, content, &Precondition::Any).await.unwrap().serial
    }

    /// Returns the zone as nameservers transfer it.
    pub async fn served(&self) -> ServedZone {
        self.connection().await.served_find(ZONE).await.unwrap().unwrap()
    }
}

pub fn actor() -> Actor {
    Actor::service("test")
}

/// The plan of every organization.
#[derive(Debug)]
pub struct Plans(Mutex<Plan>);

impl Plans {
    pub fn set(&self, plan: Plan) {
        *self.0.lock().unwrap() = plan;
    }
}

#[async_trait::async_trait]
impl Organizations for Plans {
    async fn plan(&self, _: &mut store::Connection, _: OrgId) -> store::Result<Option<Plan>> {
        Ok(Some(*self.0.lock().unwrap()))
    }
}

/// Whether all zones are those of registered domains.
#[derive(Debug, Default)]
pub struct Registered(pub AtomicBool);

#[async_trait::async_trait]
impl Registrations for Registered {
    async fn is_registered(&self, _: &mut store::Connection, _: OrgId, _: &str) -> store::Result<bool> {
        Ok(self.0.load(Ordering::SeqCst))
    }

    async fn release_imported(&self, _: &mut store::Connection, _: OrgId, _: &str) -> store::Result<()> {
        Ok(())
    }
}

/// The NS records in the public DNS. A name without records does not exist.
#[derive(Debug, Default)]
pub struct PublicDelegations(Mutex<HashMap<String, NsRecords>>);

impl PublicDelegations {
    pub fn set(&self, name: &str, records: NsRecords) {
        self.0.lock().unwrap().insert(name.to_owned(), records);
    }
}

#[async_trait::async_trait]
impl Resolver for PublicDelegations {
    async fn ns(&self, names: &[String], _: Duration) -> Vec<NsRecords> {
        let records = self.0.lock().unwrap();
        names.iter().map(|name| records.get(name).cloned().unwrap_or(Err(LookupFailure::NoSuchName))).collect()
    }
}
