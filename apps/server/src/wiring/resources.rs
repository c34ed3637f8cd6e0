//! Construction of resources: their parts of the desired state, the receiver of reports about storage, and the ports.
//! Convergence, organizations, databases and projects implement the ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use convergence::{
    Builder, ConvergenceError, DatabasePlacements, FinalPartWriter, PartSource, PartWriter, ReportReceiver,
    SourcedPartWriter,
};
use databases::{DatabaseRepository as _, OperationKind, OperationRepository as _};
use kernel::{OrgId, ProjectId, StorageId};
use orgs::Orgs;
use projects::{HostnameRepository as _, HostnameState};
use protocol::{Ai, Auth, DeletedStorage, DeletedStorageReport, Email, SecretValue, Secrets, Storage, StorageReport};
use resources::{Notice, PartValues, Ports, ResourcePart, Resources, SecretSet, StorageGrant};
use store::{Connection, Store};

use super::auth_values::part;
use super::error::IntoStoreError as _;
use crate::config::Config;

pub(super) fn wire(
    config: &Config,
    store: &Store,
    orgs: &Orgs,
    convergence: &mut Builder,
) -> anyhow::Result<Resources> {
    let values = Arc::new(ValuesPort(PartValues::new(store.clone(), config.limits)));
    let parts = PartsPort {
        secrets: convergence.register_sourced_part(values.clone())?,
        storage: convergence.register_sourced_part(values.clone())?,
        email: convergence.register_sourced_part(values.clone())?,
        auth: convergence.register_sourced_part(values)?,
        ai: convergence.register_part()?,
        deleted_storage: convergence.register_final_part()?,
    };
    let ports = Ports {
        parts: Arc::new(parts),
        organizations: Arc::new(OrgsPort(orgs.clone())),
        databases: Arc::new(DatabasesPort(convergence.database_placements())),
        hostnames: Arc::new(HostnamesPort),
    };
    let resources = Resources::new(store.clone(), config.limits, ports);
    let resources = resources.with_mail_domain(config.gateway.site.mail_domain.clone());
    let reports = Arc::new(ReportsPort(resources.clone()));
    convergence.register_receiver::<StorageReport>(reports.clone())?;
    convergence.register_receiver::<DeletedStorageReport>(reports)?;
    Ok(resources)
}

/// Loads the values of the parts for the nodes.
struct ValuesPort(PartValues);

#[async_trait]
impl PartSource<Secrets> for ValuesPort {
    /// The secrets of a project have up to 2 MiB, and in JSON up to six times as much.
    fn max_batch(&self) -> usize {
        4
    }

    async fn load(
        &self,
        connection: &mut Connection,
        projects: &[ProjectId],
    ) -> store::Result<BTreeMap<ProjectId, store::Result<Secrets>>> {
        let secrets = |SecretSet { revision, values }| {
            let values =
                values.into_iter().map(|(name, value)| (name.to_string(), SecretValue::new(value.reveal().to_owned())));
            Secrets { revision, values: values.collect() }
        };
        let sets = self.0.secrets(connection, projects).await?;
        Ok(sets.into_iter().map(|(project, set)| (project, set.map(secrets))).collect())
    }
}

#[async_trait]
impl PartSource<Storage> for ValuesPort {
    async fn load(
        &self,
        connection: &mut Connection,
        projects: &[ProjectId],
    ) -> store::Result<BTreeMap<ProjectId, store::Result<Storage>>> {
        let storage = |StorageGrant { prefix, quota_bytes }| Storage { prefix: prefix.to_string(), quota_bytes };
        let granted = self.0.storage(connection, projects).await?;
        Ok(granted.into_iter().map(|(project, grant)| (project, Ok(storage(grant)))).collect())
    }
}

#[async_trait]
impl PartSource<Email> for ValuesPort {
    async fn load(
        &self,
        connection: &mut Connection,
        projects: &[ProjectId],
    ) -> store::Result<BTreeMap<ProjectId, store::Result<Email>>> {
        let granted = self.0.email_domains(connection, projects).await?;
        Ok(granted.into_iter().map(|(project, domain)| (project, Ok(Email { domain }))).collect())
    }
}

#[async_trait]
impl PartSource<Auth> for ValuesPort {
    async fn load(
        &self,
        connection: &mut Connection,
        projects: &[ProjectId],
    ) -> store::Result<BTreeMap<ProjectId, store::Result<Auth>>> {
        let granted = self.0.auth(connection, projects).await?;
        Ok(granted.into_iter().map(|(project, grant)| (project, grant.and_then(part))).collect())
    }
}

