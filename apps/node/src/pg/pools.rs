//! The pools of all projects.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::limits::Limits;
use super::metrics::CallMetrics;
use super::pool::{Pool, Shared};
use crate::database::registry::Registry;

/// The pools of all projects, created at the first call.
pub struct Pools {
    registry: Registry,
    shared: Arc<Shared>,
    pools: Mutex<HashMap<String, Arc<Pool>>>,
}

impl Pools {
    /// Creates the pools of the databases in the registry. Must be called within the runtime that executes the calls.
    #[must_use]
    pub fn new(registry: Registry, metrics: CallMetrics) -> Self {
        Self { registry, shared: Arc::new(Shared::new(metrics)), pools: Mutex::default() }
    }

    /// Returns the pool of a project.
    pub fn get(&self, project: &str) -> Arc<Pool> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(project) {
            return Arc::clone(pool);
        }
        pools.retain(|_, pool| !pool.is_unused());
        let access = self.registry.watch(project);
        let pool = Pool::shared(project, access, Limits::default(), Arc::clone(&self.shared));
        pools.insert(project.to_owned(), Arc::clone(&pool));
        pool
    }
}
