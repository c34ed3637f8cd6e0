//! Construction of certificates: the background jobs, the part of the desired state, and the ports. Certificate
//! authorities, the resolver, DNS, convergence, projects and organizations implement the ports.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use certificates::{
    Authority, CaaRecord, CertificateReference, Certificates, CertificatesConfig, DesiredPart, Notice, Organizations,
    Ports, Projects, Propagation, PublishedRecord, Zones,
};
use convergence::{Builder, ConvergenceError, PartWriter, PlatformCertificates};
use dns::{ChallengeResult, Dns};
use kernel::{OrgId, ProjectId};
use orgs::Orgs;
use projects::ProjectRepository as _;
use providers::acme::Acme;
use providers::{LookupError, Resolver};
use store::{Connection, Store};

use super::acme::AuthorityPort;
use super::error::IntoStoreError as _;
use crate::config::{ACME_DIRECTORIES, Config, DNS_RESOLVER};
use crate::jobs::{Background, HOUR, Job, MINUTE, SECOND};

/// The timeout of a DNS lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(4);

pub(super) fn wire(
    config: &Config,
    store: &Store,
    (orgs, dns, convergence): (&Orgs, &Dns, &mut Builder),
    background: &mut Background,
) -> anyhow::Result<Certificates> {
    let resolver = |server| Resolver::new(server).map_err(|error| DNS_RESOLVER.malformed(error));
    let mut authorities: Vec<Arc<dyn Authority>> = Vec::new();
    for authority in &config.acme {
        let acme = Acme::new(authority.clone()).map_err(|error| ACME_DIRECTORIES.malformed(error))?;
        authorities.push(Arc::new(AuthorityPort(acme)));
    }
    let secondaries: &[SocketAddr] = config.primary.as_ref().map_or(&[], |primary| &primary.secondaries);
    let nameservers = secondaries.iter().map(|server| resolver(Some(*server))).collect::<Result<_, _>>()?;
    let recursive = resolver(config.dns_resolver)?;
    let zones = ZonesPort { dns: dns.clone(), resolver: recursive.clone(), nameservers };
    let ports = Ports {
        authorities,
        resolver: Arc::new(ResolverPort(recursive)),
        zones: Arc::new(zones),
        desired: Arc::new(PartPort(convergence.register_part()?)),
        projects: Arc::new(ProjectsPort),
        organizations: Arc::new(OrgsPort(orgs.clone())),
    };
    let certificates_config = CertificatesConfig {
        platform_domain: config.gateway.site.platform_domain.clone(),
        platform_org: config.platform_org,
        api_hostname: config.tls.as_ref().map(|tls| tls.hostname.clone()),
    };
    let certificates = Certificates::new(store.clone(), certificates_config, ports);
    convergence.set_platform_certificates(Arc::new(PlatformPort(certificates.clone())));
    background.job(Job::every(HOUR, "certificates.reconcile"), certificates.clone(), async |certificates| {
        certificates.reconcile().await
    });
    // Without an authority, runs only remove names.
    let period = if certificates.is_enabled() { SECOND } else { MINUTE };
    background.job(Job::every(period, "certificates.run_due"), certificates.clone(), async |certificates| {
        certificates.run_due().await.map(drop)
    });
    Ok(certificates)
}

struct ResolverPort(Resolver);

