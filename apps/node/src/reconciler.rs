//! The reconcile loop of the node.
//!
//! Every event, such as an update of the desired state or a fetched bundle, triggers a reconciliation of the desired
//! with the served state. Each bundle is fetched by its own task, which retries until it succeeds or the bundle is no
//! longer desired. A bad bundle does not delay other sites, and its own site keeps serving the previous version.
//! Another task compresses live bundles one by one, the smallest first. A site is served before its bundle is
//! compressed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use protocol::{DeploymentState, Site};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinSet, spawn_blocking};
use tokio::time::sleep;

use crate::cache::Cache;
use crate::compress::compress;
use crate::desired::{DesiredUpdate, Placement, Placements, SiteChange};
use crate::digest::Digest;
use crate::environment::Environments;
use crate::fetch::Fetcher;
use crate::index::Index;
use crate::observe::Observer;
use crate::routes::{Routes, SiteRoute, hsts_values};
use crate::save::Saver;
use crate::worker::VersionCode;
use crate::worker::fleet::{Candidate, Fleet, Unavailable};

/// The delay before a failed cache eviction is retried.
const EVICTION_RETRY_DELAY: Duration = Duration::from_secs(10);
/// The delay before a cache eviction is tried again that found an addition in progress.
const BLOCKED_EVICTION_DELAY: Duration = Duration::from_secs(1);

/// The reconcile loop. It owns the routing table.
pub struct Reconciler {
    fetcher: Fetcher,
    routes: watch::Sender<Arc<Routes>>,
    placements: Placements,
    environments: Arc<Environments>,
    /// The indexes of the stored bundles that are live or desired.
    indexes: HashMap<Digest, Arc<Index>>,
    /// Bundles that repeatedly failed to fetch.
    failed_fetches: UnboundedReceiver<Digest>,
    fetches: JoinSet<(Digest, Index)>,
    fetching: HashMap<Digest, AbortHandle>,
    /// Fetches in progress that were reported as failed.
    failing: HashSet<Digest>,
    /// Live bundles that are damaged.
    damaged: HashSet<Digest>,
    /// Replaced indexes. Requests in flight may still use them, so their bundles stay pinned.
    draining: Vec<(Digest, Weak<Index>)>,
    /// Compresses one bundle at a time.
    compression: JoinSet<(Digest, Index)>,
    compressing: Option<(Digest, AbortHandle)>,
    eviction: JoinSet<()>,
    saver: Saver,
    fleet: Fleet,
    observer: Observer,
}

impl Reconciler {
    /// Restores the served state: the saved placements and environments, with the stored bundles.
    pub fn restore(
        (fetcher, failed_fetches): (Fetcher, UnboundedReceiver<Digest>),
        (mut placements, environments): (Placements, Arc<Environments>),
        fleet: Fleet,
        observer: Observer,
        routes: watch::Sender<Arc<Routes>>,
    ) -> anyhow::Result<Self> {
        let mut indexes = HashMap::new();
        for bundle in placements.live() {
            if let Some(index) = fetcher.cache.index(bundle)? {
                indexes.insert(bundle, Arc::new(index));
            }
        }
        placements.demote(|bundle| indexes.contains_key(bundle));
        let saver = Saver::new(Arc::clone(&fetcher.cache), Arc::clone(&environments));
        let mut restored = Self {
            fetcher,
            routes,
            placements,
            environments,
            indexes,
            failed_fetches,
            fetches: JoinSet::new(),
            fetching: HashMap::new(),
            failing: HashSet::new(),
            damaged: HashSet::new(),
            draining: Vec::new(),
            compression: JoinSet::new(),
            compressing: None,
            eviction: JoinSet::new(),
            saver,
            fleet,
            observer,
        };
        restored.publish_routes();
        restored.report_live_versions();
        Ok(restored)
    }

    /// Runs the loop. `damage` receives the digests of missing and damaged blobs.
    pub async fn run(mut self, mut updates: mpsc::Receiver<DesiredUpdate>, mut damage: mpsc::Receiver<Digest>) {
        loop {
            self.reconcile().await;
            tokio::select! {
                Some(update) = updates.recv() => self.apply_update(update),
                Some(fetched) = self.fetches.join_next() => self.on_bundle_fetched(fetched),
                Some(()) = self.fleet.wait_for_change() => {}
                Some(()) = self.saver.wait_for_retry() => {}
                Some(compressed) = self.compression.join_next() => self.on_bundle_compressed(compressed),
                Some(content) = damage.recv() => self.on_damage(content),
                Some(bundle) = self.failed_fetches.recv() => self.report_failed_fetch(bundle),
                Some(result) = self.eviction.join_next() => if let Err(error) = result {
                    tracing::error!(%error, "the cache eviction task failed");
                },
                else => return,
            }
        }
    }

