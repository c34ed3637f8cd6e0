//! The contexts, put together: one file for each, with its construction, its jobs and the adapters of its ports.

mod convergence;
mod dns;
mod fault;
mod identity;
mod orgs;
mod projects;
mod resources;

use std::net::SocketAddr;

use gateway::{Contexts, Services};
use kernel::World;
use prometheus::Registry;
use store::Store;

use crate::config::{Config, DATABASE_URL};
use crate::jobs::{Background, Job, MINUTE};

/// The contexts behind the listeners, and the background work.
pub(crate) struct Parts {
    pub(crate) services: Services,
    pub(crate) background: Background,
    /// Where zones are transferred from.
    pub(crate) primary: Option<SocketAddr>,
}

/// Everything that the process runs. Needs a tokio runtime.
pub(crate) fn parts(config: &Config, world: World, registry: Registry) -> anyhow::Result<Parts> {
    let mut background = Background::new(world.clone());
    let store = Store::new(&config.database, world).map_err(|error| DATABASE_URL.malformed(error))?;
    let orgs = orgs::wire(config, &store, &mut background)?;
    let identity = identity::wire(config, &store, &orgs, &mut background)?;
    let mut convergence = convergence::wire(config, &store);
    let (dns, primary) = dns::wire(config, &store, &mut background)?;
    let needs = projects::Needs { orgs: &orgs, convergence: &mut convergence, dns: &dns };
    let projects = projects::wire(config, &store, needs, &mut background)?;
    let convergence = convergence.build();
    let resources = resources::wire(&store);
    let contexts = Contexts { identity, orgs, projects, convergence, dns, resources };
    let services = Services::new(config.gateway.clone(), store.clone(), contexts, registry)?;
    let rates = (services.limiters(), store.clone());
    background.job(Job::every(MINUTE, "gateway.purge_rates"), rates, async |(limiters, store)| {
        limiters.forget_idle(&store).await
    });
    background.job(Job::every(MINUTE, "store.purge_idempotency"), store, async |store| store.once_forget().await);
    Ok(Parts { services, background, primary })
}
