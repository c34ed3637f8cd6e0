//! Constructs the context `projects`: its background jobs, its part of the desired state, and its ports. Other contexts
//! and the resolver implement the ports.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use certificates::Certificates;
use convergence::{Builder, PartWriter, ProjectRemover, ReportReceiver};
use databases::Databases;
use dns::{Dns, LinkResult};
use gateway::http::without_write_permit;
use git::Repositories;
use kernel::{AccessMode, NotificationId, OrgId, Plan, ProjectId, Role, UserId};
use mail::Mail;
use orgs::{OrgRepository as _, Orgs};
use projects::{
    Bundles, DeploymentRepository as _, DeploymentStatus, HostedZone, Hsts, LiveAccess, LiveState, LookupFailure,
    Ports, Projects, PublishedRecords, Push,
};
use protocol::{DeploymentReport, DeploymentState, Site, SiteAccess, SiteHsts};
use providers::{LookupError, Resolver};
use resources::Resources;
use store::{Connection, Store, is_full_batch};

use super::error::IntoStoreError;
use super::zone_hostnames::NewZones;
use crate::config::{Config, DNS_RESOLVER};
use crate::jobs::{Background, HOUR, Job, MINUTE};

/// The age at which a temporary object counts as abandoned. An upload takes at most ten minutes.
const ABANDONED_UPLOAD_SECONDS: i64 = 60 * 60;

/// The contexts that implement the ports.
pub(super) struct Dependencies<'a> {
    pub(super) orgs: &'a Orgs,
    pub(super) convergence: &'a mut Builder,
    pub(super) dns: &'a Dns,
    pub(super) resources: &'a Resources,
    pub(super) databases: &'a Databases,
    pub(super) git: &'a Repositories,
    pub(super) mail: &'a Mail,
    pub(super) certificates: &'a Certificates,
}

pub(super) fn wire(
    config: &Config,
    store: &Store,
    dependencies: Dependencies<'_>,
    background: &mut Background,
) -> anyhow::Result<Projects> {
    let site = projects::Site {
        url: config.site_url.clone(),
        platform_domain: config.gateway.site.platform_domain.clone(),
        fallback_origin: config.gateway.site.fallback_origin.clone(),
        own_domains: config.own_domains.clone(),
    };
    let resolver = Resolver::new(config.dns_resolver).map_err(|error| DNS_RESOLVER.malformed(error))?;
    let Dependencies { orgs, convergence, dns, resources, databases, git, mail, certificates } = dependencies;
    let (site_part, removal) = (convergence.register_part()?, convergence.project_remover());
    let pushes = PushesPort(git.clone());
    let placements = ConvergencePort {
        site: site_part,
        removal,
        resources: resources.clone(),
        databases: databases.clone(),
        git: git.clone(),
        mail: mail.clone(),
        certificates: certificates.clone(),
    };
    convergence.register_receiver::<DeploymentReport>(Arc::new(DeploymentsPort))?;
    let ports = Ports {
        organizations: Arc::new(OrgsPort(orgs.clone())),
        placements: Arc::new(placements),
        pushes: Arc::new(pushes),
        zones: Arc::new(ZonesPort(dns.clone())),
        resolver: Arc::new(ResolverPort(resolver)),
    };
    let bundles = Bundles::new(config.bundle_store.open().context("failed to open the bundle store")?);
    let projects = Projects::new(store.clone(), bundles.clone(), config.limits, site, ports);
    let projects = projects.with_abuse_limits(config.abuse_limits);
    background.outbox(store.spawn_outbox_worker(Arc::new(NewZones(projects.clone()))));
    background.job(Job::every(MINUTE, "projects.check_hostnames"), projects.clone(), async |projects| {
        projects.hostnames_check().await.map(drop)
    });
    background.job(Job::every(HOUR, "projects.purge_deleted"), projects.clone(), async |projects| {
        projects.purge().await.map(drop)
    });
    background.job(Job::every(HOUR, "projects.purge_claims"), projects.clone(), async |projects| {
        projects.first_claims_purge().await
    });
    let sweep = (bundles, store.clock_rng().clone());
    background.job(Job::every(HOUR, "projects.sweep_uploads"), sweep, async |(bundles, clock_rng)| {
        bundles.sweep(clock_rng.now().plus_seconds(-ABANDONED_UPLOAD_SECONDS)).await.map(drop)
    });
    Ok(projects)
}

