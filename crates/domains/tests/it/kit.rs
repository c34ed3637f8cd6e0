//! The test fixture: the service on a separate database per test.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use diesel_async::RunQueryDsl as _;
use domains::{
    Contact, Created, Domain, DomainError, DomainPurchase, Domains, DomainsConfig, DsWanted, Ports, ZoneRefusal, Zones,
};
use kernel::audit::Actor;
use kernel::ownership::ZoneProof;
use kernel::{OrgId, ZoneId};
use serde_json::json;
use store::{Connection, Store};
use testkit::TestStore;

use crate::providers::{When, World};

/// A delay in seconds that exceeds a runner's lease and the longest backoff.
pub const LATER: i64 = 400;

pub const NAMESERVERS: [&str; 2] = ["ns1.svc.example", "ns2.svc.example"];

pub struct Kit {
    pub domains: Domains,
    pub world: World,
    pub org: OrgId,
    base: TestStore,
}

impl Deref for Kit {
    type Target = TestStore;

    fn deref(&self) -> &TestStore {
        &self.base
    }
}

impl Kit {
    pub async fn start() -> Self {
        let base = TestStore::start().await;
        base.db_execute(
            "CREATE SCHEMA test CREATE TABLE catalog (id int) CREATE TABLE zones (name text PRIMARY KEY, org uuid) \
             CREATE TABLE names (name text PRIMARY KEY, org uuid)",
        )
        .await;
        base.db_execute("INSERT INTO test.catalog VALUES (1)").await;
        let world = World { clock: base.clock.clone(), ..World::default() };
        let domains = service(&base.store, &world, true, config());
        let org = base.store.clock_rng().id();
        let kit = Self { domains, world, org, base };
        kit.insert_org(org).await;
        kit
    }

    /// Returns the service of an installation that does not charge for domains.
    pub fn without_payments(&self) -> Domains {
        service(&self.store, &self.world, false, config())
    }

    /// Returns the service of an installation with this limit of registrar requests per organization and hour.
    pub fn with_requests_per_org(&self, requests: u32) -> Domains {
        service(&self.store, &self.world, true, DomainsConfig { registrar_requests_per_org: requests, ..config() })
    }

    /// Returns the service of an installation whose requests wait this long for the registrar.
    pub fn with_request_timeout(&self, request_timeout: Duration) -> Domains {
        service(&self.store, &self.world, true, DomainsConfig { request_timeout, ..config() })
    }

    /// Returns the service of a server whose clock is ahead of that of Postgres.
    pub fn server_ahead(&self, seconds: i64) -> Domains {
        service(&self.with_clock_ahead(seconds), &self.world, true, config())
    }

    /// Returns the service of a server without a registrar.
    pub fn without_registrar(&self) -> Domains {
        let ports = Ports { registrar: None, ..ports(&self.world, true) };
        Domains::new(self.store.clone(), config(), ports)
    }

    pub async fn org(&self) -> OrgId {
        let org = self.store.clock_rng().id();
        self.insert_org(org).await;
        org
    }

    async fn insert_org(&self, org: OrgId) {
        let (id, slug) = (org.as_uuid(), org.as_uuid().simple());
        let values = format!("'{id}', '{slug}', 'Acme', 'free', false, now()");
        let insert = format!("INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at) VALUES ({values})");
        self.db_execute(&insert).await;
    }

    pub async fn buy(&self, name: &str) -> Result<Created, DomainError> {
        self.domains.purchase(&actor(), self.org, purchase(name)).await
    }

    /// A bought domain.
    pub async fn bought(&self, name: &str) -> Domain {
        let created = self.buy(name).await.unwrap();
        assert!(created.is_new);
        created.domain
    }

    pub async fn state(&self, name: &str) -> Option<String> {
        let rows = self.db_rows(&format!("SELECT state FROM domains.domains WHERE name = '{name}'")).await;
        rows.into_iter().next().map(|row| row["state"].as_str().unwrap().to_owned())
    }

    /// Returns the audit events in the order of their commits.
    pub async fn events(&self) -> Vec<String> {
        let rows = self.db_rows("SELECT event FROM store.audit ORDER BY ctid").await;
        rows.iter().map(|row| row["event"].as_str().unwrap().to_owned()).collect()
    }

    pub async fn count(&self, from: &str) -> i64 {
        self.db_number(&format!("SELECT count(*) FROM {from}")).await
    }

    /// Runs the background job until it ends, or until a provider's fault kills its process.
    pub async fn resume(&self) {
        self.world.run(None, self.domains.resume()).await.transpose().unwrap();
    }

    /// Runs the outbox until it has delivered all charges of renewals.
    pub async fn deliver(&self) {
        let worker = self.store.spawn_outbox_worker(Arc::new(domains::RenewalCharges(self.domains.clone())));
        self.wait_for(0, "store.outbox").await;
        worker.stop().await;
    }

    pub async fn wait_for(&self, rows: i64, from: &str) {
        let arrived = async {
            while self.count(from).await != rows {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(30), arrived).await.is_ok(), "never {rows} rows in {from}");
    }
}

fn config() -> DomainsConfig {
    // A long timeout, because the test machine can be under load.
    DomainsConfig { request_timeout: Duration::from_secs(60), registrar_requests_per_org: u32::MAX }
}

