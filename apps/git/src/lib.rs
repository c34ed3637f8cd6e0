//! The git node: serves repositories over HTTPS and SSH, and lets the control plane read their contents.
//!
//! The control plane decides about each access. The system's `git` serves clients, with a cleaned environment. A hook
//! records each update of a ref before git reports it (see `journal`).

pub mod config;
pub mod hook;

mod archive;
mod browse;
mod commands;
mod core;
mod deploy;
mod exchange;
mod git;
mod http;
mod internal;
mod journal;
mod leftovers;
mod limits;
mod maintenance;
mod metrics;
mod objects;
mod path;
mod progress;
mod random;
mod repository;
mod ssh;
mod storage;
mod sync;
mod tree;
mod update;

use std::net::SocketAddr;
use std::sync::Arc;

use actix_web::dev::Server;
use anyhow::{Context as _, bail};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::config::Config;
use crate::core::Core;
use crate::deploy::Deployer;
use crate::exchange::Service;
use crate::journal::Journal;
use crate::maintenance::Maintenance;
use crate::metrics::Metrics;
use crate::repository::Repositories;
use crate::ssh::SshServer;
use crate::storage::SizeReporter;

/// A git node whose sockets are open. [`GitNode::run_until`] runs it.
pub struct GitNode {
    address: SocketAddr,
    ssh_address: SocketAddr,
    internal_address: SocketAddr,
    http: Server,
    internal: Server,
    ssh: SshServer,
    tasks: JoinSet<()>,
}

impl GitNode {
    /// Opens the directory, cleans up after an earlier run, and opens the listeners.
    ///
    /// # Errors
    /// Returns an error if git is missing, or if the directory or an address cannot be used.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let (core, metrics) = (Core::new(&config)?, Metrics::new()?);
        let repositories =
            Repositories::open(&config.dir, config.push_limits.max_bytes).context("cannot use SVC_GIT_DIR")?;
        leftovers::end_processes(&repositories.socket())?;
        repositories.install_hooks().context("cannot install the hooks")?;
        let (journal, changed) = Journal::open(&repositories).context("cannot open the journal")?;
        let mut tasks = JoinSet::new();
        let deployer = Deployer::new(core.clone(), repositories.clone(), metrics.clone());
        let hooks = journal.clone().serve_hooks(repositories.socket(), core.clone(), deployer.clone(), metrics.clone());
        tasks.spawn(async move {
            if let Err(error) = hooks.await {
                tracing::error!(error = format!("{error:#}"), "the hooks cannot be served");
            }
        });
        tasks.spawn(journal.clone().deliver_all(core.clone(), deployer.clone(), changed, metrics.clone()));
        tasks.spawn(deployer.repeat());
        let sizes = SizeReporter::new(core.clone());
        let service = Service::new(
            core.clone(),
            repositories.clone(),
            journal.clone(),
            sizes.clone(),
            metrics.clone(),
            (config.client_limits, config.push_limits),
        );
        let listening = |address| move || format!("cannot listen on {address}");
        let (address, http) =
            http::listen(config.listen, service.clone(), config.trusted_proxies.clone(), metrics.clone())
                .with_context(listening(config.listen))?;
        let (host_key, max_per_user) = (repositories.host_key(), config.client_limits.connections_per_user);
        let ssh = SshServer::bind(config.ssh_listen, &host_key, service, max_per_user, metrics.clone()).await;
        let ssh = ssh.with_context(listening(config.ssh_listen))?;
        let ssh_address = ssh.address()?;
        let secret = random::token()?;
        let (internal_address, internal) =
            internal::listen(config.internal_listen, &secret, repositories.clone(), metrics)
                .with_context(listening(config.internal_listen))?;
        let url = config.internal_url.unwrap_or_else(|| format!("http://{internal_address}"));
        tasks.spawn(maintenance::announce(core.clone(), url, secret));
        tasks.spawn(maintenance::erase(core.clone(), repositories.clone(), journal.clone(), sizes.clone()));
        tasks.spawn(sizes.clone().repeat(repositories.clone()));
        let min_free_bytes = config.push_limits.min_free_bytes;
        tasks.spawn(Maintenance::new(core, repositories, journal, sizes, min_free_bytes).run());
        tracing::info!(%address, %ssh_address, %internal_address, core = config.core_url, "listening");
        Ok(Self { address, ssh_address, internal_address, http, internal, ssh, tasks })
    }

    /// Returns the address for git over HTTP.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address for git over SSH.
    #[must_use]
    pub const fn ssh_address(&self) -> SocketAddr {
        self.ssh_address
    }

    /// Returns the address of the internal listener.
    #[must_use]
    pub const fn internal_address(&self) -> SocketAddr {
        self.internal_address
    }

    /// Serves until `stop` completes, then waits for the requests and SSH commands in progress.
    ///
    /// # Errors
    /// Returns an error if a listener or a background task ends before `stop` completes.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let (http_handle, internal_handle) = (self.http.handle(), self.internal.handle());
        let (mut http, mut internal) = (tokio::spawn(self.http), tokio::spawn(self.internal));
        let stopping = Arc::new(Notify::new());
        let mut ssh = tokio::spawn(self.ssh.run(Arc::clone(&stopping).notified_owned()));
        tokio::select! {
            () = stop => {}
            ended = self.tasks.join_next() => bail!("a background task ended unexpectedly: {ended:?}"),
            ended = &mut http => bail!("the listener ended unexpectedly: {ended:?}"),
            ended = &mut internal => bail!("the internal listener ended unexpectedly: {ended:?}"),
            ended = &mut ssh => bail!("the SSH listener ended unexpectedly: {ended:?}"),
        }
        stopping.notify_one();
        // The pushes in progress need the background tasks.
        let ((), ssh) = tokio::join!(http_handle.stop(true), ssh);
        ssh?;
        self.tasks.shutdown().await;
        internal_handle.stop(false).await;
        http.await??;
        Ok(internal.await??)
    }
}