struct OrgsPort(Orgs);

#[async_trait]
impl projects::Organizations for OrgsPort {
    async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<Option<Plan>> {
        tx.org_lock(org).await
    }

    async fn role(&self, connection: &mut Connection, org: OrgId, user: UserId) -> store::Result<Option<Role>> {
        Ok(connection.member_find(org, user).await?.map(|member| member.role))
    }

    async fn raise(
        &self,
        tx: &mut Connection,
        org: OrgId,
        notice: projects::Notice,
    ) -> store::Result<Option<NotificationId>> {
        self.0.raise(tx, org, to_orgs(notice)).await.map_err(IntoStoreError::into_store_error)
    }
}

fn to_orgs(notice: projects::Notice) -> orgs::Notice {
    match notice {
        projects::Notice::ProjectLimit { limit } => orgs::Notice::ProjectLimit { limit },
        projects::Notice::HostnameUnproved { project, hostname, until } => {
            orgs::Notice::HostnameUnproved { project, hostname, until }
        }
        projects::Notice::HostnameTakenOver { project, hostname } => {
            orgs::Notice::HostnameTakenOver { project, hostname }
        }
        projects::Notice::HostnameAcquired { project, hostname } => {
            orgs::Notice::HostnameAcquired { project, hostname }
        }
    }
}

struct ConvergencePort {
    site: PartWriter<Site>,
    removal: ProjectRemover,
    resources: Resources,
    databases: Databases,
    git: Repositories,
    mail: Mail,
    certificates: Certificates,
}

#[async_trait]
impl projects::Placements for ConvergencePort {
    async fn lock(&self, tx: &mut Connection, hostname: &str, projects: &[ProjectId]) -> store::Result<()> {
        let names = self.certificates.lock_names(tx, &[hostname.to_owned()]).await?;
        // The certificate can belong to another project, which has removed the hostname.
        let holders = names.iter().filter_map(|name| name.project);
        let projects: Vec<ProjectId> = projects.iter().copied().chain(holders).collect();
        self.site.lock(tx, &projects).await.map_err(IntoStoreError::into_store_error)
    }

    async fn set_desired(&self, tx: &mut Connection, project: ProjectId, live: LiveState) -> store::Result<()> {
        // The certificates first: they can lock a zone and placements of other projects, which come before the node.
        self.certificates.sync(tx, project).await?;
        self.site.write(tx, project, &site(live)).await.map_err(IntoStoreError::into_store_error)
    }

