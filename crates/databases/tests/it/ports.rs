//! The ports of the service under test. The placements are those of `convergence` in the database, accessed with SQL.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use databases::{DesiredPart, Grants, Home, Notice, Organizations, Phase, PlacementState, Placements};
use diesel::QueryableByName;
use diesel::sql_types::{Bool, Nullable, Text};
use diesel_async::RunQueryDsl as _;
use kernel::{OrgId, ProjectId};
use store::Connection;

/// Placements with the rules of `convergence::DatabasePlacements`.
pub struct SqlPlacements;

#[derive(QueryableByName)]
struct Placed {
    #[diesel(sql_type = Text)]
    state: String,
    #[diesel(sql_type = Bool)]
    has_home: bool,
    #[diesel(sql_type = Nullable<Text>)]
    database_host: Option<String>,
}

async fn placed(tx: &mut Connection, project: ProjectId) -> store::Result<Option<Placed>> {
    let query = format!(
        "SELECT p.state, p.node_id IS NOT NULL AS has_home, n.database_host FROM convergence.placements p \
         LEFT JOIN convergence.nodes n ON n.id = p.node_id \
         WHERE p.project_id = '{}' AND p.ended_at IS NULL FOR UPDATE OF p",
        project.as_uuid()
    );
    Ok(diesel::sql_query(query).load(tx).await?.pop())
}

#[async_trait]
impl Placements for SqlPlacements {
    fn is_linked(&self) -> bool {
        true
    }

    async fn lock(&self, tx: &mut Connection, project: ProjectId) -> store::Result<Option<PlacementState>> {
        Ok(placed(tx, project).await?.map(|placed| match placed.state.as_str() {
            "suspended" => PlacementState::Suspended,
            "active" if placed.has_home => PlacementState::Active,
            "active" | "pending" => PlacementState::Pending,
            _ => PlacementState::Operating,
        }))
    }

    async fn assign(&self, tx: &mut Connection, project: ProjectId) -> store::Result<Home> {
        let placement = placed(tx, project).await?;
        let Some(placement) = placement else { return Ok(Home::Deleted) };
        if !placement.has_home {
            return Ok(Home::NoNode);
        }
        Ok(if placement.database_host.is_some() { Home::Assigned } else { Home::NoDatabase })
    }

    async fn enter(&self, tx: &mut Connection, project: ProjectId, phase: Phase) -> store::Result<()> {
        let (state, before) = match phase {
            Phase::Draining => ("draining", "'active'"),
            Phase::Sealing => ("sealing", "'draining'"),
            Phase::Committing => ("committing", "'sealing'"),
            Phase::Reactivating => ("reactivating", "'committing'"),
            Phase::Done => ("active", "'draining', 'sealing', 'committing', 'reactivating'"),
        };
        let raise = u8::from(phase == Phase::Reactivating);
        let update = format!(
            "UPDATE convergence.placements SET state = '{state}', epoch = epoch + {raise} \
             WHERE project_id = '{}' AND state IN ({before})",
            project.as_uuid()
        );
        let entered = diesel::sql_query(update).execute(tx).await?;
        if entered == 1 { Ok(()) } else { Err(store::Error::inconsistent(format!("cannot enter {state}"))) }
    }
}

/// Records the updates of the desired state. Reads from the database whether a project was deleted.
#[derive(Clone, Default)]
pub struct Node(Arc<Mutex<Vec<Update>>>);

/// An update of the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    Published(ProjectId),
    Withdrawn(ProjectId),
    DeletionPublished(ProjectId),
    DeletionEnded(ProjectId),
}

impl Node {
    pub fn take_updates(&self) -> Vec<Update> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[async_trait]
impl DesiredPart for Node {
    async fn publish(&self, tx: &mut Connection, project: ProjectId) -> store::Result<bool> {
        let is_live = placed(tx, project).await?.is_some();
        if is_live {
            self.0.lock().unwrap().push(Update::Published(project));
        }
        Ok(is_live)
    }

    async fn withdraw(&self, _: &mut Connection, project: ProjectId) -> store::Result<()> {
        self.0.lock().unwrap().push(Update::Withdrawn(project));
        Ok(())
    }

    async fn publish_deletion(&self, _: &mut Connection, project: ProjectId) -> store::Result<()> {
        self.0.lock().unwrap().push(Update::DeletionPublished(project));
        Ok(())
    }

    async fn end_deletion(&self, _: &mut Connection, project: ProjectId) -> store::Result<()> {
        self.0.lock().unwrap().push(Update::DeletionEnded(project));
        Ok(())
    }
}

/// Records the raised notifications.
#[derive(Clone, Default)]
pub struct Notices(Arc<Mutex<Vec<(OrgId, Notice)>>>);

impl Notices {
    pub fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.0.lock().unwrap()).into_iter().map(|(_, notice)| notice).collect()
    }
}

#[async_trait]
impl Organizations for Notices {
    async fn raise(&self, _: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()> {
        self.0.lock().unwrap().push((org, notice));
        Ok(())
    }
}

/// The grants in the database.
pub struct SqlGrants;

#[async_trait]
impl Grants for SqlGrants {
    async fn has_auth(&self, tx: &mut Connection, project: ProjectId) -> store::Result<bool> {
        let query = format!(
            "SELECT 1 AS one FROM resources.grants WHERE project_id = '{}' AND resource = 'auth'",
            project.as_uuid()
        );
        Ok(diesel::sql_query(query).execute(tx).await? == 1)
    }
}
