//! The reference node: serves static deployments by `Host`.
//!
//! It pulls, and nothing is pushed to it: `follow` asks the control plane what this node is to serve, `converge`
//! gets the bundles of it and swaps the routing table, `front` answers visitors out of the table and the cache. The
//! three share no lock: news pass through a channel, the table through another whose receiver always holds the newest.
//! With the control plane away, and after a restart during that, the front serves what it served before.

mod access;
mod asset;
mod backoff;
mod cache;
mod client;
pub mod config;
mod converge;
mod desired;
mod digest;
mod fetch;
mod follow;
mod front;
mod index;
mod page;
mod path;
mod random;
mod unpack;

use std::net::SocketAddr;
use std::sync::Arc;

use actix_web::dev::Server;
use anyhow::{Context as _, bail};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::cache::Cache;
use crate::client::Core;
use crate::config::Config;
use crate::converge::Converger;
use crate::fetch::Fetcher;
use crate::front::Front;

/// A node that listens and follows its control plane; [`Node::run_until`] drives it.
pub struct Node {
    address: SocketAddr,
    front: Server,
    tasks: JoinSet<()>,
}

impl Node {
    /// Opens the cache, puts back into service what was served before, and listens. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// The directory or the address cannot be used.
    pub fn start(config: &Config) -> anyhow::Result<Self> {
        let cache = Arc::new(Cache::open(&config.dir)?);
        let core = Core::new(config)?;
        let (publish, routes) = watch::channel(Arc::default());
        let converger = Converger::restore(Fetcher::new(core.clone(), Arc::clone(&cache)), publish)?;
        let (address, front) = front::listen(config.listen, Front::new(routes, cache))
            .with_context(|| format!("cannot listen on {}", config.listen))?;
        let (news, answers) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        tasks.spawn(follow::follow(core, news));
        tasks.spawn(converger.run(answers));
        tracing::info!(%address, core = config.core_url, "serving");
        Ok(Self { address, front, tasks })
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
        tokio::select! {
            () = stop => {}
            _ = self.tasks.join_next() => bail!("following the control plane ended"),
            ended = &mut front => bail!("the front ended: {ended:?}"),
        }
        self.tasks.shutdown().await;
        handle.stop(true).await;
        Ok(front.await??)
    }
}
