//! The task of one project: changes its database into the desired state.
//!
//! The task is level-triggered: each reconciliation (the module `reconcile`) reads the desired state, the node's tables
//! and the catalogs, and repairs the differences. Long work is a [`Step`], which runs concurrently with the
//! reconciliations. So a revoked token or an abort does not wait for a step. A step that is not due any more is
//! stopped, and another reconciliation follows.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use daemon::Backoff;
use protocol::{CompletedPhase, Database, DatabaseOperation, OperationReport};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::backup::{BackupError, failure_text};
use super::create::SizeLimits;
use super::credential::OwnLogins;
use super::logins::Logins;
use super::names::Names;
use super::status::MIN_SIZE_CHANGE;
use super::step::{Step, Target};
use super::usage::Usage;
use super::{DesiredDatabase, Shared};

const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// The time of failures after which a removal may continue without its final generation. The store may start after the
/// node.
const MIN_FAILING_TIME: Duration = Duration::from_secs(15);

/// The task's state.
pub struct Project {
    pub(super) id: String,
    pub(super) shared: Arc<Shared>,
    pub(super) desired: watch::Receiver<DesiredDatabase>,
    pub(super) wake: Arc<Notify>,
    pub(super) is_authorized: watch::Receiver<bool>,
    /// The node's own logins, with the names of their database.
    pub(super) own: Option<(Names, OwnLogins)>,
    /// The running step, if any.
    pub(super) running: Option<Step>,
    pub(super) steps: JoinSet<(Step, anyhow::Result<Option<OperationReport>>)>,
    /// The last completed step, with the report of a phase.
    pub(super) completed: Option<(Step, Option<OperationReport>)>,
    /// The last failed step, and the time of the first of its failures without another step in between.
    pub(super) failed: Option<(Step, Instant)>,
    pub(super) backoff: Backoff,
    /// When the last failure is retried. Until then, no step starts, and the sweep does not wake the task.
    pub(super) retry_at: Option<Instant>,
    /// The time of the next check of an unlisted database.
    pub(super) recheck_at: Option<Instant>,
    /// Whether the last reconciliation failed.
    pub(super) has_failed: bool,
}

impl Project {
    pub fn new(id: String, shared: Arc<Shared>, desired: watch::Receiver<DesiredDatabase>, wake: Arc<Notify>) -> Self {
        let is_authorized = shared.is_authorized.subscribe();
        Self {
            id,
            shared,
            desired,
            wake,
            is_authorized,
            own: None,
            running: None,
            steps: JoinSet::new(),
            completed: None,
            failed: None,
            backoff: Backoff::up_to(MAX_RETRY_DELAY),
            retry_at: None,
            recheck_at: None,
            has_failed: false,
        }
    }