struct PartsPort {
    secrets: SourcedPartWriter<Secrets>,
    storage: SourcedPartWriter<Storage>,
    email: SourcedPartWriter<Email>,
    auth: SourcedPartWriter<Auth>,
    ai: PartWriter<Ai>,
    deleted_storage: FinalPartWriter<DeletedStorage>,
}

#[async_trait]
impl resources::DesiredParts for PartsPort {
    async fn publish(&self, tx: &mut Connection, project: ProjectId, part: ResourcePart) -> store::Result<bool> {
        let published = match part {
            ResourcePart::Secrets => self.secrets.write(tx, project).await,
            ResourcePart::Storage => self.storage.write(tx, project).await,
            ResourcePart::Ai => self.ai.write(tx, project, &Ai {}).await,
            ResourcePart::Email => self.email.write(tx, project).await,
            ResourcePart::Auth => self.auth.write(tx, project).await,
        };
        match published {
            Ok(()) => Ok(true),
            Err(ConvergenceError::ProjectDeleted) => Ok(false),
            Err(error) => Err(error.into_store_error()),
        }
    }

    async fn withdraw(&self, tx: &mut Connection, project: ProjectId, part: ResourcePart) -> store::Result<()> {
        let withdrawn = match part {
            ResourcePart::Secrets => self.secrets.remove(tx, project).await,
            ResourcePart::Storage => self.storage.remove(tx, project).await,
            ResourcePart::Ai => self.ai.remove(tx, project).await,
            ResourcePart::Email => self.email.remove(tx, project).await,
            ResourcePart::Auth => self.auth.remove(tx, project).await,
        };
        withdrawn.map_err(|error| error.into_store_error())
    }

    async fn publish_deletion(&self, tx: &mut Connection, project: ProjectId, prefix: StorageId) -> store::Result<()> {
        let deleted = DeletedStorage { prefix: prefix.to_string() };
        self.deleted_storage.write(tx, project, &deleted).await.map_err(|error| error.into_store_error())
    }

    async fn end(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()> {
        self.deleted_storage.end(tx, project).await.map_err(|error| error.into_store_error())
    }
}

struct OrgsPort(Orgs);

#[async_trait]
impl resources::Organizations for OrgsPort {
    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()> {
        let notice = match notice {
            Notice::StorageLimit { project, limit_bytes } => orgs::Notice::StorageLimit { project, limit_bytes },
        };
        self.0.raise_audited(tx, org, notice).await.map_err(|error| error.into_store_error())
    }
}

/// The deletion of a database takes the same lock.
struct DatabasesPort(DatabasePlacements);

#[async_trait]
impl resources::Databases for DatabasesPort {
    async fn lock(&self, tx: &mut Connection, project: ProjectId) -> store::Result<bool> {
        let placement = self.0.lock(tx, project).await.map_err(|error| error.into_store_error())?;
        if placement.is_none() || tx.database_find(project).await?.is_none() {
            return Ok(false);
        }
        let running = tx.operation_running(project).await?;
        Ok(running.is_none_or(|operation| operation.kind != OperationKind::Delete))
    }
}

struct HostnamesPort;

#[async_trait]
impl resources::Hostnames for HostnamesPort {
    async fn active(&self, connection: &mut Connection, project: ProjectId) -> store::Result<Vec<String>> {
        let hostnames = connection.hostname_list(project).await?;
        let active = hostnames.into_iter().filter(|hostname| hostname.state == HostnameState::Active);
        Ok(active.map(|hostname| hostname.name).collect())
    }
}

/// Receives the reports about storage.
struct ReportsPort(Resources);

#[async_trait]
impl ReportReceiver<StorageReport> for ReportsPort {
    async fn receive(&self, tx: &mut Connection, project: ProjectId, report: StorageReport) -> store::Result<()> {
        let StorageReport { used_bytes, quota_exceeded } = report;
        self.0.storage_report(tx, project, used_bytes, quota_exceeded).await
    }
}

#[async_trait]
impl ReportReceiver<DeletedStorageReport> for ReportsPort {
    async fn receive(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        report: DeletedStorageReport,
    ) -> store::Result<()> {
        // Ignore a malformed prefix, because no project has one.
        let Ok(prefix) = report.prefix.parse() else { return Ok(()) };
        self.0.storage_deleted(tx, project, prefix).await
    }
}
