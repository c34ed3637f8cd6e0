//! Which versions run: the converger's side.
//!
//! A version with code is started beside the one that is served, and counts as here once it answers.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::{AbortHandle, JoinSet};

use super::version::Worker;
use super::workers::Workers;
use crate::desired::Placement;
use crate::digest::Digest;
use crate::index::Index;

/// The versions of all projects that have code; none on a node that does not run any.
pub struct Fleet {
    workers: Option<Arc<Workers>>,
    served: HashMap<String, Arc<Worker>>,
    ready: HashMap<String, Arc<Worker>>,
    starting: HashMap<String, Start>,
    starts: JoinSet<Arc<Worker>>,
}

struct Start {
    bundle: Digest,
    /// At which it was wanted.
    revision: i64,
    handle: AbortHandle,
}

impl Fleet {
    /// No version yet.
    pub fn new(workers: Option<Arc<Workers>>) -> Self {
        let (served, ready, starting) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { workers, served, ready, starting, starts: JoinSet::new() }
    }

    /// Whether the bundle needs no start, or has had it.
    pub fn is_ready(&self, project: &str, bundle: Digest, index: &Index) -> bool {
        self.workers.is_none() || index.code.is_none() || self.has_started(project, bundle)
    }

    fn has_started(&self, project: &str, bundle: Digest) -> bool {
        self.ready.get(project).is_some_and(|worker| worker.bundle == bundle)
    }

    /// Starts what is wanted, and ends what was and is no longer.
    pub fn prepare<'a>(&mut self, wanted: impl Iterator<Item = (&'a String, &'a Placement, &'a Arc<Index>)>) {
        let Some(workers) = &self.workers else { return };
        let wanted: HashMap<&String, (&Placement, &Arc<Index>)> =
            wanted.map(|(project, placement, index)| (project, (placement, index))).collect();
        let is_wanted = |project: &String, bundle: Digest| {
            wanted.get(project).is_some_and(|(placement, _)| placement.wanted.bundle == bundle)
        };
        // What is wanted anew starts anew, so that how it goes is told anew.
        let is_same = |project: &String, start: &Start| {
            is_wanted(project, start.bundle)
                && wanted.get(project).is_some_and(|(placement, _)| placement.revision == start.revision)
        };
        for (_, start) in self.starting.extract_if(|project, start| !is_same(project, start)) {
            start.handle.abort();
        }
        for (_, worker) in self.ready.extract_if(|project, worker| !is_wanted(project, worker.bundle)) {
            worker.retire();
        }
        for (project, (Placement { wanted, revision, .. }, index)) in wanted {
            if self.ready.contains_key(project) || self.starting.contains_key(project) {
                continue;
            }
            let worker = Worker::new(workers, project, wanted.version, wanted.bundle, Arc::clone(index));
            let handle = self.starts.spawn(worker.prepare());
            self.starting.insert(project.clone(), Start { bundle: wanted.bundle, revision: *revision, handle });
        }
    }

    /// Waits until a version has started.
    pub async fn next(&mut self) -> Option<()> {
        match self.starts.join_next().await? {
            Ok(worker) => {
                // An older start may have finished just before it was ended.
                if self.starting.get(&worker.project).is_some_and(|it| it.bundle == worker.bundle) {
                    self.starting.remove(&worker.project);
                    self.ready.insert(worker.project.clone(), worker);
                } else {
                    worker.retire();
                }
            }
            Err(error) if error.is_cancelled() => {}
            Err(error) => tracing::error!(%error, "starting a worker failed unexpectedly"),
        }
        Some(())
    }

    /// The version that is to be served; one that did not need to be started, after a restart say, is at the first
    /// request. The version before it ends with [`Fleet::replace`].
    pub fn serve(&mut self, project: &str, version: i32, bundle: Digest, index: &Arc<Index>) -> Option<Arc<Worker>> {
        let workers = self.workers.as_ref().filter(|_| index.code.is_some())?;
        if let Some(served) = self.served.get(project).filter(|served| served.bundle == bundle) {
            served.set_version(version);
            return Some(Arc::clone(served));
        }
        let ready = if self.has_started(project, bundle) { self.ready.remove(project) } else { None };
        let Some(worker) = ready else {
            return Some(Worker::new(workers, project, version, bundle, Arc::clone(index)));
        };
        worker.set_version(version);
        Some(worker)
    }

    /// Takes these for what is served now, and ends what was before.
    pub fn replace(&mut self, served: HashMap<String, Arc<Worker>>) {
        for (project, before) in std::mem::replace(&mut self.served, served) {
            if !self.served.get(&project).is_some_and(|now| Arc::ptr_eq(now, &before)) {
                before.retire();
            }
        }
    }
}
