//! The test fixture: a separate database with one organization, a manual clock, and fakes of the ports.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dns::{
    Dns, DnsError, Hosting, Hostnames, LookupFailure, NewZone, Notice, NsRecords, Organizations, Ports, Precondition,
    Registrations, Resolver, RrsetContent, ServedRepository as _, ServedZone, TxtRecords,
};
use kernel::audit::Actor;
use kernel::ownership::VerifyRecord;
use kernel::{Limits, OrgId, Plan};
use testkit::TestStore;

pub struct Kit {
    pub dns: Dns,
    pub org: OrgId,
    pub public: Arc<PublicDns>,
    pub organizations: Arc<TestOrganizations>,
    pub registered: Arc<Registered>,
    pub hostnames: Arc<CreatedZones>,
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
        hosting.has_primary = true;
        let public = Arc::<PublicDns>::default();
        let organizations = Arc::<TestOrganizations>::default();
        let registered = Arc::<Registered>::default();
        let hostnames = Arc::<CreatedZones>::default();
        let ports = Ports {
            organizations: organizations.clone(),
            resolver: public.clone(),
            registrations: registered.clone(),
            hostnames: hostnames.clone(),
        };
        let dns = Dns::new(base.store.clone(), Some(hosting), limits, ports);
        let org: OrgId = base.store.clock_rng().id();
        let insert =
            format!("INSERT INTO orgs.orgs VALUES ('{}', 'acme', 'Acme', 'free', false, now())", org.as_uuid());
        base.db_execute(&insert).await;
        let kit = Self { dns, org, public, organizations, registered, hostnames, base };
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

/// The organizations: whether all have the pro plan, and the notifications that they received.
#[derive(Debug, Default)]
pub struct TestOrganizations {
    pub are_pro: AtomicBool,
    pub notices: Mutex<Vec<(OrgId, Notice)>>,
}

#[async_trait::async_trait]
impl Organizations for TestOrganizations {
    async fn plan(&self, _: &mut store::Connection, _: OrgId) -> store::Result<Option<Plan>> {
        Ok(Some(if self.are_pro.load(Ordering::SeqCst) { Plan::Pro } else { Plan::Free }))
    }

    async fn raise(&self, _: &mut store::Connection, org: OrgId, notice: Notice) -> store::Result<()> {
        self.notices.lock().unwrap().push((org, notice));
        Ok(())
    }
}

/// Whether all zones are those of registered domains, and the names of further registered domains.
#[derive(Debug, Default)]
pub struct Registered(pub AtomicBool, pub Mutex<Vec<String>>);

#[async_trait::async_trait]
impl Registrations for Registered {
    async fn is_registered(&self, _: &mut store::Connection, _: OrgId, zone: &str) -> store::Result<bool> {
        Ok(self.0.load(Ordering::SeqCst) || self.1.lock().unwrap().iter().any(|name| name == zone))
    }

    async fn release_imported(&self, _: &mut store::Connection, _: OrgId, _: &str) -> store::Result<()> {
        Ok(())
    }
}

/// The organizations and the names of the created zones.
#[derive(Debug, Default)]
pub struct CreatedZones(pub Mutex<Vec<(OrgId, String)>>);

#[async_trait::async_trait]
impl Hostnames for CreatedZones {
    async fn zone_created(&self, _: &mut store::Connection, org: OrgId, name: &str) -> store::Result<()> {
        self.0.lock().unwrap().push((org, name.to_owned()));
        Ok(())
    }
}

/// The NS and TXT records in the public DNS. A name without records does not exist.
#[derive(Debug, Default)]
pub struct PublicDns {
    delegations: Mutex<HashMap<String, NsRecords>>,
    texts: Mutex<HashMap<String, TxtRecords>>,
}

impl PublicDns {
    pub fn set(&self, name: &str, records: NsRecords) {
        self.delegations.lock().unwrap().insert(name.to_owned(), records);
    }

    pub fn set_texts(&self, name: &str, texts: TxtRecords) {
        self.texts.lock().unwrap().insert(name.to_owned(), texts);
    }

    /// Adds a text to the name of this record.
    pub fn publish(&self, record: &VerifyRecord) {
        let mut texts = self.texts.lock().unwrap();
        let of_name = texts.entry(record.name.clone()).or_insert_with(|| Ok(Vec::new()));
        of_name.as_mut().unwrap().push(record.value.clone());
    }
}

fn find(names: &[String], records: &Mutex<HashMap<String, NsRecords>>) -> Vec<NsRecords> {
    let records = records.lock().unwrap();
    names.iter().map(|name| records.get(name).cloned().unwrap_or(Err(LookupFailure::NoSuchName))).collect()
}

#[async_trait::async_trait]
impl Resolver for PublicDns {
    async fn ns(&self, names: &[String], _: Duration) -> Vec<NsRecords> {
        find(names, &self.delegations)
    }

    async fn txt(&self, names: &[String], _: Duration) -> Vec<TxtRecords> {
        find(names, &self.texts)
    }
}