#[async_trait]
impl certificates::Resolver for ResolverPort {
    async fn caa(&self, name: &str) -> Result<Vec<CaaRecord>, String> {
        match self.0.caa(name, LOOKUP_TIMEOUT).await {
            Ok(records) => {
                let record =
                    |it: providers::CaaRecord| CaaRecord { critical: it.critical, tag: it.tag, value: it.value };
                Ok(records.into_iter().map(record).collect())
            }
            Err(LookupError::NoSuchName) => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn has_address(&self, name: &str) -> Result<bool, String> {
        match self.0.has_address(name, LOOKUP_TIMEOUT).await {
            Err(LookupError::NoSuchName) => Ok(false),
            found => found.map_err(|error| error.to_string()),
        }
    }
}

struct ZonesPort {
    dns: Dns,
    resolver: Resolver,
    /// The nameservers to which this installation transfers its zones.
    nameservers: Vec<Resolver>,
}

#[async_trait]
impl Zones for ZonesPort {
    async fn find(&self, connection: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<String>> {
        let zone = self.dns.enclosing_zone(connection, org, name).await.map_err(|error| error.into_store_error())?;
        Ok(zone.map(|(_, name)| name.as_str().to_owned()))
    }

    async fn is_delegated(&self, zone: &str) -> bool {
        let Ok(hosting) = self.dns.hosting() else { return false };
        let found = self.resolver.ns(zone, LOOKUP_TIMEOUT).await.unwrap_or_default();
        !found.is_empty() && found.iter().all(|target| hosting.nameservers().contains(target))
    }

    async fn lock(&self, tx: &mut Connection, names: &[(OrgId, String)]) -> store::Result<()> {
        self.dns.lock_all_enclosing_zones(tx, names).await.map(drop).map_err(|error| error.into_store_error())
    }

    async fn publish(&self, tx: &mut Connection, org: OrgId, name: &str, text: &str) -> store::Result<PublishedRecord> {
        let published = self.dns.challenge_publish(tx, org, name, text).await;
        Ok(match published.map_err(|error| error.into_store_error())? {
            ChallengeResult::Published { zone } => PublishedRecord::Published { zone },
            ChallengeResult::NoZone => PublishedRecord::Refused(format!("no hosted zone contains {name}")),
            ChallengeResult::Full { zone } => {
                PublishedRecord::Refused(format!("the zone {zone} has reached its maximum size"))
            }
            ChallengeResult::Delegated { zone } => {
                PublishedRecord::Refused(format!("the zone {zone} delegates {name} to other nameservers"))
            }
            ChallengeResult::Occupied { zone } => PublishedRecord::Refused(format!(
                "the zone {zone} has a TXT or CNAME record at {name}; delete it, so that the platform can manage it"
            )),
        })
    }

    async fn withdraw(&self, tx: &mut Connection, org: OrgId, name: &str, text: &str) -> store::Result<()> {
        self.dns.challenge_withdraw(tx, org, name, text).await.map_err(|error| error.into_store_error())
    }

    async fn propagation(&self, name: &str, text: &str) -> Propagation {
        let mut propagation = Propagation::default();
        for nameserver in &self.nameservers {
            match nameserver.txt(name, LOOKUP_TIMEOUT).await {
                Ok(texts) if texts.iter().any(|found| found == text) => propagation.serving += 1,
                Ok(_) | Err(LookupError::NoSuchName) => propagation.missing += 1,
                Err(_) => propagation.unreachable += 1,
            }
        }
        propagation
    }
}

struct PartPort(PartWriter<protocol::Certificates>);

#[async_trait]
impl DesiredPart for PartPort {
    async fn lock(&self, tx: &mut Connection, projects: &[ProjectId]) -> store::Result<()> {
        self.0.lock(tx, projects).await.map_err(|error| error.into_store_error())
    }

    async fn publish(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        certificates: &[CertificateReference],
    ) -> store::Result<()> {
        let written = match certificates {
            [] => self.0.remove(tx, project).await,
            certificates => {
                let certificates = certificates.iter().map(reference).collect();
                self.0.write(tx, project, &protocol::Certificates { certificates }).await
            }
        };
        match written {
            // The deletion of the project has removed all parts.
            Ok(()) | Err(ConvergenceError::ProjectDeleted) => Ok(()),
            Err(error) => Err(error.into_store_error()),
        }
    }
}

struct PlatformPort(Certificates);

#[async_trait]
impl PlatformCertificates for PlatformPort {
    async fn load(&self, connection: &mut Connection) -> store::Result<Vec<protocol::CertificateReference>> {
        Ok(self.0.platform_certificates(connection).await?.iter().map(reference).collect())
    }
}

fn reference(reference: &CertificateReference) -> protocol::CertificateReference {
    let CertificateReference { id, name, not_after } = reference;
    protocol::CertificateReference { id: id.to_string(), name: name.clone(), not_after: not_after.to_string() }
}

struct ProjectsPort;

#[async_trait]
impl Projects for ProjectsPort {
    async fn lock(&self, tx: &mut Connection, org: OrgId, project: ProjectId) -> store::Result<()> {
        tx.project_lock(org, project).await.map(drop)
    }
}

struct OrgsPort(Orgs);

#[async_trait]
impl Organizations for OrgsPort {
    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()> {
        let Notice::RenewalFailed { project, hostname, reason, expires_at } = notice;
        let notice = orgs::Notice::CertificateFailed { project, hostname, reason, expires_at };
        self.0.raise(tx, org, notice).await.map(drop).map_err(|error| error.into_store_error())
    }
}
