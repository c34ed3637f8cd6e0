//! From what is wanted to what is served.
//!
//! [`Converger::settle`] compares the two and does what is missing; whatever happens, an answer of the control plane
//! or a bundle that arrives, is followed by it. Each bundle has a task of its own that tries until it has it or nobody
//! wants it, so a bad one holds up no other site, and its own site goes on with the version before. What is live is
//! compressed by one more task, a bundle at a time: the site is shown before that, too.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::{Arc, Weak};

use protocol::DeploymentState;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinSet, spawn_blocking};

use crate::compress::compress;
use crate::desired::{Answer, Placements};
use crate::digest::Digest;
use crate::fetch::Fetcher;
use crate::index::Index;
use crate::observe::Observer;
use crate::routes::{Routes, Shown};
use crate::worker::fleet::Fleet;

/// The one task that decides what is served.
pub struct Converger {
    fetcher: Fetcher,
    routes: watch::Sender<Arc<Routes>>,
    placements: Placements,
    /// Of every bundle that is live or is to be, and here.
    indexes: HashMap<Digest, Arc<Index>>,
    /// Bundles that are not to be had.
    hopeless: UnboundedReceiver<Digest>,
    fetches: JoinSet<(Digest, Index)>,
    fetching: HashMap<Digest, AbortHandle>,
    /// Live bundles that are damaged.
    damaged: HashSet<Digest>,
    /// Of what was live until now: visitors may still be about to open something of it.
    leaving: Vec<(Digest, Weak<Index>)>,
    /// One at a time.
    compression: JoinSet<(Digest, Index)>,
    compressing: Option<(Digest, AbortHandle)>,
    sweep: JoinSet<()>,
    /// Whether the placements differ from those that were saved.
    is_changed: bool,
    fleet: Fleet,
    observer: Observer,
}

impl Converger {
    /// Puts into service what was served when the node stopped.
    pub fn restore(
        (fetcher, hopeless): (Fetcher, UnboundedReceiver<Digest>),
        fleet: Fleet,
        observer: Observer,
        routes: watch::Sender<Arc<Routes>>,
    ) -> anyhow::Result<Self> {
        let mut placements = fetcher.cache.placements()?.unwrap_or_default();
        let mut indexes = HashMap::new();
        for bundle in placements.live() {
            if let Some(index) = fetcher.cache.index(bundle)? {
                indexes.insert(bundle, Arc::new(index));
            }
        }
        placements.demote(|bundle| indexes.contains_key(bundle));
        let mut restored = Self {
            fetcher,
            routes,
            placements,
            indexes,
            hopeless,
            fetches: JoinSet::new(),
            fetching: HashMap::new(),
            damaged: HashSet::new(),
            leaving: Vec::new(),
            compression: JoinSet::new(),
            compressing: None,
            sweep: JoinSet::new(),
            is_changed: true,
            fleet,
            observer,
        };
        restored.publish();
        restored.tell_what_is_served();
        Ok(restored)
    }

    /// Converges for ever. `damage` tells of contents that are not on disk as they should be.
    pub async fn run(mut self, mut answers: mpsc::Receiver<Answer>, mut damage: mpsc::Receiver<Digest>) {
        loop {
            self.settle().await;
            tokio::select! {
                Some(answer) = answers.recv() => self.take_in(answer),
                Some(fetched) = self.fetches.join_next() => self.take_in_bundle(fetched),
                Some(()) = self.fleet.next() => {}
                Some(compressed) = self.compression.join_next() => self.take_in_compressed(compressed),
                Some(content) = damage.recv() => self.take_in_damage(content),
                Some(bundle) = self.hopeless.recv() => self.tell_of_hopeless(bundle),
                Some(swept) = self.sweep.join_next() => if let Err(error) = swept {
                    tracing::error!(%error, "sweeping the cache failed unexpectedly");
                },
                else => return,
            }
        }
    }

    fn take_in(&mut self, answer: Answer) {
        self.placements.apply(answer);
        self.is_changed = true;
    }

