//! Fakes of the ports. Organizations use real rows and locks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::QueryableByName;
use diesel::result::OptionalExtension as _;
use diesel::sql_types::{Text, Uuid};
use diesel_async::RunQueryDsl as _;
use kernel::{ClockRng, NotificationId, OrgId, Plan, ProjectId, Role, UserId, ZoneId};
use projects::{
    HostedZone, LiveState, LookupFailure, Notice, Organizations, Placements, PublishedRecords, Push, Pushes, Resolver,
    Zones,
};
use store::Connection;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};

/// Reads organizations from the database, and records notifications.
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
        Ok(Some(ClockRng::system().id()))
    }
}

/// Records updates of the desired state, and fails on request.
#[derive(Clone, Default)]
pub struct Node {
    updates: Arc<Mutex<Vec<(ProjectId, LiveState)>>>,
    removed: Arc<Mutex<Vec<ProjectId>>>,
    failures: Arc<AtomicUsize>,
}

impl Node {
    /// Returns the updates since the last call.
    pub fn take_updates(&self) -> Vec<(ProjectId, LiveState)> {
        std::mem::take(&mut *self.updates.lock().unwrap())
    }

    /// Returns the removed projects since the last call.
    pub fn take_removed(&self) -> Vec<ProjectId> {
        std::mem::take(&mut *self.removed.lock().unwrap())
    }

    /// Makes the next `count` calls fail.
    pub fn fail(&self, count: usize) {
        self.failures.store(count, Ordering::SeqCst);
    }
}

#[async_trait::async_trait]
impl Placements for Node {
    async fn lock(&self, _: &mut Connection, _: &str, _: &[ProjectId]) -> store::Result<()> {
        Ok(())
    }

    async fn set_desired(&self, _: &mut Connection, project: ProjectId, live: LiveState) -> store::Result<()> {
        self.updates.lock().unwrap().push((project, live));
        self.fail_if_due()
    }

    async fn remove(&self, _: &mut Connection, project: ProjectId) -> store::Result<()> {
        self.removed.lock().unwrap().push(project);
        self.fail_if_due()
    }

    async fn purge_batch(&self, _: &mut Connection, _: ProjectId) -> store::Result<bool> {
        Ok(false)
    }

    async fn purge(&self, _: &mut Connection, _: ProjectId) -> store::Result<()> {
        self.fail_if_due()
    }
}

impl Node {
    fn fail_if_due(&self) -> store::Result<()> {
        let due = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match due {
            Ok(_) => Err(store::Error::inconsistent("requested failure")),
            Err(_) => Ok(()),
        }
    }
}

/// A record type and a name.
type Question = (&'static str, String);

/// The id of the hosted zone.
pub const ZONE_ID: ZoneId = ZoneId::from_uuid(uuid::Uuid::nil());

/// A fake of the public DNS and of the hosted zones.
#[derive(Clone, Default)]
pub struct Records {
    records: Arc<Mutex<HashMap<Question, Vec<String>>>>,
    silent: Arc<AtomicUsize>,
    txt_lookups: Arc<AtomicUsize>,
    open_txt_lookups: Arc<AtomicUsize>,
    max_open_txt_lookups: Arc<AtomicUsize>,
    gate: Arc<RwLock<()>>,
}

impl Records {
    pub fn txt(&self, name: &str, texts: &[String]) {
        self.records.lock().unwrap().insert(("TXT", name.to_owned()), texts.to_vec());
    }

    pub fn cname(&self, name: &str, target: &str) {
        self.records.lock().unwrap().insert(("CNAME", name.to_owned()), vec![target.to_owned()]);
    }

    /// Adds a hosted zone for all organizations.
    pub fn zone(&self, zone: &str) {
        self.records.lock().unwrap().insert(("ZONE", String::new()), vec![zone.to_owned()]);
    }

    /// Removes all records and zones.
    pub fn clear(&self) {
        self.records.lock().unwrap().clear();
    }

    /// Makes all lookups time out, or not.
    pub fn set_silent(&self, silent: bool) {
        self.silent.store(usize::from(silent), Ordering::SeqCst);
    }

    /// Delays the responses of TXT lookups until the guard is dropped.
    pub async fn block_txt(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.gate).write_owned().await
    }

    /// Returns the number of TXT lookups since the last call.
    pub fn take_txt_lookups(&self) -> usize {
        self.txt_lookups.swap(0, Ordering::SeqCst)
    }

    /// Returns the highest number of concurrent TXT lookups.
    pub fn max_open_txt_lookups(&self) -> usize {
        AtomicUsize::load(&self.max_open_txt_lookups, Ordering::SeqCst)
    }

    fn lookup(&self, kind: &'static str, name: &str) -> Result<Vec<String>, LookupFailure> {
        if AtomicUsize::load(&self.silent, Ordering::SeqCst) > 0 {
            let message = "the name server did not answer in time".to_owned();
            return Err(LookupFailure { message, transient: true });
        }
        Ok(self.records.lock().unwrap().get(&(kind, name.to_owned())).cloned().unwrap_or_default())
    }
}

#[async_trait::async_trait]
impl Resolver for Records {
    async fn txt(&self, name: &str, _: Duration) -> Result<Vec<String>, LookupFailure> {
        // Look the records up before the wait: a delayed answer contains the records at the time of the query.
        let answer = self.lookup("TXT", name);
        self.txt_lookups.fetch_add(1, Ordering::SeqCst);
        let open = self.open_txt_lookups.fetch_add(1, Ordering::SeqCst) + 1;
        self.max_open_txt_lookups.fetch_max(open, Ordering::SeqCst);
        // Concurrent lookups begin before this one ends.
        tokio::task::yield_now().await;
        let _open = self.gate.read().await;
        self.open_txt_lookups.fetch_sub(1, Ordering::SeqCst);
        answer
    }

    async fn cname(&self, name: &str, _: Duration) -> Result<Option<String>, LookupFailure> {
        Ok(self.lookup("CNAME", name)?.into_iter().next())
    }
}

#[async_trait::async_trait]
impl Zones for Records {
    async fn zone_of(&self, _: &mut Connection, _: OrgId, name: &str) -> store::Result<Option<HostedZone>> {
        let zones = self.lookup("ZONE", "").unwrap_or_default();
        let zone = zones.into_iter().find(|zone| name.ends_with(zone.as_str()));
        Ok(zone.map(|name| HostedZone { id: ZONE_ID, name }))
    }

    async fn link(&self, _: &mut Connection, _: OrgId, _: &str) -> store::Result<PublishedRecords> {
        Ok(PublishedRecords::default())
    }

    async fn unlink(&self, _: &mut Connection, _: OrgId, _: &[&str]) -> store::Result<()> {
        Ok(())
    }
}

/// No push is deployed.
pub struct NoPushes;

#[async_trait::async_trait]
impl Pushes for NoPushes {
    async fn is_next(&self, _: &mut Connection, _: Push) -> store::Result<bool> {
        Ok(false)
    }

    async fn complete(&self, _: &mut Connection, _: Push, _: i32) -> store::Result<bool> {
        Ok(false)
    }
}