    fn apply_update(&mut self, update: DesiredUpdate) {
        let DesiredUpdate { full, sites, kept_sites, environments, .. } = update;
        // If the bundle of an updated site failed all its attempts, they start again, and the version is reported after
        // them: it may be a new deployment of the bundle.
        for bundle in sites.iter().filter_map(SiteChange::bundle) {
            if self.failing.remove(&bundle)
                && let Some(task) = self.fetching.remove(&bundle)
            {
                task.abort();
            }
        }
        self.environments.apply(full, environments);
        self.placements.apply(full, sites, &kept_sites);
        self.saver.set_changed();
    }

    fn on_bundle_fetched(&mut self, fetched: Result<(Digest, Index), JoinError>) {
        match fetched {
            Ok((bundle, index)) => {
                self.damaged.remove(&bundle);
                let replaced = self.indexes.insert(bundle, Arc::new(index));
                self.draining.extend(replaced.map(|index| (bundle, Arc::downgrade(&index))));
            }
            Err(error) if error.is_cancelled() => {}
            Err(error) => tracing::error!(%error, "a bundle fetch task failed"),
        }
        self.fetching.retain(|_, task| !task.is_finished());
    }

    /// Replaces an index by one that also lists the compressed codings. Requests may use either.
    fn on_bundle_compressed(&mut self, compressed: Result<(Digest, Index), JoinError>) {
        self.compressing = None;
        match compressed {
            Ok((bundle, index)) => {
                if let Some(current) = self.indexes.get_mut(&bundle) {
                    // A running worker still reads assets through the previous index.
                    self.draining.push((bundle, Arc::downgrade(current)));
                    *current = Arc::new(index);
                }
            }
            Err(error) if error.is_cancelled() => {}
            Err(error) => tracing::error!(%error, "a bundle compression task failed"),
        }
    }

    fn on_damage(&mut self, content: Digest) {
        let contains = |index: &Index| index.contents().any(|asset| asset.content == content);
        let damaged = self.indexes.iter().filter(|(_, index)| contains(index)).map(|(bundle, _)| *bundle);
        self.damaged.extend(damaged);
    }

    async fn reconcile(&mut self) {
        let dropped = self.drop_unneeded();
        let promoted = self.placements.promote(|project, site| {
            let index = self.indexes.get(&site.bundle);
            index.is_some_and(|index| self.fleet.is_ready(project, site.bundle, index))
        });
        if !promoted.is_empty() {
            self.saver.set_changed();
        }
        self.publish_routes();
        self.start_workers();
        for (project, version) in promoted {
            self.observer.report_deployment(&project, version, DeploymentState::Serving, None);
        }
        if !dropped.is_empty() {
            self.fetcher.cache.request_eviction_if_over_limit();
        }
        // The placements are saved before the dropped bundles are unpinned. Otherwise, an eviction in progress could
        // remove a bundle that the saved placements still name.
        self.saver.save(&self.placements, dropped).await;
        self.pin_bundles();
        self.fetch_missing();
        self.compress_next();
        self.evict_if_due();
    }

    /// Removes the indexes of bundles that are neither live nor desired. Returns these bundles.
    fn drop_unneeded(&mut self) -> Vec<Digest> {
        let needed = self.placements.bundles();
        let dropped: Vec<Digest> = self.indexes.keys().filter(|bundle| !needed.contains(bundle)).copied().collect();
        for bundle in &dropped {
            let index = self.indexes.remove(bundle);
            self.draining.extend(index.map(|index| (*bundle, Arc::downgrade(&index))));
        }
        self.damaged.retain(|bundle| needed.contains(bundle));
        dropped
    }

    /// Reports all live versions again, because a restart may have lost pending reports.
    fn report_live_versions(&self) {
        for (project, placement) in self.placements.iter() {
            if let Some(version) = placement.live_version {
                self.observer.report_deployment(project, version, DeploymentState::Serving, None);
            }
        }
    }

