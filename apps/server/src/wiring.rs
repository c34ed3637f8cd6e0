//! The contexts, put together.

use std::fs;
use std::sync::Arc;

use anyhow::Context as _;
use convergence::Convergence;
use gateway::Services;
use identity::Identity;
use kernel::World;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use orgs::Orgs;
use projects::{Bundles, Projects};
use prometheus::Registry;
use store::Store;

use crate::config::{BundleStore, Config, DATABASE_URL};
use crate::ports::{ConvergencePort, OrgsPort};

/// Everything that the listeners serve. Needs a tokio runtime.
pub(crate) fn services(config: &Config, world: World, registry: Registry) -> anyhow::Result<Services> {
    let store = Store::new(&config.database, world).map_err(|error| DATABASE_URL.malformed(error))?;
    let orgs = Orgs::new(store.clone(), config.limits);
    let convergence = Convergence::new(store.clone()).listening();
    let identity = Identity::new(store.clone(), Arc::new(OrgsPort(orgs.clone())));
    let projects = Projects::new(
        store.clone(),
        Bundles::new(objects(&config.bundle_store)?),
        config.limits,
        &config.gateway.site.platform_domain,
        Arc::new(OrgsPort(orgs.clone())),
        Arc::new(ConvergencePort(convergence.clone())),
    );
    Ok(Services::new(config.gateway.clone(), store, identity, orgs, projects, convergence, registry))
}

fn objects(store: &BundleStore) -> anyhow::Result<Arc<dyn ObjectStore>> {
    let BundleStore::Folder(folder) = store;
    fs::create_dir_all(folder).with_context(|| format!("the bundle store {}", folder.display()))?;
    Ok(Arc::new(LocalFileSystem::new_with_prefix(folder)?.with_fsync(true)))
}
