//! What projects ask of others, answered in small: an organization's row that is really locked, and a node's list.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::QueryableByName;
use diesel::result::OptionalExtension as _;
use diesel::sql_types::{Text, Uuid};
use diesel_async::RunQueryDsl as _;
use kernel::{NotificationId, OrgId, Plan, ProjectId, Role, UserId, World};
use projects::{Linked, Live, LookupFailure, Notice, Organizations, Placements, Resolver, Zones};
use store::Connection;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};

/// Records the notifications that are raised.
#[derive(Clone, Default)]
pub struct OrgRows {
    pub raised: Arc<Mutex<Vec<(OrgId, Notice)>>>,
}

#[derive(QueryableByName)]
struct PlanRow {
    #[diesel(sql_type = Text)]
    plan: Plan,
}

#[derive(QueryableByName)]
struct RoleRow {
    #[diesel(sql_type = Text)]
    role: Role,
}

#[async_trait::async_trait]
impl Organizations for OrgRows {
    async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<Option<Plan>> {
        let query = diesel::sql_query("SELECT plan FROM orgs.orgs WHERE id = $1 FOR UPDATE").bind::<Uuid, _>(org);
        Ok(query.get_result::<PlanRow>(tx).await.optional()?.map(|row| row.plan))
    }

    async fn role(&self, connection: &mut Connection, org: OrgId, user: UserId) -> store::Result<Option<Role>> {
        let query = diesel::sql_query("SELECT role FROM orgs.members WHERE org_id = $1 AND user_id = $2");
        let query = query.bind::<Uuid, _>(org).bind::<Uuid, _>(user);
        Ok(query.get_result::<RoleRow>(connection).await.optional()?.map(|row| row.role))
    }

    async fn raise(&self, _: &mut Connection, org: OrgId, notice: Notice) -> store::Result<Option<NotificationId>> {
        let mut raised = self.raised.lock().unwrap();
        if matches!(notice, Notice::ProjectLimit { .. }) && raised.contains(&(org, notice.clone())) {
            return Ok(None);
        }
        raised.push((org, notice));
        Ok(Some(World::system().id()))
    }
}

/// Remembers what it was told, and fails when it was told to.
#[derive(Clone, Default)]
pub struct Node {
    told: Arc<Mutex<Vec<(ProjectId, Live)>>>,
    ended: Arc<Mutex<Vec<ProjectId>>>,
    failures: Arc<AtomicUsize>,
}

impl Node {
    /// What it was told since the last look.
    pub fn told(&self) -> Vec<(ProjectId, Live)> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }

    /// What it was told to serve no longer, since the last look.
    pub fn ended(&self) -> Vec<ProjectId> {
        std::mem::take(&mut *self.ended.lock().unwrap())
    }

    /// The next `count` calls fail.
    pub fn fail(&self, count: usize) {
        self.failures.store(count, Ordering::SeqCst);
    }
}

#[async_trait::async_trait]
impl Placements for Node {
    async fn converge(&self, _: &mut Connection, project: ProjectId, live: Live) -> store::Result<()> {
        self.told.lock().unwrap().push((project, live));
        self.fail_if_due()
    }

    async fn remove(&self, _: &mut Connection, project: ProjectId) -> store::Result<()> {
        self.ended.lock().unwrap().push(project);
        self.fail_if_due()
    }
}

impl Node {
    fn fail_if_due(&self) -> store::Result<()> {
        let due = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match due {
            Ok(_) => Err(store::Error::inconsistent("told to fail")),
            Err(_) => Ok(()),
        }
    }
}

/// A type and a name.
type Question = (&'static str, String);

/// The public DNS as a test writes it, and the zones that are hosted here.
#[derive(Clone, Default)]
pub struct Records {
    records: Arc<Mutex<HashMap<Question, Vec<String>>>>,
    silent: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
    gate: Arc<RwLock<()>>,
}

impl Records {
    pub fn txt(&self, name: &str, texts: &[String]) {
        self.records.lock().unwrap().insert(("TXT", name.to_owned()), texts.to_vec());
    }

    pub fn cname(&self, name: &str, target: &str) {
        self.records.lock().unwrap().insert(("CNAME", name.to_owned()), vec![target.to_owned()]);
    }

    /// A zone that is hosted here, whoever asks.
    pub fn zone(&self, zone: &str) {
        self.records.lock().unwrap().insert(("ZONE", String::new()), vec![zone.to_owned()]);
    }

    /// Everything that is known of a name is gone.
    pub fn forget(&self) {
        self.records.lock().unwrap().clear();
    }

    /// Whether nobody answers.
    pub fn silence(&self, silent: bool) {
        self.silent.store(usize::from(silent), Ordering::SeqCst);
    }

    /// No answer about TXT comes until the guard is dropped.
    pub async fn hold(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.gate).write_owned().await
    }

    /// How many TXT records were asked for since the last look.
    pub fn asked(&self) -> usize {
        self.asked.swap(0, Ordering::SeqCst)
    }

    fn look(&self, kind: &'static str, name: &str) -> Result<Vec<String>, LookupFailure> {
        if AtomicUsize::load(&self.silent, Ordering::SeqCst) > 0 {
            let message = "the name server did not answer in time".to_owned();
            return Err(LookupFailure { message, temporary: true });
        }
        Ok(self.records.lock().unwrap().get(&(kind, name.to_owned())).cloned().unwrap_or_default())
    }
}

#[async_trait::async_trait]
impl Resolver for Records {
    async fn txt(&self, name: &str, _: Duration) -> Result<Vec<String>, LookupFailure> {
        // As a name server would: what it says is from when it was asked.
        let answer = self.look("TXT", name);
        self.asked.fetch_add(1, Ordering::SeqCst);
        let _open = self.gate.read().await;
        answer
    }

    async fn cname(&self, name: &str, _: Duration) -> Result<Option<String>, LookupFailure> {
        Ok(self.look("CNAME", name)?.into_iter().next())
    }
}

#[async_trait::async_trait]
impl Zones for Records {
    async fn zone_of(&self, _: &mut Connection, _: OrgId, name: &str) -> store::Result<Option<String>> {
        let zones = self.look("ZONE", "").unwrap_or_default();
        Ok(zones.into_iter().find(|zone| name.ends_with(zone.as_str())))
    }

    async fn link(&self, _: &mut Connection, _: OrgId, _: &str) -> store::Result<Linked> {
        Ok(Linked::default())
    }

    async fn unlink(&self, _: &mut Connection, _: OrgId, _: &str) -> store::Result<()> {
        Ok(())
    }
}
