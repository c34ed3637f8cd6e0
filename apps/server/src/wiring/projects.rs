//! Projects: their construction, their jobs, their part of the desired state, and the ports that other contexts and the
//! public DNS serve for them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use convergence::{Builder, Part, Removal, ReportReceiver};
use dns::{Dns, Link};
use kernel::{AccessMode, NotificationId, OrgId, Plan, ProjectId, Role, UserId};
use orgs::{OrgRepository as _, Orgs};
use projects::{
    Bundles, DeploymentRepository as _, DeploymentStatus, Linked, Live, LiveAccess, LookupFailure, Ports, Projects,
};
use protocol::{DeploymentReport, DeploymentState, Site, SiteAccess};
use providers::{LookupError, Resolver};
use store::{Connection, Store};

use super::fault::Fault;
use crate::config::{BUNDLE_STORE, BundleStore, Config, DNS_RESOLVER};
use crate::jobs::{Background, HOUR, Job, MINUTE};

/// The age in seconds at which a temporary object is abandoned: an upload takes ten minutes at most.
const ABANDONED: i64 = 60 * 60;

/// The contexts that serve the ports.
pub(super) struct Needs<'a> {
    pub(super) orgs: &'a Orgs,
    pub(super) convergence: &'a mut Builder,
    pub(super) dns: &'a Dns,
}

pub(super) fn wire(
    config: &Config,
    store: &Store,
    needs: Needs<'_>,
    background: &mut Background,
) -> anyhow::Result<Projects> {
    let names = projects::Site {
        url: config.site_url.clone(),
        platform_domain: config.gateway.site.platform_domain.clone(),
        fallback_origin: config.gateway.site.fallback_origin.clone(),
        own_domains: config.own_domains.clone(),
    };
    let resolver = Resolver::new(config.dns_resolver).map_err(|error| DNS_RESOLVER.malformed(error))?;
    let placements = ConvergencePort { site: needs.convergence.own()?, removal: needs.convergence.removal() };
    needs.convergence.receive::<DeploymentReport>(Arc::new(DeploymentsPort))?;
    let ports = Ports {
        organizations: Arc::new(OrgsPort(needs.orgs.clone())),
        placements: Arc::new(placements),
        zones: Arc::new(ZonesPort(needs.dns.clone())),
        resolver: Arc::new(ResolverPort(resolver)),
    };
    let bundles = bundles(&config.bundle_store)?;
    let projects = Projects::new(store.clone(), bundles.clone(), config.limits, names, ports);
    background.job(Job::every(MINUTE, "projects.check_hostnames"), projects.clone(), async |projects| {
        projects.hostnames_check().await.map(drop)
    });
    background.job(Job::every(HOUR, "projects.purge_deleted"), projects.clone(), async |projects| {
        projects.purge().await.map(drop)
    });
    let swept = (bundles, store.world().clone());
    background.job(Job::every(HOUR, "projects.sweep_uploads"), swept, async |(bundles, world)| {
        bundles.sweep(world.now().plus_seconds(-ABANDONED)).await.map(drop)
    });
    Ok(projects)
}

fn bundles(store: &BundleStore) -> anyhow::Result<Bundles> {
    match store {
        BundleStore::Folder(folder) => {
            Bundles::in_folder(folder).with_context(|| format!("the bundle store {}", folder.display()))
        }
        BundleStore::S3(s3) => Bundles::in_s3(s3).map_err(|error| BUNDLE_STORE.malformed(error).into()),
    }
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
        self.0.raise(tx, org, to_orgs(notice)).await.map_err(Fault::fault)
    }
}

fn to_orgs(notice: projects::Notice) -> orgs::Notice {
    match notice {
        projects::Notice::ProjectLimit { limit } => orgs::Notice::ProjectLimit { limit },
        projects::Notice::HostnameUnproved { project, hostname, until } => {
            orgs::Notice::HostnameUnproved { project, hostname, until }
        }
    }
}

struct ConvergencePort {
    site: Part<Site>,
    removal: Removal,
}

#[async_trait]
impl projects::Placements for ConvergencePort {
    async fn converge(&self, tx: &mut Connection, project: ProjectId, live: Live) -> store::Result<()> {
        self.site.write(tx, project, &site(live)).await.map_err(Fault::fault)
    }

    async fn remove(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()> {
        self.removal.remove(tx, project).await.map_err(Fault::fault)
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
        tx.deployment_observed(project, version, status, message.as_deref()).await
    }
}

fn site(live: Live) -> Site {
    let Live { hostnames, bundle, size_bytes, version, access } = live;
    let LiveAccess { mode, password, bypass, version: access_version } = access;
    let mode = match mode {
        AccessMode::Public => protocol::AccessMode::Public,
        AccessMode::Org => protocol::AccessMode::Org,
        AccessMode::Password => protocol::AccessMode::Password,
    };
    let access = SiteAccess { mode, password, bypass: bypass.map(|hash| hash.hex()), version: access_version };
    Site { hostnames, bundle, size_bytes, version, access }
}

struct ZonesPort(Dns);

#[async_trait]
impl projects::Zones for ZonesPort {
    async fn zone_of(&self, connection: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<String>> {
        self.0.zone_of(connection, org, name).await.map_err(Fault::fault)
    }

    async fn link(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<Linked> {
        let problem = |problem| Linked { changed: false, problem: Some(problem) };
        Ok(match self.0.link(tx, org, name).await.map_err(Fault::fault)? {
            Link::NoZone => Linked::default(),
            Link::Linked { changed } => Linked { changed, problem: None },
            Link::Occupied { zone } => problem(format!(
                "The zone {zone} has other records at {name}, so nobody is led here by it. Delete them, and verify again."
            )),
            Link::Full { zone } => problem(format!("The zone {zone} holds as many rrsets as a zone may.")),
            Link::NoAddress { zone } => problem(format!(
                "{zone} is a zone's own name, which cannot be a CNAME. Publish A or AAAA records that lead here."
            )),
        })
    }

    async fn unlink(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<()> {
        self.0.unlink(tx, org, name).await.map_err(Fault::fault)
    }
}

fn failure(error: LookupError) -> LookupFailure {
    LookupFailure { message: error.to_string(), temporary: error.is_temporary() }
}

struct ResolverPort(Resolver);

#[async_trait]
impl projects::Resolver for ResolverPort {
    async fn txt(&self, name: &str, patience: Duration) -> Result<Vec<String>, LookupFailure> {
        self.0.txt(name, patience).await.map_err(failure)
    }

    async fn cname(&self, name: &str, patience: Duration) -> Result<Option<String>, LookupFailure> {
        self.0.cname(name, patience).await.map_err(failure)
    }
}
