//! The workers of all projects, as the reconciler manages them.
//!
//! A new version with code is started while the old one is still served. It is ready when it responds.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::{AbortHandle, JoinSet};

use super::version::Worker;
use super::workers::Workers;
use crate::desired::Placement;
use crate::digest::Digest;
use crate::index::Index;

/// The workers of all projects with code; always empty on a node that does not run worker code.
pub struct Fleet {
    workers: Option<Arc<Workers>>,
    served: HashMap<String, Arc<Worker>>,
    ready: HashMap<String, Arc<Worker>>,
    starting: HashMap<String, Start>,
    starts: JoinSet<Arc<Worker>>,
}

struct Start {
    bundle: Digest,
    /// The revision of the desired state that requested the start.
    revision: i64,
    handle: AbortHandle,
}

impl Fleet {
    /// An empty fleet.
    pub fn new(workers: Option<Arc<Workers>>) -> Self {
        let (served, ready, starting) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { workers, served, ready, starting, starts: JoinSet::new() }
    }

    /// Whether the bundle can be served: it has no code to start, or its worker has started.
    pub fn is_ready(&self, project: &str, bundle: Digest, index: &Index) -> bool {
        self.workers.is_none() || index.code.is_none() || self.has_started(project, bundle)
    }

    fn has_started(&self, project: &str, bundle: Digest) -> bool {
        self.ready.get(project).is_some_and(|worker| worker.bundle == bundle)
    }

    /// Starts the workers of desired versions, and stops starts and workers that are no longer desired.
    pub fn start_desired<'a>(&mut self, desired: impl Iterator<Item = (&'a String, &'a Placement, &'a Arc<Index>)>) {
        let Some(workers) = &self.workers else { return };
        let desired: HashMap<&String, (&Placement, &Arc<Index>)> =
            desired.map(|(project, placement, index)| (project, (placement, index))).collect();
        let is_desired = |project: &String, bundle: Digest| {
            desired.get(project).is_some_and(|(placement, _)| placement.desired.bundle == bundle)
        };
        // A new revision of the same bundle starts again, so that its result is reported again.
        let is_same = |project: &String, start: &Start| {
            is_desired(project, start.bundle)
                && desired.get(project).is_some_and(|(placement, _)| placement.revision == start.revision)
        };
        for (_, start) in self.starting.extract_if(|project, start| !is_same(project, start)) {
            start.handle.abort();
        }
        for (_, worker) in self.ready.extract_if(|project, worker| !is_desired(project, worker.bundle)) {
            worker.retire();
        }
        for (project, (Placement { desired, revision, .. }, index)) in desired {
            if self.ready.contains_key(project) || self.starting.contains_key(project) {
                continue;
            }
            let worker = Worker::new(workers, project, desired.version, desired.bundle, Arc::clone(index));
            let handle = self.starts.spawn(worker.start_until_ready());
            self.starting.insert(project.clone(), Start { bundle: desired.bundle, revision: *revision, handle });
        }
    }

    /// Waits until a worker has started.
    pub async fn wait_for_start(&mut self) -> Option<()> {
        match self.starts.join_next().await? {
            Ok(worker) => {
                // A start may have finished just before it was aborted.
                if self.starting.get(&worker.project).is_some_and(|it| it.bundle == worker.bundle) {
                    self.starting.remove(&worker.project);
                    self.ready.insert(worker.project.clone(), worker);
                } else {
                    worker.retire();
                }
            }
            Err(error) if error.is_cancelled() => {}
            Err(error) => tracing::error!(%error, "a worker start task failed"),
        }
        Some(())
    }

    /// The worker to serve. If it was not started before, as after a restart of the node, it starts at the first
    /// request. [`Fleet::set_served`] stops the previous one.
    pub fn worker_to_serve(
        &mut self,
        project: &str,
        version: i32,
        bundle: Digest,
        index: &Arc<Index>,
    ) -> Option<Arc<Worker>> {
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

    /// Sets the served workers, and retires the previous ones.
    pub fn set_served(&mut self, served: HashMap<String, Arc<Worker>>) {
        for (project, previous) in std::mem::replace(&mut self.served, served) {
            if !self.served.get(&project).is_some_and(|now| Arc::ptr_eq(now, &previous)) {
                previous.retire();
            }
        }
    }
}