    /// Runs until the database is removed, or until the sender of the desired state is dropped.
    pub async fn run(mut self) {
        loop {
            let reconciled = self.reconcile().await;
            self.has_failed = reconciled.is_err();
            match reconciled {
                Ok(true) if self.desired.has_changed().is_ok_and(|has_changed| has_changed) => continue,
                Ok(true) => return,
                // After a failed step, the backoff continues until a step succeeds.
                Ok(false) if self.retry_at.is_none() && self.running.is_none() => self.backoff.reset(),
                Ok(false) => {}
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::error!(project = self.id, error, "failed to reconcile a database; retrying");
                    self.retry();
                }
            }
            let retry_at = self.retry_at.or(self.recheck_at);
            let retry = async { if let Some(at) = retry_at { sleep_until(at).await } else { pending().await } };
            tokio::select! {
                changed = self.desired.changed() => if changed.is_err() { return },
                Ok(()) = self.is_authorized.changed() => {}
                () = self.wake.notified(), if self.retry_at.is_none() => {}
                Some(ended) = self.steps.join_next() => self.on_step_ended(ended),
                () = retry => self.retry_at = None,
            }
        }
    }

    fn retry(&mut self) {
        self.shared.metrics.reconcile_failures.inc();
        self.retry_at = Some(Instant::now() + self.backoff.next_delay());
    }

    /// Records the result of a step.
    fn on_step_ended(&mut self, ended: Result<(Step, anyhow::Result<Option<OperationReport>>), JoinError>) {
        self.running = None;
        let error = match ended {
            Ok((step, Ok(report))) => {
                self.completed = Some((step, report));
                self.retry_at = None;
                return;
            }
            Ok((step, Err(error))) => {
                self.report_failed_recovery(&step, &error);
                if !self.has_failed_for(&step, Duration::ZERO) {
                    self.failed = Some((step, Instant::now()));
                }
                error
            }
            Err(error) => error.into(),
        };
        tracing::error!(project = self.id, error = format!("{error:#}"), "a step of a database failed; retrying");
        self.retry();
    }

    /// Returns whether a step has failed since this process started, and the first failure is older than `time`.
    fn has_failed_for(&self, step: &Step, time: Duration) -> bool {
        self.failed.as_ref().is_some_and(|(failed, since)| failed == step && since.elapsed() >= time)
    }

    /// Reports that a missing database cannot be created from its generation, or that a restore that cannot be aborted
    /// cannot be completed.
    fn report_failed_recovery(&self, step: &Step, error: &anyhow::Error) {
        let Some(error) = BackupError::permanent(error) else { return };
        let (failure, consequence) = match step {
            Step::Recover { .. } => {
                ("the missing database cannot be restored", "It stays offline until you restore another backup")
            }
            Step::Prepare(_) => {
                ("the restore cannot be completed", "The database stays offline until the operator ends the restore")
            }
            Step::Phase(_) | Step::SealRemoved { .. } | Step::Remove { .. } => return,
        };
        let text = failure_text(&format!("{failure}: {error}"), consequence);
        self.shared.statuses.update(&self.id, |report| report.backup_error = Some(text));
    }

    pub(super) fn own_logins(&mut self, names: &Names) -> anyhow::Result<OwnLogins> {
        if let Some((of, own)) = &self.own
            && of == names
        {
            return Ok(own.clone());
        }
        let own = OwnLogins::new(names, &self.shared.address)?;
        self.own = Some((names.clone(), own.clone()));
        Ok(own)
    }

    pub(super) fn is_completed(&self, step: &Step) -> bool {
        self.completed.as_ref().is_some_and(|(completed, _)| completed == step)
    }

    /// Records that the current phase of an operation is complete.
    pub(super) fn complete(&mut self, operation: Option<&DatabaseOperation>) {
        let Some(operation) = operation else { return };
        let step = Step::Phase(operation.clone());
        if !self.is_completed(&step) {
            let DatabaseOperation { id, phase, kind, .. } = operation.clone();
            tracing::info!(project = self.id, operation = id, ?kind, ?phase, "completed a phase");
            self.shared.metrics.count_operation(kind, "done");
            let report = CompletedPhase { id, completed: phase, generation: None };
            self.completed = Some((step, Some(OperationReport::Completed(report))));
        }
    }

    /// Stops the running step unless it is `due`. Then another reconciliation follows: the step may have changed the
    /// tables and the databases after this one read them.
    pub(super) async fn stop_unless(&mut self, due: Option<&Step>) {
        if self.running.as_ref() != due && self.running.is_some() {
            tracing::info!(project = self.id, step = ?self.running, "stopping a step of a database");
            self.steps.shutdown().await;
            self.running = None;
            self.wake.notify_one();
        }
    }

    pub(super) fn start(&mut self, step: Step, names: &Names, (epoch, limits): (i64, SizeLimits), own: &OwnLogins) {
        if self.running.is_some() || self.retry_at.is_some() {
            return;
        }
        let (shared, project, names) = (Arc::clone(&self.shared), self.id.clone(), names.clone());
        let (backups, is_repeated) = (Arc::clone(&own.dump), self.has_failed_for(&step, MIN_FAILING_TIME));
        let target = Target { shared, project, names, epoch, limits, backups, is_repeated };
        self.running = Some(step.clone());
        self.steps.spawn(async move {
            let result = step.run(&target).await;
            (step, result)
        });
    }

    pub(super) fn report(&self, desired: &Database, recovered_from: Option<String>, usage: Usage, logins: Logins) {
        let operation = desired.operation.as_ref();
        let progress = self.completed.as_ref().and_then(|(step, report)| match step {
            Step::Phase(completed) if Some(completed) == operation => report.clone(),
            _ => None,
        });
        self.shared.statuses.apply(&self.id, &desired.id, |report| {
            report.revision = desired.revision;
            report.ready = matches!(logins, Logins::Open { .. });
            report.read_only = usage.is_full(desired.size_bytes);
            if report.size_bytes.abs_diff(usage.bytes) >= MIN_SIZE_CHANGE {
                report.size_bytes = usage.bytes;
            }
            report.recovered_from = recovered_from;
            report.operation = progress;
        });
    }
}
