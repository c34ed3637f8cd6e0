//! What projects ask of others, answered in small: an organization's row that is really locked, and a node's list.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use diesel::QueryableByName;
use diesel::result::OptionalExtension as _;
use diesel::sql_types::{Text, Uuid};
use diesel_async::RunQueryDsl as _;
use kernel::audit::Actor;
use kernel::{OrgId, Plan, ProjectId};
use projects::{Live, Organizations, Placements};
use store::Connection;

/// Remembers whose limit was reached.
#[derive(Clone, Default)]
pub struct OrgRows {
    pub reached: Arc<Mutex<Vec<(OrgId, u32)>>>,
}

#[derive(QueryableByName)]
struct PlanRow {
    #[diesel(sql_type = Text)]
    plan: Plan,
}

#[async_trait::async_trait]
impl Organizations for OrgRows {
    async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<Option<Plan>> {
        let query = diesel::sql_query("SELECT plan FROM orgs.orgs WHERE id = $1 FOR UPDATE").bind::<Uuid, _>(org);
        Ok(query.get_result::<PlanRow>(tx).await.optional()?.map(|row| row.plan))
    }

    async fn limit_reached(&self, _: &Actor, org: OrgId, limit: u32) -> store::Result<()> {
        self.reached.lock().unwrap().push((org, limit));
        Ok(())
    }
}

/// Remembers what it was told, and fails when it was told to.
#[derive(Clone, Default)]
pub struct Node {
    told: Arc<Mutex<Vec<(ProjectId, Live)>>>,
    failures: Arc<AtomicUsize>,
}

impl Node {
    /// What it was told since the last look.
    pub fn told(&self) -> Vec<(ProjectId, Live)> {
        std::mem::take(&mut *self.told.lock().unwrap())
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
        let due = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match due {
            Ok(_) => Err(store::Error::inconsistent("told to fail")),
            Err(_) => Ok(()),
        }
    }
}
