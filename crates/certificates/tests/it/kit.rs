//! The test fixture: the service on a separate database per test, with authorities that fail in a given way.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use certificates::{
    Authority, AuthorityError, AuthorityOrder, AuthoritySession, CaaRecord, CertificateReference, Certificates,
    CertificatesConfig, Challenge, DesiredPart, Notice, Organizations, Ports, Projects, Propagation, PublishedRecord,
    RenewalWindow, Resolver, Zones,
};
use diesel_async::RunQueryDsl as _;
use kernel::{OrgId, ProjectId, Secret};
use serde_json::Value;
use store::{Connection, Store};
use testkit::TestStore;
use tokio::sync::watch;

pub struct Kit {
    pub certificates: Certificates,
    pub org: OrgId,
    pub authorities: Vec<Arc<FailingAuthority>>,
    pub ports: Arc<TestPorts>,
    base: TestStore,
}

/// An authority that fails every call, and counts them. It can accept accounts, and stall.
pub struct FailingAuthority {
    directory: String,
    failure: Arc<Mutex<AuthorityError>>,
    accepts_accounts: Mutex<bool>,
    calls: Mutex<usize>,
    orders: Arc<Mutex<Vec<String>>>,
    /// Whether orders wait for their response.
    stalls: watch::Sender<bool>,
}

/// A session in which every call fails.
struct FailingSession {
    failure: Arc<Mutex<AuthorityError>>,
    orders: Arc<Mutex<Vec<String>>>,
    stalls: watch::Receiver<bool>,
}

impl FailingSession {
    fn failure<T>(&self) -> Result<T, AuthorityError> {
        Err(self.failure.lock().unwrap().clone())
    }
}

#[async_trait]
impl AuthoritySession for FailingSession {
    fn account_url(&self) -> &str {
        "https://ca.example/account/1"
    }

    fn caa_identities(&self) -> &[String] {
        &[]
    }

    async fn create_order(&self, name: &str, _: Option<&str>) -> Result<AuthorityOrder, AuthorityError> {
        self.orders.lock().unwrap().push(name.to_owned());
        self.stalls.clone().wait_for(|stalls| !stalls).await.unwrap();
        self.failure()
    }

    async fn order(&self, _: &str) -> Result<AuthorityOrder, AuthorityError> {
        self.failure()
    }

    async fn validate(&self, _: &str, _: Challenge) -> Result<(), AuthorityError> {
        self.failure()
    }

    async fn finalize(&self, _: &str, _: &[u8]) -> Result<(), AuthorityError> {
        self.failure()
    }

    async fn certificate(&self, _: &str) -> Result<String, AuthorityError> {
        self.failure()
    }
}

impl FailingAuthority {
    pub fn fail(&self, failure: AuthorityError) {
        *self.failure.lock().unwrap() = failure;
    }

    /// Accepts accounts from now on, and fails only orders.
    pub fn accept_accounts(&self) {
        *self.accepts_accounts.lock().unwrap() = true;
    }

    /// Delays the response to each order until the next call of this function with `false`.
    pub fn stall(&self, stalls: bool) {
        self.stalls.send_replace(stalls);
    }

