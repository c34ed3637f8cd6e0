//! The state that all workers of a node share.

use std::io;
use std::sync::Arc;

use actix_web::dev::Server;
use tokio::runtime::Handle;

use super::assets::{self, Registry};
use super::config::Config;
use super::folder::RunDir;
use super::spawner::Spawner;
use super::uids::Uids;
use crate::cache::Cache;
use crate::contents::Contents;
use crate::observe::Observer;

/// The state that all workers share.
pub struct Workers {
    pub config: Config,
    pub cache: Arc<Cache>,
    pub run: RunDir,
    pub registry: Arc<Registry>,
    pub spawner: Spawner,
    pub uids: Uids,
    pub observer: Observer,
    pub runtime: Handle,
}

impl Workers {
    /// Prepares to run workers. Also returns the server of `env.assets`. Must be called within a tokio runtime.
    pub fn new(
        config: Config,
        cache: Arc<Cache>,
        contents: Arc<Contents>,
        observer: Observer,
    ) -> io::Result<(Arc<Self>, Server)> {
        let run = RunDir::open(&cache.run_dir())?;
        let registry = Arc::new(Registry::default());
        let server = assets::listen(&run, Arc::clone(&registry), contents)?;
        let runtime = Handle::current();
        let spawner = Spawner::start(runtime.clone())?;
        let uids = Uids::new(config.uids);
        Ok((Arc::new(Self { config, cache, run, registry, spawner, uids, observer, runtime }), server))
    }
}
