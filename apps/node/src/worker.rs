//! Worker code: a `workerd` for each project that has some.
//!
//! `workerd` is no sandbox by itself, and one endless loop stops a whole process. So each version of a project that
//! runs has a process of its own, under a user id that nothing else has, with limits of the kernel and a watchdog.
//!
//! The process is given its folder and its program as open files (`launch`), and takes its sockets' paths through the
//! former: no user id but the node's own needs a way to the node's directory, however deep that lies.
//!
//! Outward: `fleet` is what the converger asks for versions to be started and stopped, `proxy` how a request gets its
//! answer. Between the two stands [`Worker`], one version of one project, and below it `Process`, one run.

mod assets;
pub mod config;
mod definition;
pub mod fleet;
mod folder;
mod headers;
pub mod launch;
mod output;
mod process;
pub mod proxy;
mod spawner;
mod uids;
mod upgrade;
mod version;
mod watchdog;

use std::io;
use std::sync::Arc;

use actix_web::dev::Server;
use tokio::runtime::Handle;

pub use self::version::Worker;

use crate::cache::Cache;
use crate::contents::Contents;
use crate::observe::Observer;
use assets::Registry;
use config::Config;
use folder::Run;
use spawner::Spawner;
use uids::Uids;

/// What all workers of the node share.
pub struct Workers {
    config: Config,
    cache: Arc<Cache>,
    run: Run,
    registry: Arc<Registry>,
    spawner: Spawner,
    uids: Uids,
    observer: Observer,
    runtime: Handle,
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
