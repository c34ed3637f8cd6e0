//! The reference node: serves deployments by `Host`.
//!
//! The node pulls; the control plane pushes nothing. `follow` long-polls the desired state. `reconciler` fetches the
//! bundles and swaps the routing table. `front` serves visitors from the table and the cache, and `auth` signs in the
//! users of projects. `tls` holds the issued certificates. `report` sends the observed state to the control plane.
//! `mail` passes received mail to worker code. The tasks share no lock: they communicate through channels, and a watch
//! channel holds the newest table. While the control plane is down, even after a restart of the node, the front serves
//! the last known state.

mod access;
pub mod ai;
mod asset;
pub mod auth;
mod cache;
mod client;
pub mod clock;
mod coding;
mod compress;
mod condition;
pub mod config;
mod connection;
mod contents;
pub mod database;
mod delivery;
mod desired;
mod digest;
mod duplex;
mod environment;
mod fetch;
mod follow;
mod front;
mod host_cookie;
mod in_use;
mod index;
pub mod mail;
mod media;
mod memory;
mod metrics;
pub mod observe;
mod origin;
mod page;
mod path;
pub mod pg;
mod project_requests;
mod random;
mod range;
mod reconciler;
mod report;
mod routes;
mod save;
mod seal;
mod serve;
mod services;
mod shared_cache;
pub mod storage;
mod system_roots;
mod text;
pub mod tls;
mod unpack;
pub mod worker;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use actix_web::dev::Server;
use anyhow::{Context as _, bail};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::access::AccessGate;
use crate::auth::AuthEntry;
use crate::cache::Cache;
use crate::client::Core;
use crate::config::Config;
use crate::contents::Contents;
use crate::database::Databases;
use crate::database::announce::announce;
use crate::database::config::DatabaseConfig;
use crate::environment::Environments;
use crate::fetch::Fetcher;
use crate::follow::ControlPlaneState;
use crate::front::{Front, TlsFront};
use crate::mail::delivery::deliver;
use crate::metrics::Metrics;
use crate::observe::Observer;
use crate::origin::Origins;
use crate::reconciler::Reconciler;
use crate::services::{Services, Shared};
use crate::tls::config::TlsConfig;
use crate::tls::{Challenges, Tls};
use crate::worker::Workers;
use crate::worker::fleet::Fleet;

/// A node that listens and follows its control plane; [`Node::run_until`] drives it.
pub struct Node {
    address: SocketAddr,
    tls_address: Option<SocketAddr>,
    front: Server,
    metrics_address: Option<SocketAddr>,
    /// The servers of the metrics and of the bindings.
    servers: Vec<Server>,
    tasks: JoinSet<()>,
}