    fn report_failed_fetch(&mut self, bundle: Digest) {
        const MESSAGE: &str = "The node cannot fetch the bundle. It keeps retrying.";
        self.failing.insert(bundle);
        for (project, placement) in self.placements.iter() {
            if placement.desired.bundle == bundle && placement.live != Some(bundle) {
                self.observer.report_deployment(
                    project,
                    placement.desired.version,
                    DeploymentState::Failed,
                    Some(MESSAGE.to_owned()),
                );
            }
        }
    }

    fn publish_routes(&mut self) {
        let (mut routes, mut workers) = (Routes::default(), HashMap::new());
        for (project, placement) in self.placements.iter() {
            let code = live_code(&self.indexes, project, placement);
            let worker = code.map_or(Err(Unavailable::NoWorkers), |code| self.fleet.worker_to_serve(&code));
            workers.extend(worker.iter().map(|worker| (project.clone(), Arc::clone(worker))));
            let index = placement.live.and_then(|bundle| self.indexes.get(&bundle)).map(Arc::clone);
            let (project, access) = (project.clone(), placement.desired.access.clone());
            let hsts = hsts_values(&placement.desired.hsts);
            routes.insert(SiteRoute { project, index, worker, access, hsts }, &placement.desired.hostnames);
        }
        self.routes.send_replace(Arc::new(routes));
        self.fleet.set_served(workers);
    }

    /// Starts the workers of desired bundles and of changed environments, because code must run before it is served.
    fn start_workers(&mut self) {
        let indexes = &self.indexes;
        let candidates = self.placements.iter().flat_map(|(project, placement)| {
            let Placement { desired, live, revision, .. } = placement;
            let pending = (*live != Some(desired.bundle)).then_some(desired);
            let pending = pending.and_then(|desired| code(indexes, project, desired, desired.version, desired.bundle));
            let pending = pending.map(|code| Candidate { code, revision: Some(*revision) });
            let live = live_code(indexes, project, placement).map(|code| Candidate { code, revision: None });
            pending.into_iter().chain(live)
        });
        self.fleet.start_needed(candidates);
    }

    /// Pins all needed bundles in the cache.
    fn pin_bundles(&mut self) {
        let before = self.draining.len();
        self.draining.retain(|(_, index)| index.strong_count() > 0);
        if self.draining.len() < before {
            // An eviction may have kept them because of requests in flight.
            self.fetcher.cache.request_eviction_if_over_limit();
        }
        let draining = self.draining.iter().map(|(bundle, _)| *bundle);
        // Indexed bundles stay pinned too: the last use of a bundle is recorded only when its index is dropped.
        let indexed = self.indexes.keys().copied();
        self.fetcher.cache.pin(self.placements.bundles().into_iter().chain(draining).chain(indexed).collect());
    }

    fn fetch_missing(&mut self) {
        let mut missing = self.placements.missing();
        missing.retain(|bundle, _| !self.indexes.contains_key(bundle));
        // Only desired bundles: the control plane no longer provides a bundle that is live but not desired.
        let damaged = self.placements.iter().map(|(_, placement)| &placement.desired);
        let damaged =
            damaged.filter(|desired| self.damaged.contains(&desired.bundle) && !self.is_compressing(desired.bundle));
        let damaged: HashMap<Digest, i64> = damaged.map(|desired| (desired.bundle, desired.size_bytes)).collect();
        self.fetching.retain(|bundle, task| {
            let is_desired = missing.contains_key(bundle) || damaged.contains_key(bundle);
            if !is_desired {
                task.abort();
            }
            is_desired
        });
        self.failing.retain(|bundle| self.fetching.contains_key(bundle));
        for (bundle, size) in damaged {
            let fetch = || self.fetches.spawn(self.fetcher.clone().fetch(bundle, size, true));
            self.fetching.entry(bundle).or_insert_with(fetch);
        }
        for (bundle, size) in missing {
            let fetch = || self.fetches.spawn(self.fetcher.clone().fetch(bundle, size, false));
            self.fetching.entry(bundle).or_insert_with(fetch);
        }
    }

