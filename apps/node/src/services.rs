//! The services that worker code uses through its bindings.

use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ai::Ai;
use crate::auth::{self, Users};
use crate::client::Core;
use crate::config::Config;
use crate::contents::Contents;
use crate::database::Databases;
use crate::environment::Environments;
use crate::mail::Mailer;
use crate::metrics::Metrics;
use crate::observe::Observer;
use crate::pg::Pools;
use crate::storage::{DeletedPrefixes, Storage};
use crate::worker::bindings::Bindings;

/// The parts of a node that its services share.
pub struct Shared {
    pub core: Core,
    pub contents: Arc<Contents>,
    pub environments: Arc<Environments>,
    pub observer: Observer,
    pub metrics: Metrics,
}

/// The opened services.
pub struct Services {
    /// `None` without a Postgres for the databases of projects.
    pub databases: Option<Databases>,
    /// `None` without an object store.
    pub storage: Option<Arc<Storage>>,
    pub users: Arc<Users>,
    pub bindings: Arc<Bindings>,
}

impl Services {
    /// Opens the services. Receives the prefixes of deleted storage from `deleted`.
    ///
    /// # Errors
    /// Returns an error if a service cannot be opened.
    pub fn open(
        config: &Config,
        shared: &Shared,
        deleted: watch::Receiver<DeletedPrefixes>,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<Self> {
        let Shared { core, contents, environments, observer, metrics } = shared;
        let open = |it| Storage::open(it, &config.dir, observer.clone(), metrics.storage.clone(), deleted, tasks);
        let storage = config.storage.as_ref().map(open).transpose().context("cannot open the object storage")?;
        let open = |it| {
            let metrics = (metrics.databases.clone(), metrics.backups.clone());
            Databases::open(it, environments.databases(), observer.clone(), core.clock(), metrics, tasks)
        };
        let databases = config.databases.as_ref().map(open).transpose().context("cannot open the databases")?;
        let users = Arc::new(auth::Pools::new(databases.as_ref().map(Databases::registry)));
        tasks.spawn(auth::keep_up(Arc::clone(environments), Arc::clone(&users), metrics.auth.clone()));
        let users = Arc::new(Users::new(users, metrics.auth.clone()).context("cannot open the users of projects")?);
        let pools = |it: &Databases| Arc::new(Pools::new(it.registry(), metrics.calls.clone()));
        let pools = databases.as_ref().map(pools);
        let ai = Ai::open(config.ai.as_ref(), &config.dir, core.clone(), metrics.ai.clone(), tasks);
        let ai = Arc::new(ai.context("cannot open the AI calls")?);
        let mailer = Mailer::new(core.clone(), metrics.mail.clone());
        let (environments, contents) = (Arc::clone(environments), Arc::clone(contents));
        let bindings = Bindings::new(environments, contents, storage.clone(), pools, ai, mailer, Arc::clone(&users));
        Ok(Self { databases, storage, users, bindings })
    }
}
