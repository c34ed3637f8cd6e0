//! The workers of all projects, as the reconciler manages them.
//!
//! A version is a bundle and an environment. After a deploy, the new version has a new bundle and the current
//! environment; after a change of the environment, it has the live bundle and the new environment. A new version with
//! code is started while the old one is still served, and is ready when it responds. Both kinds of new versions can
//! start concurrently, so that a bundle that does not start does not delay a new environment.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Weak};

use futures_util::future::OptionFuture;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::version::{VersionCode, Worker};
use super::workers::Workers;
use crate::digest::Digest;
use crate::environment::{CurrentEnvironment, Environments};
use crate::index::Index;

/// The maximum number of replaced processes of a project that still finish their requests. It is low, because each
/// process uses memory, and members can change the environment often.
const MAX_DRAINING: usize = 2;

/// The workers of all projects with code; always empty on a node that does not run worker code.
pub struct Fleet {
    workers: Option<Arc<Workers>>,
    environments: Arc<Environments>,
    served: HashMap<String, Arc<Worker>>,
    ready: HashMap<Key, Arc<Worker>>,
    starting: HashMap<Key, Start>,
    starts: JoinSet<Arc<Worker>>,
    /// The replaced workers that still finish their requests, oldest first.
    draining: Vec<Weak<Worker>>,
    /// The time at which the next environment settles.
    settles_at: Option<Instant>,
}

/// A project and a bundle.
type Key = (String, Digest);

/// A version that may have to start before it is served.
pub struct Candidate<'a> {
    pub code: VersionCode<'a>,
    /// The revision of the desired state that deploys it; `None` for the live version.
    pub revision: Option<i64>,
}

/// A version that has to start before it is served.
struct Target<'a> {
    code: VersionCode<'a>,
    revision: Option<i64>,
    environment: CurrentEnvironment,
}

struct Start {
    worker: Arc<Worker>,
    revision: Option<i64>,
    handle: AbortHandle,
}

/// Why the code of a site is not served.
#[derive(Clone, Copy)]
pub enum Unavailable {
    /// The node does not run worker code.
    NoWorkers,
    /// The control plane has not sent the environment yet.
    NoEnvironment,
}

impl Fleet {
    /// Creates an empty fleet.
    pub fn new(workers: Option<Arc<Workers>>, environments: Arc<Environments>) -> Self {
        let (served, ready, starting, starts) = (HashMap::new(), HashMap::new(), HashMap::new(), JoinSet::new());
        Self { workers, environments, served, ready, starting, starts, draining: Vec::new(), settles_at: None }
    }

    /// Returns whether the bundle can be served, because it has no code to start or its worker has started.
    pub fn is_ready(&self, project: &str, bundle: Digest, index: &Index) -> bool {
        let ready = || self.ready.get(&(project.to_owned(), bundle));
        self.workers.is_none() || index.code.is_none() || ready().is_some_and(|worker| !self.is_older(worker))
    }

    /// Returns whether the served worker has a newer environment. If so, `worker` must not be served, because no later
    /// request may have an older environment.
    fn is_older(&self, worker: &Worker) -> bool {
        let served = self.served.get(&worker.project);
        served.is_some_and(|served| worker.generation() < served.generation())
    }

