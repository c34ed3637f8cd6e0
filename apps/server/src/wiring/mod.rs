//! Construction of the contexts: one file for each, with its background jobs and the adapters for its ports.

mod acme;
mod auth_values;
mod billing;
mod certificates;
mod convergence;
mod database_reports;
mod database_values;
mod databases;
mod dns;
mod domain_zones;
mod domains;
mod error;
mod git;
mod identity;
mod mail;
mod oauth;
mod orgs;
mod projects;
mod registrar;
mod registrar_limiter;
mod resources;
mod tls;
mod zone_hostnames;

use std::convert::Infallible;
use std::net::SocketAddr;

use ::tls::Handshaker;
use gateway::{Contexts, Services, find_caller_check};
use kernel::ClockRng;
use prometheus::Registry;
use store::Store;

use crate::config::{Config, DATABASE_URL};
use crate::jobs::{Background, HOUR, Job, MINUTE, SECOND};

/// The services behind the listeners, and the background work.
pub(crate) struct Components {
    pub(crate) services: Services,
    pub(crate) background: Background,
    /// The address for zone transfers.
    pub(crate) primary: Option<SocketAddr>,
    /// Performs the handshakes of the TLS listener.
    pub(crate) handshaker: Option<Handshaker>,
}

/// Constructs all components of the process. Requires a tokio runtime.
pub(crate) fn build(config: &Config, clock_rng: ClockRng, registry: Registry) -> anyhow::Result<Components> {
    let store = Store::new(&config.database, clock_rng)
        .map_err(|error| DATABASE_URL.malformed(error))?
        .with_caller_checks(find_caller_check);
    let mut background = Background::new(store.clone());
    let orgs = orgs::wire(config, &store, &mut background)?;
    let identity = identity::wire(config, &store, &orgs, &mut background)?;
    let mut convergence = convergence::wire(config, &store);
    let (dns, primary) = dns::wire(config, &store, &orgs, &mut background)?;
    let resources = resources::wire(config, &store, &orgs, &mut convergence)?;
    let git = git::wire(config, &store);
    let mail = mail::wire(config, &store, &orgs, &convergence, &mut background)?;
    let mail_hook = mail::wire_hook(config, &mail)?;
    let certificates = certificates::wire(config, &store, (&orgs, &dns, &mut convergence), &mut background)?;
    let handshaker = tls::wire(config, &certificates, &registry, &mut background)?;
    let databases = databases::wire(config, &store, &orgs, &mut convergence, &mut background)?;
    let dependencies = projects::Dependencies {
        orgs: &orgs,
        convergence: &mut convergence,
        dns: &dns,
        resources: &resources,
        databases: &databases,
        git: &git,
        mail: &mail,
        certificates: &certificates,
    };
    let projects = projects::wire(config, &store, dependencies, &mut background)?;
    let oauth = oauth::wire(config, &store, &mut background)?;
    let billing = billing::wire(config, &store, &orgs, &mut background)?;
    let domains = domains::wire(config, &store, (&orgs, &dns), &mut background)?;
    let convergence = convergence.build();
    let contexts = Contexts {
        identity,
        orgs,
        projects,
        convergence,
        dns,
        domains,
        git,
        resources,
        databases,
        oauth,
        billing,
        mail,
        mail_hook,
        certificates,
    };
    let services =
        Services::new(config.gateway.clone(), config.limits, config.abuse_limits, store.clone(), contexts, registry)?;
    background.task(services.adapt_concurrency_limit());
    // The memory grows with each address and credential, also while the clock is wrong.
    let purge_local = Job::every(MINUTE, "gateway.purge_local_rates").without_clock();
    background.job(purge_local, services.limiters(), async |limiters| {
        limiters.purge_local();
        Ok::<_, Infallible>(())
    });
    let rates = (services.limiters(), store.clone());
    background.job(Job::every(MINUTE, "gateway.purge_rates"), rates, async |(limiters, store)| {
        limiters.purge_idle(&store).await
    });
    let count_outbox = Job::every(15 * SECOND, "store.count_outbox").without_clock();
    background.job(count_outbox, store.clone(), async |store| store.outbox_record_counts().await);
    background.job(Job::every(HOUR, "store.purge_sagas"), store.clone(), async |store| store.saga_purge().await);
    background.job(Job::every(MINUTE, "store.purge_idempotency"), store, async |store| store.idempotency_purge().await);
    Ok(Components { services, background, primary, handshaker })
}