fn service(store: &Store, world: &World, charges: bool, config: DomainsConfig) -> Domains {
    Domains::new(store.clone(), config, ports(world, charges))
}

fn ports(world: &World, charges: bool) -> Ports {
    Ports {
        registrar: Some(Arc::new(world.clone())),
        payments: charges.then(|| Arc::new(world.clone()) as _),
        zones: Arc::new(TestZones { world: world.clone() }),
        organizations: Arc::new(world.clone()),
    }
}

/// Hosted zones, stored as rows in tables of this test. Locks the catalog's row as `dns` does.
struct TestZones {
    world: World,
}

impl TestZones {
    async fn lock_and_check(&self, tx: &mut Connection, org: OrgId, name: &str) -> Result<(), ZoneRefusal> {
        execute(tx, "SELECT * FROM test.catalog FOR UPDATE".to_owned()).await?;
        let (id, below) = (org.as_uuid(), format!("%.{name}"));
        let taken = format!(
            "UPDATE test.catalog SET id = id + 1 WHERE EXISTS (SELECT FROM test.zones \
             WHERE org <> '{id}' AND (name = '{name}' OR name LIKE '{below}') \
             UNION ALL SELECT FROM test.names WHERE org <> '{id}' AND name = '{name}')"
        );
        if execute(tx, taken).await? > 0 {
            return Err(ZoneRefusal::Taken(Box::new(DomainError::Taken(name.to_owned()))));
        }
        Ok(())
    }
}

async fn execute(tx: &mut Connection, statement: String) -> store::Result<usize> {
    Ok(diesel::sql_query(statement).execute(tx).await?)
}

/// Locks an organization, as `orgs` does.
pub async fn lock_org(tx: &mut Connection, org: OrgId) -> store::Result<()> {
    execute(tx, format!("SELECT FROM orgs.orgs WHERE id = '{}' FOR NO KEY UPDATE", org.as_uuid())).await.map(drop)
}

#[async_trait]
impl Zones for TestZones {
    fn nameservers(&self) -> Option<Vec<String>> {
        Some(NAMESERVERS.map(str::to_owned).to_vec())
    }

    async fn reserve(&self, tx: &mut Connection, org: OrgId, name: &str) -> Result<(), ZoneRefusal> {
        self.lock_and_check(tx, org, name).await?;
        let insert = format!("INSERT INTO test.names VALUES ('{name}', '{}') ON CONFLICT DO NOTHING", org.as_uuid());
        execute(tx, insert).await?;
        Ok(())
    }

    async fn release(&self, tx: &mut Connection, name: &str) -> store::Result<()> {
        execute(tx, format!("DELETE FROM test.names WHERE name = '{name}'")).await.map(drop)
    }

    async fn create_reserved(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<()> {
        let failed = |_| store::Error::Unavailable("the zones failed".into());
        self.world.interrupt(name, "zone", When::Before).await.map_err(failed)?;
        execute(tx, "SELECT * FROM test.catalog FOR UPDATE".to_owned()).await?;
        let insert = format!("INSERT INTO test.zones VALUES ('{name}', '{}') ON CONFLICT DO NOTHING", org.as_uuid());
        execute(tx, insert).await?;
        self.release(tx, name).await?;
        self.world.interrupt(name, "zone", When::After).await.map_err(failed)
    }

    async fn prepare(&self, _: &Actor, _: OrgId, _: &str) -> Result<ZoneProof, ZoneRefusal> {
        Ok(ZoneProof::default())
    }

    async fn create(&self, tx: &mut Connection, org: OrgId, name: &str, _: &ZoneProof) -> Result<(), ZoneRefusal> {
        self.lock_and_check(tx, org, name).await?;
        let values = format!("('{name}', '{}') ON CONFLICT DO NOTHING", org.as_uuid());
        execute(tx, format!("INSERT INTO test.zones VALUES {values}")).await?;
        Ok(())
    }

    async fn taken(&self, _: &mut Connection, _: OrgId, _: &[String]) -> store::Result<Vec<String>> {
        Ok(Vec::new())
    }

    async fn ds_wanted(&self, zone: ZoneId) -> store::Result<Option<DsWanted>> {
        Ok(self.world.state().ds_wanted.get(&zone).cloned())
    }

    async fn ds_removal_begin(&self, _: ZoneId) -> store::Result<()> {
        self.world.state().calls.push("ds-removal-begin".to_owned());
        Ok(())
    }

    async fn ds_absent(&self, _: ZoneId) -> store::Result<()> {
        self.world.state().calls.push("ds-absent".to_owned());
        Ok(())
    }
}

pub fn actor() -> Actor {
    Actor::service("test")
}

/// A marker in the test contact. A test searches all stored data for it.
pub const CANARY: &str = "Lovelace-Canary";

pub fn contact() -> Contact {
    let contact = json!({
        "firstName": "Ada", "lastName": CANARY, "email": "ada@example.org", "phone": "+4930123456",
        "street": "Unter den Linden 1", "city": "Berlin", "postalCode": "10117", "country": "DE",
    });
    serde_json::from_value(contact).unwrap()
}

pub fn purchase(name: &str) -> DomainPurchase {
    DomainPurchase {
        name: name.to_owned(),
        contact: contact(),
        years: None,
        auto_renew: None,
        expected_price_cents: None,
    }
}