    /// Starts the workers of versions that are not served yet, and stops starts and workers that are no longer needed.
    pub fn start_needed<'a>(&mut self, candidates: impl Iterator<Item = Candidate<'a>>) {
        let Some(workers) = self.workers.clone() else { return };
        self.settles_at = None;
        let now = Instant::now();
        let targets = candidates.filter_map(|candidate| self.target(candidate, now)).collect::<HashMap<_, _>>();
        for (_, start) in
            self.starting.extract_if(|key, start| targets.get(key).is_none_or(|it| it.replaces(start, now)))
        {
            start.handle.abort();
        }
        let (needed, others) = mem::take(&mut self.ready)
            .into_iter()
            .partition(|(key, worker)| targets.contains_key(key) && !self.is_older(worker));
        self.ready = needed;
        others.into_values().for_each(Worker::retire);
        for (key, Target { code, revision, environment }) in targets {
            if self.ready.contains_key(&key) || self.starting.contains_key(&key) {
                continue;
            }
            let previous = self.served.get(code.project).filter(|served| served.bundle == code.bundle);
            let worker = Worker::new(&workers, &code, &environment, previous.map(Arc::as_ref));
            let handle = self.starts.spawn(Arc::clone(&worker).start_until_ready());
            self.starting.insert(key, Start { worker, revision, handle });
        }
    }

    /// Returns the version that the candidate must start now, if any.
    fn target<'a>(&mut self, candidate: Candidate<'a>, now: Instant) -> Option<(Key, Target<'a>)> {
        let Candidate { code, revision } = candidate;
        let environment = self.environments.get(code.project)?;
        let is_settled = environment.settled_at <= now;
        if !is_settled {
            let next = self.settles_at.unwrap_or(environment.settled_at);
            self.settles_at = Some(next.min(environment.settled_at));
        }
        // A stopped process needs no replacement: it starts with the current environment at the next request.
        let is_outdated = |served: &Arc<Worker>| {
            served.bundle == code.bundle && served.is_outdated(&environment) && served.is_active()
        };
        if revision.is_none() && !self.served.get(code.project).is_some_and(is_outdated) {
            return None;
        }
        let key = (code.project.to_owned(), code.bundle);
        let is_needed =
            revision.is_some() || is_settled || self.starting.contains_key(&key) || self.ready.contains_key(&key);
        is_needed.then_some((key, Target { code, revision, environment }))
    }

    /// Waits until a worker has started, or an environment has settled.
    pub async fn wait_for_change(&mut self) -> Option<()> {
        let settled = OptionFuture::from(self.settles_at.map(sleep_until));
        tokio::select! {
            Some(started) = self.starts.join_next() => self.on_started(started),
            Some(()) = settled => self.settles_at = None,
            else => return None,
        }
        Some(())
    }

    fn on_started(&mut self, started: Result<Arc<Worker>, JoinError>) {
        match started {
            Ok(worker) => {
                let key = (worker.project.clone(), worker.bundle);
                // A start may have finished just before it was aborted.
                if self.starting.get(&key).is_some_and(|start| Arc::ptr_eq(&start.worker, &worker)) {
                    self.starting.remove(&key);
                    self.ready.insert(key, worker);
                } else {
                    worker.retire();
                }
            }
            Err(error) if error.is_cancelled() => {}
            Err(error) => tracing::error!(%error, "a worker start task failed"),
        }
    }

    /// Returns the worker to serve. If it was not started before, for example after a restart of the node, it starts at
    /// the first request. [`Fleet::set_served`] stops the previous one.
    pub fn worker_to_serve(&mut self, code: &VersionCode<'_>) -> Result<Arc<Worker>, Unavailable> {
        let workers = self.workers.as_ref().ok_or(Unavailable::NoWorkers)?;
        let environment = self.environments.get(code.project).ok_or(Unavailable::NoEnvironment)?;
        let served = self.served.get(code.project).filter(|served| served.bundle == code.bundle);
        let ready = self.ready.get(&(code.project.to_owned(), code.bundle)).filter(|ready| !self.is_older(ready));
        let worker = match (ready, served) {
            (Some(ready), _) => Arc::clone(ready),
            (None, Some(served)) if !served.is_outdated(&environment) || served.is_active() => Arc::clone(served),
            (None, served) => Worker::new(workers, code, &environment, served.map(Arc::as_ref)),
        };
        worker.set_version(code);
        Ok(worker)
    }

    /// Sets the served workers, and retires the previous ones.
    pub fn set_served(&mut self, served: HashMap<String, Arc<Worker>>) {
        let previous = mem::replace(&mut self.served, served);
        let is_served =
            |worker: &Arc<Worker>| self.served.get(&worker.project).is_some_and(|it| Arc::ptr_eq(it, worker));
        for (_, worker) in self.ready.extract_if(|_, worker| is_served(worker)) {
            worker.report_recovery();
        }
        for (project, previous) in previous {
            let now = self.served.get(&project);
            if now.is_some_and(|now| Arc::ptr_eq(now, &previous)) {
                continue;
            }
            if let (Some(workers), Some(now)) = (&self.workers, now.filter(|now| now.is_active())) {
                let cause = if now.bundle == previous.bundle { "environment" } else { "deploy" };
                workers.metrics.worker_swaps.with_label_values(&[cause]).inc();
            }
            self.drain(previous);
        }
    }

    /// Retires a served worker, and stops the oldest draining process of its project above the limit.
    fn drain(&mut self, worker: Arc<Worker>) {
        self.draining.retain(|draining| draining.strong_count() > 0);
        let draining = self.draining.iter().rev().filter_map(Weak::upgrade);
        let draining = draining.filter(|draining| draining.project == worker.project && draining.is_active());
        draining.skip(MAX_DRAINING - 1).for_each(|oldest| oldest.stop());
        self.draining.push(Arc::downgrade(&worker));
        worker.retire();
    }
}

impl Target<'_> {
    /// Returns whether a start must be aborted and repeated.
    fn replaces(&self, start: &Start, now: Instant) -> bool {
        // A new revision of the same bundle starts again, so that its result is reported again. The first attempt may
        // complete even if its environment is outdated by now: otherwise, frequent changes would prevent every start.
        self.revision != start.revision
            || start.worker.is_outdated(&self.environment)
                && start.worker.has_failed_to_start()
                && self.environment.settled_at <= now
    }
}