impl Node {
    /// Opens the cache, restores the last served state and listens. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the node's directory or the listen address cannot be used.
    pub fn start(config: &Config) -> anyhow::Result<Self> {
        let cache = Arc::new(Cache::open(config)?);
        let core = Core::new(config)?;
        let (publish, routes) = watch::channel(Arc::default());
        let (observer, observations) = mpsc::unbounded_channel();
        let (damage_reports, damage) = mpsc::channel(64);
        let placements = cache.placements()?.unwrap_or_default();
        let shared = Shared {
            core,
            contents: Arc::new(Contents::new(Arc::clone(&cache), damage_reports.clone())),
            environments: Arc::new(Environments::restore(cache.environments(&placements)?)),
            observer: Observer::new(observer),
            metrics: Metrics::new()?,
        };
        let mut tasks = JoinSet::new();
        let deleted_storage = watch::Sender::default();
        let services = Services::open(config, &shared, deleted_storage.subscribe(), &mut tasks)?;
        let Services { databases, storage, users, bindings } = services;
        let Shared { core, contents, environments, observer, metrics } = shared;
        let prepare = |it| {
            let (cache, environments) = (Arc::clone(&cache), Arc::clone(&environments));
            Workers::new(it, cache, bindings, environments, damage_reports, observer.clone(), metrics.clone())
        };
        let workers = config.workers.clone().map(prepare);
        let (workers, bindings) = workers.transpose().context("cannot prepare the workers")?.unzip();
        let platform = watch::Sender::new(cache.platform()?);
        let origins = Arc::new(Origins::new(config.proxies.clone(), config.tls.is_some(), platform.subscribe()));
        let gate = AccessGate::open(core.clone(), &cache.access_key(), Arc::clone(&origins))
            .context("cannot open the key of the access cookies")?;
        let credential = config.authorization.as_bytes();
        let auth = AuthEntry::new(&config.auth, credential, users, Arc::clone(&environments), Arc::clone(&origins));
        let auth = auth.context("cannot prepare the sign-in of app users")?;
        let (have_email, mail_metrics) = (environments.have_email(), metrics.mail.clone());
        let fetcher = Fetcher::new(core.clone(), Arc::clone(&cache));
        let fleet = Fleet::new(workers, Arc::clone(&environments));
        let reconciler = Reconciler::restore(fetcher, (placements, environments), fleet, observer, publish)?;
        let bind = |address| ::tls::bind(address).with_context(|| format!("cannot listen on {address}"));
        let http = bind(config.listen)?;
        let open = |it: &TlsConfig| {
            let tls = Tls::open(it, core.clone(), Arc::clone(&cache), metrics.tls.clone(), &mut tasks);
            anyhow::Ok((bind(it.listen)?, tls.context("cannot prepare TLS")?))
        };
        let (https, tls) = config.tls.as_ref().map(open).transpose()?.unzip();
        let address = http.local_addr()?;
        let tls_address = https.as_ref().map(TcpListener::local_addr).transpose()?;
        let tls_front = tls_address.zip(tls.as_ref());
        let tls_front =
            tls_front.map(|(address, tls)| TlsFront { port: address.port(), store: Arc::clone(&tls.store) });
        let (handshaker, certificates) = tls.map(|tls| (tls.handshaker, tls.changes)).unzip();
        let challenges = Challenges::new(core.clone(), metrics.tls.clone());
        let front = Front::new(routes.clone(), contents, gate, auth, origins, challenges, tls_front);
        let front = front::serve((http, https.zip(handshaker)), config.write_timeout, front)?;
        let listen = |address| metrics::listen(address, metrics).with_context(|| format!("cannot listen on {address}"));
        let (metrics_address, metrics) = config.metrics_listen.map(listen).transpose()?.unzip();
        let servers = bindings.into_iter().chain(metrics).collect();
        let (updates, received_updates) = mpsc::channel(1);
        let databases_changes = databases.as_ref().map(Databases::changes);
        let state = ControlPlaneState::new(platform, deleted_storage, storage, databases_changes, certificates, cache);
        tasks.spawn(report::report(core.clone(), observations, state.batch.subscribe()));
        let ownership = databases.as_ref().and_then(Databases::ownership);
        tasks.spawn(announce(core.clone(), DatabaseConfig::node_info(config.databases.as_ref()), ownership));
        tasks.spawn(deliver(core.clone(), have_email, routes, mail_metrics));
        tasks.spawn(follow::follow(core, updates, state));
        tasks.spawn(reconciler.run(received_updates, damage));
        let tls = tls_address.map(|address| address.to_string());
        tracing::info!(%address, tls, core = config.core_url, "listening");
        Ok(Self { address, tls_address, front, metrics_address, servers, tasks })
    }

    /// Returns the address that the front listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address that the front listens on for TLS, if it does.
    #[must_use]
    pub const fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_address
    }

    /// Returns the address that the metrics are served at, if they are.
    #[must_use]
    pub const fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Serves until `stop` completes, then waits for the requests in flight.
    ///
    /// # Errors
    /// Returns an error if the front or a background task ends before `stop`.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let handle = self.front.handle();
        let mut front = tokio::spawn(self.front);
        let servers = self.servers.into_iter().map(|server| (server.handle(), tokio::spawn(server)));
        let servers: Vec<_> = servers.collect();
        tokio::select! {
            () = stop => {}
            ended = self.tasks.join_next() => bail!("a background task ended unexpectedly: {ended:?}"),
            ended = &mut front => bail!("the front ended unexpectedly: {ended:?}"),
        }
        self.tasks.shutdown().await;
        handle.stop(true).await;
        for (handle, ended) in servers {
            handle.stop(false).await;
            ended.await??;
        }
        Ok(front.await??)
    }
}