    fn compress_next(&mut self) {
        match &self.compressing {
            Some((bundle, task)) if !self.indexes.contains_key(bundle) => task.abort(),
            Some(_) => {}
            None => {
                let Some((bundle, index)) = next_to_compress(&self.indexes, &self.damaged) else { return };
                let cache = Arc::clone(&self.fetcher.cache);
                self.compressing = Some((bundle, self.compression.spawn(compress(cache, bundle, index))));
            }
        }
    }

    fn is_compressing(&self, bundle: Digest) -> bool {
        self.compressing.as_ref().is_some_and(|(compressing, _)| *compressing == bundle)
    }

    fn evict_if_due(&mut self) {
        if self.eviction.is_empty() && self.fetcher.cache.is_eviction_due() {
            self.eviction.spawn(evict(Arc::clone(&self.fetcher.cache)));
        }
    }
}

/// Evicts unused bundles. Retries until it succeeds.
async fn evict(cache: Arc<Cache>) {
    loop {
        let evicting = Arc::clone(&cache);
        let delay = match spawn_blocking(move || evicting.evict()).await.map_err(Into::into).flatten() {
            Ok(true) => return,
            Ok(false) => BLOCKED_EVICTION_DELAY,
            Err(error) => {
                tracing::error!(%error, "failed to evict unused bundles; retrying");
                EVICTION_RETRY_DELAY
            }
        };
        sleep(delay).await;
    }
}

/// Returns the smallest uncompressed bundle, so that large bundles do not delay small ones. A damaged bundle is
/// compressed after it is fetched again.
fn next_to_compress(indexes: &HashMap<Digest, Arc<Index>>, damaged: &HashSet<Digest>) -> Option<(Digest, Arc<Index>)> {
    let uncompressed = indexes.iter().filter(|(bundle, index)| !index.compressed && !damaged.contains(bundle));
    let smallest = uncompressed.min_by_key(|(_, index)| index.assets.values().map(|asset| asset.size).sum::<u64>());
    smallest.map(|(bundle, index)| (*bundle, Arc::clone(index)))
}

/// Returns the code of a stored bundle.
fn code<'a>(
    indexes: &'a HashMap<Digest, Arc<Index>>,
    project: &'a str,
    Site { owner, .. }: &'a Site,
    version: i32,
    bundle: Digest,
) -> Option<VersionCode<'a>> {
    let index = indexes.get(&bundle).filter(|index| index.code.is_some())?;
    Some(VersionCode { project, owner, version, bundle, index })
}

fn live_code<'a>(
    indexes: &'a HashMap<Digest, Arc<Index>>,
    project: &'a str,
    placement: &'a Placement,
) -> Option<VersionCode<'a>> {
    let version = placement.live_version.unwrap_or(placement.desired.version);
    code(indexes, project, &placement.desired, version, placement.live?)
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;
    use crate::index::Asset;

    #[test]
    fn smallest_bundle_is_compressed_first() {
        let bundle = |size: u64, compressed| {
            let digest = Digest::of(&size.to_be_bytes());
            let asset = |name: &str, size| (name.to_owned(), Asset::new(digest, size));
            let assets = [asset("/a", size / 2), asset("/b", size - size / 2)].into();
            (digest, Arc::new(Index { compressed, assets, ..Index::default() }))
        };
        let bundles = [bundle(500, false), bundle(30, true), bundle(400, false), bundle(70, false), bundle(90, false)];
        let [_, _, (large, _), (damaged, _), (smallest, _)] = bundles.clone();
        let mut indexes = HashMap::from(bundles);
        let next = |indexes: &_| next_to_compress(indexes, &[damaged].into()).map(|(bundle, _)| bundle);
        assert_eq!(next(&indexes), Some(smallest));
        indexes.remove(&smallest);
        assert_eq!(next(&indexes), Some(large));
    }

    /// If the task ended, the loop would start another one immediately.
    #[test]
    fn eviction_waits_for_an_addition_in_progress() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, unused) = (Cache::in_dir(dir.path()), Digest::of(b""));
        cache.add_blob(unused, cache.temporary().unwrap()).unwrap();

        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let addition = cache.block_eviction();
        let eviction = runtime.spawn(evict(Arc::clone(&cache)));
        runtime.block_on(async { sleep(Duration::from_secs(5)).await });
        assert!(!eviction.is_finished() && cache.is_eviction_due());
        drop(addition);
        runtime.block_on(eviction).unwrap();
        assert!(!cache.is_eviction_due());
        assert_eq!(cache.size(unused.into()).unwrap(), None);
    }
}