    /// Waits until an order arrives.
    pub async fn wait_for_order(&self) {
        while self.orders.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns the names of the orders since the last call of this function.
    pub fn orders(&self) -> Vec<String> {
        std::mem::take(&mut self.orders.lock().unwrap())
    }

    /// Returns the number of calls since the last call of this function.
    pub fn calls(&self) -> usize {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

#[async_trait]
impl Authority for FailingAuthority {
    fn directory(&self) -> &str {
        &self.directory
    }

    async fn create_account(&self) -> Result<Secret, AuthorityError> {
        *self.calls.lock().unwrap() += 1;
        match *self.accepts_accounts.lock().unwrap() {
            true => Ok(Secret::new("account".to_owned())),
            false => Err(self.failure.lock().unwrap().clone()),
        }
    }

    async fn open(&self, _: &Secret) -> Result<Box<dyn AuthoritySession>, AuthorityError> {
        match *self.accepts_accounts.lock().unwrap() {
            true => Ok(Box::new(FailingSession {
                failure: self.failure.clone(),
                orders: self.orders.clone(),
                stalls: self.stalls.subscribe(),
            })),
            false => Err(self.failure.lock().unwrap().clone()),
        }
    }

    async fn renewal_window(&self, _: &str) -> Result<Option<RenewalWindow>, AuthorityError> {
        Err(self.failure.lock().unwrap().clone())
    }
}

/// The other ports. There are no CAA records.
#[derive(Default)]
pub struct TestPorts {
    /// The published parts: the project, and the names of its certificates.
    pub published: Mutex<Vec<(ProjectId, Vec<String>)>>,
    pub notices: Mutex<Vec<Notice>>,
    /// A statement that the next lock of a project executes, as if another server had executed it before.
    pub at_lock: Mutex<Option<String>>,
    /// The hosted zone of all names. It is not delegated to the platform.
    pub zone: Mutex<Option<String>>,
    /// Whether names have an address in the public DNS.
    pub has_addresses: Mutex<bool>,
    /// The number of lookups of CAA records.
    pub caa_lookups: Mutex<usize>,
}

#[async_trait]
impl Resolver for TestPorts {
    async fn caa(&self, _: &str) -> Result<Vec<CaaRecord>, String> {
        *self.caa_lookups.lock().unwrap() += 1;
        Ok(Vec::new())
    }

    async fn has_address(&self, _: &str) -> Result<bool, String> {
        Ok(*self.has_addresses.lock().unwrap())
    }
}

#[async_trait]
impl Zones for TestPorts {
    async fn find(&self, _: &mut Connection, _: OrgId, _: &str) -> store::Result<Option<String>> {
        Ok(self.zone.lock().unwrap().clone())
    }

    async fn is_delegated(&self, _: &str) -> bool {
        false
    }

    async fn lock(&self, _: &mut Connection, _: &[(OrgId, String)]) -> store::Result<()> {
        Ok(())
    }

    async fn publish(&self, _: &mut Connection, _: OrgId, _: &str, _: &str) -> store::Result<PublishedRecord> {
        Ok(PublishedRecord::Refused("there is no zone".to_owned()))
    }

    async fn withdraw(&self, _: &mut Connection, _: OrgId, _: &str, _: &str) -> store::Result<()> {
        Ok(())
    }

    async fn propagation(&self, _: &str, _: &str) -> Propagation {
        Propagation::default()
    }
}

#[async_trait]
impl DesiredPart for TestPorts {
    async fn lock(&self, _: &mut Connection, _: &[ProjectId]) -> store::Result<()> {
        Ok(())
    }

    async fn publish(
        &self,
        _: &mut Connection,
        project: ProjectId,
        certificates: &[CertificateReference],
    ) -> store::Result<()> {
        let names = certificates.iter().map(|certificate| certificate.name.clone()).collect();
        self.published.lock().unwrap().push((project, names));
        Ok(())
    }
}

#[async_trait]
impl Projects for TestPorts {
    async fn lock(&self, tx: &mut Connection, _: OrgId, _: ProjectId) -> store::Result<()> {
        let statement = self.at_lock.lock().unwrap().take();
        if let Some(statement) = statement {
            diesel::sql_query(statement).execute(tx).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Organizations for TestPorts {
    async fn raise(&self, _: &mut Connection, _: OrgId, notice: Notice) -> store::Result<()> {
        self.notices.lock().unwrap().push(notice);
        Ok(())
    }
}

impl Deref for Kit {
    type Target = TestStore;

    fn deref(&self) -> &TestStore {
        &self.base
    }
}

impl Kit {
    /// Creates the organization `acme`, and the service with this number of authorities, which are unavailable.
    pub async fn start(authorities: usize) -> Self {
        Self::on(TestStore::start().await, authorities).await
    }

    /// As [`Self::start`], in this store.
    pub async fn on(base: TestStore, authorities: usize) -> Self {
        let org = insert_org(&base, "acme").await;
        let authority = |number| {
            let directory = format!("https://ca{number}.example/directory");
            let failure = Arc::new(Mutex::new(AuthorityError::Unavailable("no response".to_owned())));
            let (accepts_accounts, calls, orders) = (Mutex::default(), Mutex::default(), Arc::default());
            let stalls = watch::Sender::new(false);
            Arc::new(FailingAuthority { directory, failure, accepts_accounts, calls, orders, stalls })
        };
        let authorities: Vec<_> = (0..authorities).map(authority).collect();
        let ports = Arc::<TestPorts>::default();
        let certificates = service(&base.store, (None, None), &authorities, &ports);
        Self { certificates, org, authorities, ports, base }
    }

    /// Returns the service with a platform organization.
    pub fn with_platform_org(&self) -> Certificates {
        service(&self.base.store, (Some(self.org), None), &self.authorities, &self.ports)
    }

    /// Returns the service of a server that terminates TLS for the API at this hostname.
    pub fn with_api(&self, hostname: &str, platform_org: Option<OrgId>) -> Certificates {
        service(&self.base.store, (platform_org, Some(hostname.to_owned())), &self.authorities, &self.ports)
    }

    /// Returns the service without an authority.
    pub fn without_authorities(&self) -> Certificates {
        service(&self.base.store, (None, None), &[], &self.ports)
    }

    /// Creates another organization.
    pub async fn another_org(&self, slug: &str) -> OrgId {
        insert_org(&self.base, slug).await
    }

    /// Creates a deployed project with these active hostnames.
    pub async fn project(&self, name: &str, hostnames: &[&str]) -> ProjectId {
        self.project_of(self.org, name, hostnames).await
    }

    /// Creates a deployed project of an organization, with these active hostnames.
    pub async fn project_of(&self, org: OrgId, name: &str, hostnames: &[&str]) -> ProjectId {
        let project: ProjectId = self.base.store.clock_rng().id();
        let (id, org) = (project.as_uuid(), org.as_uuid());
        self.db_execute(&format!(
            "INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at) \
             VALUES ('{id}', '{org}', '{name}', 'public', 1, now()); \
             INSERT INTO projects.deployments (id, project_id, version, digest, size_bytes, declares, has_worker, \
                 asset_count, created_by, created_by_subject, created_at) \
             VALUES ('{id}', '{id}', 1, decode(repeat('00', 32), 'hex'), 1, '{{}}', false, 1, '{id}', 'ada', now()); \
             UPDATE projects.projects SET live_version = 1 WHERE id = '{id}'"
        ))
        .await;
        for hostname in hostnames {
            self.serve(project, hostname).await;
        }
        project
    }

    /// Gives an active hostname to a project.
    pub async fn serve(&self, project: ProjectId, hostname: &str) {
        self.db_execute(&format!(
            "INSERT INTO projects.hostnames (name, project_id, kind, state, created_at) \
             VALUES ('{hostname}', '{0}', 'custom', 'active', now()) ON CONFLICT (name) DO UPDATE SET project_id = '{0}'",
            project.as_uuid()
        ))
        .await;
    }

    /// Inserts a certificate of a name that expires after these days.
    pub async fn certify(&self, name: &str, days: u32) {
        self.db_execute(&format!(
            "INSERT INTO certificates.certificates (id, name, directory, chain, key_id, sealed, not_before, not_after, \
                 created_at) \
             SELECT gen_random_uuid(), '{name}', 'https://ca0.example/directory', '', 'x', '', n, \
                 n + interval '{days} days', n FROM (SELECT '{}'::timestamptz AS n) AS begin; \
             UPDATE certificates.names SET state = 'active', renew_at = due_at + interval '{days} days' \
                 WHERE name = '{name}'",
            self.now()
        ))
        .await;
    }

    /// Returns the names with a certificate.
    pub async fn certified(&self) -> Vec<String> {
        let rows = self.db_rows("SELECT name FROM certificates.certificates ORDER BY name").await;
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    }

    pub async fn sync(&self, project: ProjectId) {
        self.sync_with(&self.certificates, project).await;
    }

    pub async fn sync_with(&self, certificates: &Certificates, project: ProjectId) {
        let sync = self.base.store.transaction_unaudited(async |tx: &mut Connection| {
            certificates.sync(tx, project).await?;
            Ok::<_, store::Error>(())
        });
        sync.await.unwrap();
    }

    /// Returns the wanted names, as `name state`.
    pub async fn names(&self) -> Vec<String> {
        let rows = self.db_rows("SELECT name, state FROM certificates.names WHERE wanted ORDER BY name").await;
        let text = |row: &Value| format!("{} {}", row["name"].as_str().unwrap(), row["state"].as_str().unwrap());
        rows.iter().map(text).collect()
    }
}

async fn insert_org(base: &TestStore, slug: &str) -> OrgId {
    let org: OrgId = base.store.clock_rng().id();
    base.db_execute(&format!(
        "INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at) \
         VALUES ('{}', '{slug}', '{slug}', 'free', false, now())",
        org.as_uuid()
    ))
    .await;
    org
}

fn service(
    store: &Store,
    (platform_org, api_hostname): (Option<OrgId>, Option<String>),
    authorities: &[Arc<FailingAuthority>],
    ports: &Arc<TestPorts>,
) -> Certificates {
    let platform_domain = "apps.example".to_owned();
    let config = CertificatesConfig { platform_domain, platform_org, api_hostname };
    let authorities = authorities.iter().map(|authority| authority.clone() as Arc<dyn Authority>).collect();
    let ports = Ports {
        authorities,
        resolver: ports.clone(),
        zones: ports.clone(),
        desired: ports.clone(),
        projects: ports.clone(),
        organizations: ports.clone(),
    };
    Certificates::new(store.clone(), config, ports)
}
