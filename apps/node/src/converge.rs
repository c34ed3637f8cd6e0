//! From what is wanted to what is served.
//!
//! [`Converger::settle`] compares the two and does what is missing; whatever happens, an answer of the control plane
//! or a bundle that arrives, is followed by it. Each bundle has a task of its own that tries until it has it or nobody
//! wants it, so a bad one holds up no other site, and its own site goes on with the version before.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet, spawn_blocking};

use crate::access::Access;
use crate::desired::{Answer, Placements};
use crate::digest::Digest;
use crate::fetch::Fetcher;
use crate::index::Index;

/// What each host name shows. It is replaced as a whole, and who still holds the one before finishes with it.
pub type Routes = HashMap<String, Shown>;

/// What is shown under a host name, and to whom.
#[derive(Clone)]
pub struct Shown {
    /// The bundle; none until the first one of a project is here.
    pub index: Option<Arc<Index>>,
    pub access: Access,
}

/// The one task that decides what is served.
pub struct Converger {
    fetcher: Fetcher,
    routes: watch::Sender<Arc<Routes>>,
    placements: Placements,
    /// Of every live bundle.
    indexes: HashMap<Digest, Arc<Index>>,
    fetches: JoinSet<(Digest, Index)>,
    fetching: HashMap<Digest, AbortHandle>,
}

impl Converger {
    /// Puts into service what was served when the node stopped.
    pub fn restore(fetcher: Fetcher, routes: watch::Sender<Arc<Routes>>) -> anyhow::Result<Self> {
        let mut placements = fetcher.cache.placements()?.unwrap_or_default();
        let mut indexes = HashMap::new();
        for bundle in placements.live() {
            if let Some(index) = fetcher.cache.index(bundle)? {
                indexes.insert(bundle, Arc::new(index));
            }
        }
        placements.demote(|bundle| indexes.contains_key(bundle));
        let (fetches, fetching) = (JoinSet::new(), HashMap::new());
        let restored = Self { fetcher, routes, placements, indexes, fetches, fetching };
        restored.publish();
        Ok(restored)
    }

    /// Converges for ever.
    pub async fn run(mut self, mut answers: mpsc::Receiver<Answer>) {
        loop {
            self.settle().await;
            tokio::select! {
                Some(answer) = answers.recv() => self.placements.apply(answer),
                Some(fetched) = self.fetches.join_next() => self.take_in(fetched),
                else => return,
            }
        }
    }

    fn take_in(&mut self, fetched: Result<(Digest, Index), JoinError>) {
        match fetched {
            Ok((bundle, index)) => drop(self.indexes.insert(bundle, Arc::new(index))),
            Err(error) if error.is_cancelled() => {}
            Err(error) => tracing::error!(%error, "fetching a bundle failed unexpectedly"),
        }
        self.fetching.retain(|_, task| !task.is_finished());
    }

    async fn settle(&mut self) {
        self.placements.promote(|bundle| self.indexes.contains_key(bundle));
        let live = self.placements.live();
        self.indexes.retain(|bundle, _| live.contains(bundle));
        self.publish();
        self.fetch_missing();
        self.save().await;
    }

    fn publish(&self) {
        let mut routes = Routes::new();
        for placement in self.placements.iter() {
            let index = placement.live.and_then(|bundle| self.indexes.get(&bundle)).cloned();
            let shown = Shown { index, access: placement.wanted.access.clone() };
            routes.extend(placement.wanted.hostnames.iter().map(|name| (name.clone(), shown.clone())));
        }
        self.routes.send_replace(Arc::new(routes));
    }

    fn fetch_missing(&mut self) {
        let missing = self.placements.missing();
        self.fetching.retain(|bundle, task| {
            let wanted = missing.contains_key(bundle);
            if !wanted {
                task.abort();
            }
            wanted
        });
        for (bundle, size) in missing {
            let fetch = || self.fetches.spawn(self.fetcher.clone().obtain(bundle, size));
            self.fetching.entry(bundle).or_insert_with(fetch);
        }
    }

    /// What cannot be saved is served all the same; only a restart during an outage would miss it.
    async fn save(&self) {
        let cache = Arc::clone(&self.fetcher.cache);
        let placements = self.placements.clone();
        let saved = spawn_blocking(move || cache.save_placements(&placements)).await;
        if let Err(error) = saved.map_err(Into::into).flatten() {
            tracing::error!(%error, "the desired state cannot be saved");
        }
    }
}
