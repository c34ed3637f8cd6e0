//! Construction of databases: their part of the desired state, the receivers of reports, the background jobs, and the
//! ports. Convergence, organizations and resources implement the ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use convergence::{
    Builder, ConvergenceError, DatabaseHome, DatabasePlacements, FinalPartWriter, PartSource, PlacementState,
    SourcedPartWriter,
};
use databases::{Databases, Home, Notice, PartValues, Phase, Ports};
use kernel::{Limits, OrgId, ProjectId};
use orgs::Orgs;
use protocol::{Database, DatabaseReport, DeletedBackups, DeletedBackupsReport, ExportReport, GenerationReport};
use resources::GrantRepository as _;
use store::{Connection, Store};

use super::database_reports::ReportsPort;
use super::database_values::part;
use super::error::IntoStoreError as _;
use crate::config::Config;
use crate::jobs::{Background, HOUR, Job, MINUTE};

pub(super) fn wire(
    config: &Config,
    store: &Store,
    orgs: &Orgs,
    convergence: &mut Builder,
    background: &mut Background,
) -> anyhow::Result<Databases> {
    let values = ValuesPort { values: PartValues::new(store.clone()), limits: config.limits };
    let part = PartPort {
        database: convergence.register_sourced_part(Arc::new(values))?,
        deleted_backups: convergence.register_final_part()?,
    };
    let ports = Ports {
        placements: Arc::new(PlacementsPort(convergence.database_placements())),
        part: Arc::new(part),
        organizations: Arc::new(OrgsPort(orgs.clone())),
        grants: Arc::new(GrantsPort),
    };
    let databases = Databases::new(store.clone(), config.limits, ports).with_abuse_limits(config.abuse_limits);
    let reports = Arc::new(ReportsPort(databases.clone()));
    convergence.register_receiver::<DatabaseReport>(reports.clone())?;
    convergence.register_receiver::<GenerationReport>(reports.clone())?;
    convergence.register_receiver::<ExportReport>(reports.clone())?;
    convergence.register_receiver::<DeletedBackupsReport>(reports)?;
    background.job(Job::every(HOUR, "databases.purge_expired"), databases.clone(), async |databases| {
        databases.purge().await.map(drop)
    });
    background.job(Job::every(MINUTE, "databases.notify_stale"), databases.clone(), async |databases| {
        databases.notify_stale().await.map(drop)
    });
    Ok(databases)
}

/// Loads the part for the nodes.
struct ValuesPort {
    values: PartValues,
    limits: Limits,
}

#[async_trait]
impl PartSource<Database> for ValuesPort {
    async fn load(
        &self,
        connection: &mut Connection,
        projects: &[ProjectId],
    ) -> store::Result<BTreeMap<ProjectId, store::Result<Database>>> {
        let loaded = self.values.load(connection, projects).await?;
        Ok(loaded.into_iter().map(|(project, values)| (project, part(&self.limits, values))).collect())
    }
}

struct PlacementsPort(DatabasePlacements);

#[async_trait]
impl databases::Placements for PlacementsPort {
    fn is_linked(&self) -> bool {
        self.0.is_linked()
    }

    async fn lock(&self, tx: &mut Connection, project: ProjectId) -> store::Result<Option<databases::PlacementState>> {
        let placement = self.0.lock(tx, project).await.map_err(|error| error.into_store_error())?;
        Ok(placement.map(|placement| match (placement.state, placement.home) {
            (PlacementState::Suspended, _) => databases::PlacementState::Suspended,
            (PlacementState::Active, Some(_)) => databases::PlacementState::Active,
            (PlacementState::Active | PlacementState::Pending, _) => databases::PlacementState::Pending,
            (
                PlacementState::Draining
                | PlacementState::Sealing
                | PlacementState::Committing
                | PlacementState::Reactivating,
                _,
            ) => databases::PlacementState::Operating,
        }))
    }

    async fn assign(&self, tx: &mut Connection, project: ProjectId) -> store::Result<Home> {
        Ok(match self.0.assign(tx, project).await.map_err(|error| error.into_store_error())? {
            DatabaseHome::Assigned => Home::Assigned,
            DatabaseHome::NoDatabase => Home::NoDatabase,
            DatabaseHome::NoNode => Home::NoNode,
            DatabaseHome::Deleted => Home::Deleted,
        })
    }

    async fn enter(&self, tx: &mut Connection, project: ProjectId, phase: Phase) -> store::Result<()> {
        let state = match phase {
            Phase::Draining => PlacementState::Draining,
            Phase::Sealing => PlacementState::Sealing,
            Phase::Committing => PlacementState::Committing,
            Phase::Reactivating => PlacementState::Reactivating,
            Phase::Done => PlacementState::Active,
        };
        self.0.enter(tx, project, state).await.map_err(|error| error.into_store_error())
    }
}

struct PartPort {
    database: SourcedPartWriter<Database>,
    deleted_backups: FinalPartWriter<DeletedBackups>,
}

#[async_trait]
impl databases::DesiredPart for PartPort {
    async fn publish(&self, tx: &mut Connection, project: ProjectId) -> store::Result<bool> {
        match self.database.write(tx, project).await {
            Ok(()) => Ok(true),
            Err(ConvergenceError::ProjectDeleted) => Ok(false),
            Err(error) => Err(error.into_store_error()),
        }
    }

    async fn withdraw(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()> {
        self.database.remove(tx, project).await.map_err(|error| error.into_store_error())
    }

    async fn publish_deletion(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()> {
        let published = self.deleted_backups.write(tx, project, &DeletedBackups {}).await;
        published.map_err(|error| error.into_store_error())
    }

    async fn end_deletion(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()> {
        self.deleted_backups.end(tx, project).await.map_err(|error| error.into_store_error())
    }
}

struct OrgsPort(Orgs);

#[async_trait]
impl databases::Organizations for OrgsPort {
    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()> {
        self.0.raise_audited(tx, org, to_orgs(notice)).await.map_err(|error| error.into_store_error())
    }
}

fn to_orgs(notice: Notice) -> orgs::Notice {
    match notice {
        Notice::DatabaseLimit { project, limit_bytes } => orgs::Notice::DatabaseLimit { project, limit_bytes },
        Notice::BackupFailed { project, reason } => orgs::Notice::BackupFailed { project, reason },
        Notice::BackupStale { project, since } => orgs::Notice::BackupStale { project, since },
        Notice::RestoreCompleted { project, epoch, seq } => orgs::Notice::RestoreCompleted { project, epoch, seq },
        Notice::RestoreFailed { project, epoch, seq, reason } => {
            orgs::Notice::RestoreFailed { project, epoch, seq, reason }
        }
        Notice::DatabaseDeleted { project } => orgs::Notice::DatabaseDeleted { project },
    }
}

struct GrantsPort;

#[async_trait]
impl databases::Grants for GrantsPort {
    async fn has_auth(&self, tx: &mut Connection, project: ProjectId) -> store::Result<bool> {
        Ok(tx.grant_list(project).await?.auth)
    }
}