    fn take_in_bundle(&mut self, fetched: Result<(Digest, Index), JoinError>) {
        match fetched {
            Ok((bundle, index)) => {
                self.damaged.remove(&bundle);
                self.indexes.insert(bundle, Arc::new(index));
            }
            Err(error) if error.is_cancelled() => {}
            Err(error) => tracing::error!(%error, "fetching a bundle failed unexpectedly"),
        }
        self.fetching.retain(|_, task| !task.is_finished());
    }

    /// The same contents in more codings: who is served one of them meanwhile gets the same.
    fn take_in_compressed(&mut self, compressed: Result<(Digest, Index), JoinError>) {
        self.compressing = None;
        match compressed {
            Ok((bundle, index)) => {
                if let Some(known) = self.indexes.get_mut(&bundle) {
                    // Code that runs answers out of the one before.
                    self.leaving.push((bundle, Arc::downgrade(known)));
                    *known = Arc::new(index);
                }
            }
            Err(error) if error.is_cancelled() => {}
            Err(error) => tracing::error!(%error, "compressing a bundle failed unexpectedly"),
        }
    }

    fn take_in_damage(&mut self, content: Digest) {
        let holds = |index: &Index| index.contents().any(|asset| asset.content == content);
        let damaged = self.indexes.iter().filter(|(_, index)| holds(index)).map(|(bundle, _)| *bundle);
        self.damaged.extend(damaged);
    }

    async fn settle(&mut self) {
        let left = self.let_go();
        self.start_wanted();
        let promoted = self.placements.promote(|project, site| {
            let index = self.indexes.get(&site.bundle);
            index.is_some_and(|index| self.fleet.is_ready(project, site.bundle, index))
        });
        self.is_changed |= !promoted.is_empty();
        self.publish();
        for (project, version) in promoted {
            self.observer.tell(&project, version, DeploymentState::Serving, None);
        }
        self.keep();
        self.fetch_missing();
        self.compress_next();
        if !left.is_empty() {
            self.fetcher.cache.ask_for_sweep_if_over();
        }
        self.save(left).await;
        self.sweep_if_due();
    }

    /// Forgets the indexes of what is neither live nor wanted any more, and gives their bundles.
    fn let_go(&mut self) -> Vec<Digest> {
        let needed = self.placements.bundles();
        let left: Vec<Digest> = self.indexes.keys().filter(|bundle| !needed.contains(bundle)).copied().collect();
        for bundle in &left {
            let index = self.indexes.remove(bundle);
            self.leaving.extend(index.map(|index| (*bundle, Arc::downgrade(&index))));
        }
        self.damaged.retain(|bundle| needed.contains(bundle));
        left
    }

    /// What was told before a restart may have been lost with it.
    fn tell_what_is_served(&self) {
        for (project, placement) in self.placements.iter() {
            if let Some(version) = placement.live_version {
                self.observer.tell(project, version, DeploymentState::Serving, None);
            }
        }
    }

    fn tell_of_hopeless(&self, bundle: Digest) {
        const WHY: &str = "The node cannot get the bundle, and goes on trying.";
        for (project, placement) in self.placements.iter() {
            if placement.wanted.bundle == bundle && placement.live != Some(bundle) {
                self.observer.tell(project, placement.wanted.version, DeploymentState::Failed, Some(WHY.to_owned()));
            }
        }
    }

    fn publish(&mut self) {
        let (mut routes, mut workers) = (Routes::new(), HashMap::new());
        for (project, placement) in self.placements.iter() {
            let live = placement.live.and_then(|bundle| self.indexes.get_key_value(&bundle));
            let version = placement.live_version.unwrap_or(placement.wanted.version);
            let worker = live.and_then(|(bundle, index)| self.fleet.serve(project, version, *bundle, index));
            workers.extend(worker.iter().map(|worker| (project.clone(), Arc::clone(worker))));
            let index = live.map(|(_, index)| Arc::clone(index));
            let (project, access) = (project.clone(), placement.wanted.access.clone());
            let shown = Arc::new(Shown { project, index, worker, access });
            routes.extend(placement.wanted.hostnames.iter().map(|name| (name.clone(), Arc::clone(&shown))));
        }
        self.routes.send_replace(Arc::new(routes));
        self.fleet.replace(workers);
    }

