//! The state that all workers of a node share.

use std::sync::Arc;

use actix_web::dev::Server;
use semaphores::KeyedSemaphores;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::bindings::{self, Bindings};
use super::budget::MemoryBudget;
use super::config::Config;
use super::detect::{Available, detect};
use super::egress::Egress;
use super::folder::RunDir;
use super::spawner::Spawner;
use super::uids::Uids;
use crate::cache::Cache;
use crate::digest::Digest;
use crate::environment::Environments;
use crate::metrics::Metrics;
use crate::observe::Observer;

/// The state that all workers share.
pub struct Workers {
    pub config: Config,
    pub cache: Arc<Cache>,
    pub run: RunDir,
    pub bindings: Arc<Bindings>,
    /// The permits of each owner for connections to the bindings.
    pub connections: KeyedSemaphores<String>,
    pub environments: Arc<Environments>,
    /// Receives the digests of missing and damaged modules.
    pub damaged: mpsc::Sender<Digest>,
    pub spawner: Spawner,
    pub uids: Uids,
    pub egress: Egress,
    pub available: Available,
    pub budget: Arc<MemoryBudget>,
    pub observer: Observer,
    pub metrics: Metrics,
    pub runtime: Handle,
}

impl Workers {
    /// Prepares the node to run workers. Also returns the server of the bindings. Must be called within a tokio
    /// runtime. Blocks.
    pub fn new(
        config: Config,
        cache: Arc<Cache>,
        bindings: Arc<Bindings>,
        environments: Arc<Environments>,
        damaged: mpsc::Sender<Digest>,
        observer: Observer,
        metrics: Metrics,
    ) -> anyhow::Result<(Arc<Self>, Server)> {
        let run = RunDir::open(&cache.run_dir())?;
        let server = bindings::listen(&run, Arc::clone(&bindings))?;
        let connections = KeyedSemaphores::new(config.max_connections);
        let runtime = Handle::current();
        let spawner = Spawner::start(runtime.clone())?;
        let uids = Uids::new(config.uids);
        let egress = Egress::new(&config.egress, &metrics)?;
        let available = detect(&config, &cache.run_dir(), &metrics);
        let budget = Arc::new(MemoryBudget::new(&config, &metrics));
        let workers = Self {
            config,
            cache,
            run,
            bindings,
            connections,
            environments,
            damaged,
            spawner,
            uids,
            egress,
            available,
            budget,
            observer,
            metrics,
            runtime,
        };
        Ok((Arc::new(workers), server))
    }
}
