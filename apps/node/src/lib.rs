//! The reference node: serves deployments by `Host`.
//!
//! It pulls, and nothing is pushed to it: `follow` asks the control plane what this node is to serve, `converge`
//! gets the bundles of it and swaps the routing table, `front` answers visitors out of the table and the cache, and
//! `report` tells the control plane what became of it. They share no lock: news pass through channels, the table through
//! one whose receiver always holds the newest. With the control plane away, and after a restart during that, the front
//! serves what it served before.

mod access;
mod asset;
mod backoff;
mod cache;
mod client;
mod clock;
mod coding;
mod compress;
mod condition;
pub mod config;
mod contents;
mod converge;
mod desired;
mod digest;
mod fetch;
mod follow;
mod front;
mod hex;
mod index;
mod media;
mod observe;
mod origin;
mod page;
mod path;
mod random;
mod range;
mod report;
mod routes;
mod show;
mod unpack;
pub mod worker;

use std::net::SocketAddr;
use std::sync::Arc;

use actix_web::dev::Server;
use anyhow::{Context as _, bail};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::access::Doors;
use crate::cache::Cache;
use crate::client::Core;
use crate::config::Config;
use crate::contents::Contents;
use crate::converge::Converger;
use crate::fetch::Fetcher;
use crate::follow::Told;
use crate::front::Front;
use crate::observe::Observer;
use crate::origin::Origins;
use crate::worker::Workers;
use crate::worker::fleet::Fleet;

/// A node that listens and follows its control plane; [`Node::run_until`] drives it.
pub struct Node {
    address: SocketAddr,
    front: Server,
    /// Answers the questions of workers for their assets.
    assets: Option<Server>,
    tasks: JoinSet<()>,
}

impl Node {
    /// Opens the cache, puts back into service what was served before, and listens. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// The directory or the address cannot be used.
    pub fn start(config: &Config) -> anyhow::Result<Self> {
        let cache = Arc::new(Cache::open(config)?);
        let core = Core::new(config)?;
        let (publish, routes) = watch::channel(Arc::default());
        let (observer, observations) = mpsc::unbounded_channel();
        let observer = Observer::new(observer);
        let (report, damage) = mpsc::channel(64);
        let contents = Arc::new(Contents::new(Arc::clone(&cache), report));
        let workers = config.workers.clone();
        let workers = workers.map(|it| Workers::new(it, Arc::clone(&cache), Arc::clone(&contents), observer.clone()));
        let (workers, assets) = workers.transpose().context("workers cannot be run")?.unzip();
        let platform = watch::Sender::new(cache.platform()?);
        let origins = Arc::new(Origins::new(config.proxies.clone(), platform.subscribe()));
        let doors = Doors::open(core.clone(), &cache.access_key(), Arc::clone(&origins))
            .context("the key that visitors' passes are signed with")?;
        let fetcher = Fetcher::new(core.clone(), Arc::clone(&cache));
        let converger = Converger::restore(fetcher, Fleet::new(workers), observer, publish)?;
        let (address, front) = front::listen(config.listen, Front::new(routes, contents, doors, origins))
            .with_context(|| format!("cannot listen on {}", config.listen))?;
        let (news, answers) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        let told = Told::new(platform, cache);
        tasks.spawn(report::report(core.clone(), observations, told.batch.subscribe()));
        tasks.spawn(follow::follow(core, news, told));
        tasks.spawn(converger.run(answers, damage));
        tracing::info!(%address, core = config.core_url, "serving");
        Ok(Self { address, front, assets, tasks })
    }

    /// Where the front listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then finishes the requests in flight.
    ///
    /// # Errors
    /// The front or the following ended by itself.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let handle = self.front.handle();
        let mut front = tokio::spawn(self.front);
        let assets = self.assets.map(|assets| (assets.handle(), tokio::spawn(assets)));
        tokio::select! {
            () = stop => {}
            _ = self.tasks.join_next() => bail!("following the control plane ended"),
            ended = &mut front => bail!("the front ended: {ended:?}"),
        }
        self.tasks.shutdown().await;
        handle.stop(true).await;
        if let Some((handle, ended)) = assets {
            handle.stop(false).await;
            ended.await??;
        }
        Ok(front.await??)
    }
}