    /// Code is started before it is served.
    fn start_wanted(&mut self) {
        let behind = self.placements.iter().filter(|(_, placement)| placement.live != Some(placement.wanted.bundle));
        let here = behind.filter_map(|(project, placement)| {
            let index = self.indexes.get(&placement.wanted.bundle)?;
            index.code.is_some().then_some((project, placement, index))
        });
        self.fleet.prepare(here);
    }

    /// States what no sweep takes.
    fn keep(&mut self) {
        self.leaving.retain(|(_, index)| index.strong_count() > 0);
        let leaving = self.leaving.iter().map(|(bundle, _)| *bundle);
        self.fetcher.cache.keep(self.placements.bundles().into_iter().chain(leaving).collect());
    }

    fn fetch_missing(&mut self) {
        let mut missing = self.placements.missing();
        missing.retain(|bundle, _| !self.indexes.contains_key(bundle));
        // What is served although it is no longer wanted is not to be had a second time.
        let damaged = self.placements.iter().map(|(_, placement)| &placement.wanted);
        let damaged =
            damaged.filter(|wanted| self.damaged.contains(&wanted.bundle) && !self.is_compressing(wanted.bundle));
        let damaged: HashMap<Digest, i64> = damaged.map(|wanted| (wanted.bundle, wanted.size_bytes)).collect();
        self.fetching.retain(|bundle, task| {
            let wanted = missing.contains_key(bundle) || damaged.contains_key(bundle);
            if !wanted {
                task.abort();
            }
            wanted
        });
        for (bundle, size) in damaged {
            let fetch = || self.fetches.spawn(self.fetcher.clone().obtain_anew(bundle, size));
            self.fetching.entry(bundle).or_insert_with(fetch);
        }
        for (bundle, size) in missing {
            let fetch = || self.fetches.spawn(self.fetcher.clone().obtain(bundle, size));
            self.fetching.entry(bundle).or_insert_with(fetch);
        }
    }

    fn compress_next(&mut self) {
        match &self.compressing {
            Some((bundle, task)) if !self.indexes.contains_key(bundle) => task.abort(),
            Some(_) => {}
            None => {
                let mut left = self.indexes.iter().filter(|(bundle, index)| {
                    // What is being replaced comes anew.
                    !index.compressed && !self.damaged.contains(bundle)
                });
                let Some((bundle, index)) = left.next().map(|(bundle, index)| (*bundle, Arc::clone(index))) else {
                    return;
                };
                let cache = Arc::clone(&self.fetcher.cache);
                self.compressing = Some((bundle, self.compression.spawn(compress(cache, bundle, index))));
            }
        }
    }

    fn is_compressing(&self, bundle: Digest) -> bool {
        self.compressing.as_ref().is_some_and(|(compressing, _)| *compressing == bundle)
    }

    /// Saves the placements, and when the bundles that just left were used last. What cannot be saved is served all the
    /// same; only a restart during an outage would miss it.
    async fn save(&mut self, left: Vec<Digest>) {
        let is_changed = mem::take(&mut self.is_changed);
        if !is_changed && left.is_empty() {
            return;
        }
        let cache = Arc::clone(&self.fetcher.cache);
        let placements = is_changed.then(|| self.placements.clone());
        let save = move || {
            placements.iter().try_for_each(|placements| cache.save_placements(placements))?;
            left.into_iter().try_for_each(|bundle| cache.note_use(bundle))
        };
        if let Err(error) = spawn_blocking(save).await.map_err(Into::into).flatten() {
            tracing::error!(%error, "the desired state cannot be saved");
        }
    }

    fn sweep_if_due(&mut self) {
        let cache = Arc::clone(&self.fetcher.cache);
        if !self.sweep.is_empty() || !cache.is_sweep_due() {
            return;
        }
        self.sweep.spawn_blocking(move || {
            if let Err(error) = cache.sweep() {
                tracing::error!(%error, "the cache cannot be swept");
            }
        });
    }
}
