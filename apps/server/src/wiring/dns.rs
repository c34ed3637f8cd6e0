//! Construction of DNS: the hidden primary with its NOTIFY worker, the background jobs of zones, and the ports.
//! Organizations, projects, domains and the resolver implement the ports.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use async_trait::async_trait;
use dns::primary::{Notifier, Primary};
use dns::signer::Signer;
use dns::{Dns, LookupFailure, Notice, NsRecords, Ports, TxtRecords};
use domains::DomainRepository as _;
use futures_util::{StreamExt as _, stream};
use gateway::http::without_write_permit;
use kernel::{OrgId, Plan};
use orgs::{OrgRepository as _, Orgs};
use providers::{LookupError, Resolver};
use store::{Connection, Store};
use tokio::time::Instant;

use super::error::IntoStoreError;
use super::zone_hostnames::HostnamesPort;
use crate::config::{Config, DNS_CATALOG, DNS_RESOLVER};
use crate::jobs::{Background, HOUR, Job, MINUTE, SECOND};

/// The maximum number of concurrent lookups of a check.
const MAX_CONCURRENT_LOOKUPS: usize = 16;

/// Returns the service and the address for zone transfers. Binds the hidden primary, which requires a tokio runtime.
pub(super) fn wire(
    config: &Config,
    store: &Store,
    orgs: &Orgs,
    background: &mut Background,
) -> anyhow::Result<(Dns, Option<SocketAddr>)> {
    let resolver = Resolver::new(config.dns_resolver).map_err(|error| DNS_RESOLVER.malformed(error))?;
    let ports = Ports {
        organizations: Arc::new(OrgsPort(orgs.clone())),
        resolver: Arc::new(ResolverPort(resolver)),
        registrations: Arc::new(DomainsPort),
        hostnames: Arc::new(HostnamesPort(store.clone())),
    };
    let dns = Dns::new(store.clone(), config.dns.clone(), config.limits, ports);
    let mut listen = None;
    if let Some((settings, hosting)) = config.primary.as_ref().zip(config.dns.as_ref()) {
        let notifier = Notifier::new(settings, store.clock_rng().clone());
        let notifier = notifier.ok_or_else(|| anyhow!(DNS_CATALOG.malformed("not a domain name")))?;
        let primary = Primary::bind(settings.clone(), store.clone(), hosting.clone());
        let primary = primary.with_context(|| format!("SVC_DNS_LISTEN {}", settings.listen))?;
        listen = Some(primary.listen);
        background.outbox(store.spawn_outbox_worker(Arc::new(notifier)));
        background.task(primary.run());
    }
    background.job(Job::every(HOUR, "dns.reconcile_nameservers"), dns.clone(), async |dns| {
        dns.reconcile_nameservers().await.map(drop)
    });
    background
        .job(Job::every(HOUR, "dns.purge_deleted"), dns.clone(), async |dns| dns.purge_deleted_zones().await.map(drop));
    background.job(Job::every(MINUTE, "dns.purge_contents"), dns.clone(), async |dns| dns.purge_zone_contents().await);
    if let Some(settings) = config.signer {
        let signer = Signer::new(settings, store.clock_rng().clone());
        background.job(Job::every(SECOND, "dns.check_signers"), (dns.clone(), signer), async |(dns, signer)| {
            dns.check_signers(&signer).await.map(drop)
        });
    }
    Ok((dns, listen))
}

#[derive(Debug)]
struct OrgsPort(Orgs);

#[async_trait]
impl dns::Organizations for OrgsPort {
    async fn plan(&self, connection: &mut Connection, org: OrgId) -> store::Result<Option<Plan>> {
        Ok(connection.org_find(org).await?.map(|org| org.plan))
    }

    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()> {
        let Notice::ZonesTakenOver { zones, record } = notice;
        let notice = orgs::Notice::ZonesTakenOver { zones, record };
        self.0.raise(tx, org, notice).await.map(drop).map_err(IntoStoreError::into_store_error)
    }
}

#[derive(Debug)]
struct DomainsPort;

#[async_trait]
impl dns::Registrations for DomainsPort {
    async fn is_registered(&self, connection: &mut Connection, org: OrgId, zone: &str) -> store::Result<bool> {
        connection.domain_is_registered(org, zone).await
    }

    async fn release_imported(&self, tx: &mut Connection, org: OrgId, zone: &str) -> store::Result<()> {
        tx.domain_release_imported(org, zone).await
    }
}

#[derive(Debug)]
struct ResolverPort(Resolver);

#[async_trait]
impl dns::Resolver for ResolverPort {
    async fn ns(&self, names: &[String], timeout: Duration) -> Vec<NsRecords> {
        self.look_up(names, timeout, |resolver, name, left| async move { resolver.ns(&name, left).await }).await
    }

    async fn txt(&self, names: &[String], timeout: Duration) -> Vec<TxtRecords> {
        self.look_up(names, timeout, |resolver, name, left| async move { resolver.txt(&name, left).await }).await
    }
}

impl ResolverPort {
    /// Looks up all names concurrently, and returns the results in the order of the names. The timeout applies to all
    /// lookups together.
    async fn look_up<F: Future<Output = Result<Vec<String>, LookupError>> + Send>(
        &self,
        names: &[String],
        timeout: Duration,
        lookup: impl Fn(Resolver, String, Duration) -> F + Copy + Send,
    ) -> Vec<Result<Vec<String>, LookupFailure>> {
        let deadline = Instant::now() + timeout;
        let begin = |name: &String| {
            let (resolver, name) = (self.0.clone(), name.clone());
            async move {
                let left = deadline.saturating_duration_since(Instant::now());
                lookup(resolver, name, left).await.map_err(failure)
            }
        };
        let lookups: Vec<_> = names.iter().map(begin).collect();
        let records = without_write_permit(stream::iter(lookups).buffered(MAX_CONCURRENT_LOOKUPS).collect()).await;
        records.unwrap_or_else(|| {
            let busy = || LookupFailure::Unavailable("too many concurrent changes to the organization".to_owned());
            names.iter().map(|_| Err(busy())).collect()
        })
    }
}

fn failure(error: LookupError) -> LookupFailure {
    match error {
        // A name that is too long for the DNS does not exist either.
        LookupError::NoSuchName | LookupError::InvalidName => LookupFailure::NoSuchName,
        LookupError::ServerFailure => LookupFailure::ServerFailure,
        error => LookupFailure::Unavailable(error.to_string()),
    }
}
