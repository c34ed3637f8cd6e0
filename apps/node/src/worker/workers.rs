//! What all workers of a node have in common.

use std::io;
use std::sync::Arc;

use actix_web::dev::Server;
use tokio::runtime::Handle;

use super::assets::{self, Registry};
use super::config::Config;
use super::folder::Run;
use super::spawner::Spawner;
use super::uids::Uids;
use crate::cache::Cache;
use crate::contents::Contents;
use crate::observe::Observer;

/// What all workers of the node share.
pub struct Workers {
    pub config: Config,
    pub cache: Arc<Cache>,
    pub run: Run,
    pub registry: Arc<Registry>,
    pub spawner: Spawner,
    pub uids: Uids,
    pub observer: Observer,
    pub runtime: Handle,
}

impl Workers {
    /// Prepares for running workers, and gives the server beside them that answers their `env.assets`. Needs a tokio
    /// runtime around it.
    pub fn new(
        config: Config,
        cache: Arc<Cache>,
        contents: Arc<Contents>,
        observer: Observer,
    ) -> io::Result<(Arc<Self>, Server)> {
        let run = Run::open(&cache.run())?;
        let registry = Arc::new(Registry::default());
        let server = assets::listen(&run, Arc::clone(&registry), contents)?;
        let runtime = Handle::current();
        let spawner = Spawner::start(runtime.clone())?;
        let uids = Uids::new(config.uids);
        Ok((Arc::new(Self { config, cache, run, registry, spawner, uids, observer, runtime }), server))
    }
}