    async fn remove(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()> {
        self.resources.release(tx, project).await?;
        self.certificates.sync(tx, project).await?;
        self.removal.remove(tx, project).await.map_err(IntoStoreError::into_store_error)
    }

    async fn purge_batch(&self, tx: &mut Connection, project: ProjectId) -> store::Result<bool> {
        self.git.purge_batch(tx, project).await.map(is_full_batch)
    }

    async fn purge(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()> {
        // These calls keep the placement of a project whose objects must still be deleted. The storage comes first:
        // its home node, which can have a separate store, deletes it before the placement moves to a node with a Postgres.
        let projects = [project];
        self.resources.storage_purge(tx, &projects).await?;
        self.databases.backups_purge(tx, project).await?;
        self.mail.purge(tx, &projects).await?;
        self.removal.purge(tx, &projects).await.map_err(IntoStoreError::into_store_error)
    }
}

struct PushesPort(Repositories);

#[async_trait]
impl projects::Pushes for PushesPort {
    async fn is_next(&self, tx: &mut Connection, push: Push) -> store::Result<bool> {
        self.0.is_next_deploy(tx, push.repository, push.number).await
    }

    async fn complete(&self, tx: &mut Connection, push: Push, version: i32) -> store::Result<bool> {
        let Push { repository, number } = push;
        self.0.complete_deploy(tx, repository, number, version).await
    }
}

/// Receives the reports about deployments.
struct DeploymentsPort;

#[async_trait]
impl ReportReceiver<DeploymentReport> for DeploymentsPort {
    async fn receive(&self, tx: &mut Connection, project: ProjectId, report: DeploymentReport) -> store::Result<()> {
        let DeploymentReport { version, state, message } = report;
        let status = match state {
            DeploymentState::Serving => DeploymentStatus::Serving,
            DeploymentState::Crashed => DeploymentStatus::Crashed,
            DeploymentState::Failed => DeploymentStatus::Failed,
        };
        tx.deployment_set_status(project, version, status, message.as_deref()).await
    }
}

fn site(live: LiveState) -> Site {
    let LiveState { owner, hostnames, hsts, bundle, size_bytes, version, access } = live;
    let LiveAccess { mode, password, bypass, version: access_version } = access;
    let mode = match mode {
        AccessMode::Public => protocol::AccessMode::Public,
        AccessMode::Org => protocol::AccessMode::Org,
        AccessMode::Password => protocol::AccessMode::Password,
    };
    let access = SiteAccess { mode, password, bypass: bypass.map(|hash| hash.hex()), version: access_version };
    let hsts = hsts.into_iter().map(|(hostname, hsts)| {
        let Hsts { max_age, include_sub_domains, preload } = hsts;
        SiteHsts { hostname, max_age, include_sub_domains, preload }
    });
    Site { owner, hostnames, bundle, size_bytes, version, access, hsts: hsts.collect() }
}

struct ZonesPort(Dns);

#[async_trait]
impl projects::Zones for ZonesPort {
    async fn zone_of(&self, connection: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<HostedZone>> {
        let zone = self.0.enclosing_zone(connection, org, name).await.map_err(IntoStoreError::into_store_error)?;
        Ok(zone.map(|(id, name)| HostedZone { id, name: name.as_str().to_owned() }))
    }

    async fn link(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<PublishedRecords> {
        let problem = |problem| PublishedRecords { changed: false, problem: Some(problem) };
        Ok(match self.0.link(tx, org, name).await.map_err(IntoStoreError::into_store_error)? {
            LinkResult::NoZone => PublishedRecords::default(),
            LinkResult::Linked { changed } => PublishedRecords { changed, problem: None },
            LinkResult::Delegated { zone } => problem(format!(
                "The zone {zone} delegates {name} to other nameservers. Publish a CNAME record there, or delete the NS \
                 records in the zone, then verify the hostname again."
            )),
            LinkResult::Occupied { zone } => problem(format!(
                "The zone {zone} has other records at {name}. Delete them, then verify the hostname again."
            )),
            LinkResult::Full { zone } => problem(format!("The zone {zone} has reached the maximum number of rrsets.")),
            LinkResult::NoAddress { zone, changed } => {
                let message = "is a zone apex, which cannot be a CNAME. Publish A or AAAA records that point to this \
                               platform.";
                PublishedRecords { changed, problem: Some(format!("{zone} {message}")) }
            }
        })
    }

    async fn unlink(&self, tx: &mut Connection, org: OrgId, names: &[&str]) -> store::Result<()> {
        self.0.unlink(tx, org, names).await.map_err(IntoStoreError::into_store_error)
    }
}

fn failure(error: LookupError) -> LookupFailure {
    LookupFailure { message: error.to_string(), transient: error.is_transient() }
}

fn too_many_changes() -> LookupFailure {
    LookupFailure { message: "too many concurrent changes to the organization".to_owned(), transient: true }
}

struct ResolverPort(Resolver);

#[async_trait]
impl projects::Resolver for ResolverPort {
    async fn txt(&self, name: &str, timeout: Duration) -> Result<Vec<String>, LookupFailure> {
        without_write_permit(self.0.txt(name, timeout)).await.ok_or_else(too_many_changes)?.map_err(failure)
    }

    async fn cname(&self, name: &str, timeout: Duration) -> Result<Option<String>, LookupFailure> {
        without_write_permit(self.0.cname(name, timeout)).await.ok_or_else(too_many_changes)?.map_err(failure)
    }
}
