//! The task of one project: changes its database into the desired state.
//!
//! Level-triggered: each reconciliation reads the desired state, the node's tables and the catalogs, and repairs the
//! differences. Long work is a [`Step`], which runs next to the reconciliations, so that a revoked token or an abort
//! does not wait for it. A step that is not due any more is stopped.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use protocol::{CompletedPhase, Database, DatabaseOperation, DatabaseOperationKind, OperationPhase, OperationReport};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::admin::AdminConnection;
use super::backup::BackupError;
use super::converge::converge;
use super::create::{create, discard, exists, size};
use super::credential::OwnLogins;
use super::logins::{DesiredRoles, Logins};
use super::names::Names;
use super::registry::Entry;
use super::sessions::terminate;
use super::status::MIN_SIZE_CHANGE;
use super::step::{Step, Target};
use super::tables::{self, DatabaseRow};
use super::{Shared, Wanted};
use crate::backoff::Backoff;

const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// The interval between the checks of an unlisted database, until it is removed.
const RECHECK_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// The task's state.
pub struct Project {
    id: String,
    shared: Arc<Shared>,
    wanted: watch::Receiver<Wanted>,
    wake: Arc<Notify>,
    /// The node's logins, with the names that they belong to.
    own: Option<(Names, OwnLogins)>,
    /// The running step, if any.
    running: Option<Step>,
    steps: JoinSet<(Step, anyhow::Result<Option<OperationReport>>)>,
    /// The last completed step with its report.
    completed: Option<(Step, Option<OperationReport>)>,
    backoff: Backoff,
    /// When the last failure is retried. Until then, no step starts, and the sweep does not wake the task.
    retry_at: Option<Instant>,
    /// The time of the next check of an unlisted database.
    recheck_at: Option<Instant>,
    /// Whether the last reconciliation failed.
    has_failed: bool,
}

impl Project {
    pub fn new(id: String, shared: Arc<Shared>, wanted: watch::Receiver<Wanted>, wake: Arc<Notify>) -> Self {
        Self {
            id,
            shared,
            wanted,
            wake,
            own: None,
            running: None,
            steps: JoinSet::new(),
            completed: None,
            backoff: Backoff::up_to(MAX_RETRY_DELAY),
            retry_at: None,
            recheck_at: None,
            has_failed: false,
        }
    }

    /// Runs until the database is removed, or the sender of the desired state is dropped.
    pub async fn run(mut self) {
        loop {
            let reconciled = self.reconcile().await;
            self.has_failed = reconciled.is_err();
            match reconciled {
                Ok(true) if self.wanted.has_changed().is_ok_and(|has_changed| has_changed) => continue,
                Ok(true) => return,
                // The backoff of a failed step continues until the step succeeds.
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
                changed = self.wanted.changed() => if changed.is_err() { return },
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
                error
            }
            Err(error) => error.into(),
        };
        tracing::error!(project = self.id, error = format!("{error:#}"), "a step of a database failed; retrying");
        self.retry();
    }

    /// A missing database whose generation cannot be restored needs its members: they can restore another one.
    fn report_failed_recovery(&self, step: &Step, error: &anyhow::Error) {
        let permanent = error.downcast_ref::<BackupError>().filter(|error| error.is_permanent());
        if let (Step::Recover { .. }, Some(error)) = (step, permanent) {
            let text = format!("the missing database cannot be restored: {error}");
            let text = text.replace('\0', "").chars().take(1000).collect();
            self.shared.statuses.update(&self.id, |report| report.backup_error = Some(text));
        }
    }

    /// Changes the database into its desired state, or starts the step that is due. Returns whether the task can end.
    async fn reconcile(&mut self) -> anyhow::Result<bool> {
        let wanted = self.wanted.borrow_and_update().clone();
        let shared = Arc::clone(&self.shared);
        // A tenant that makes the changes of its database fail delays only others like it.
        let permits = if self.has_failed { &shared.retry_permits } else { &shared.permits };
        let _permit = permits.acquire().await?;
        self.recheck_at = None;
        let began = Instant::now();
        let client = shared.admin.connect().await?;
        let row = tables::find(&*client, &self.id).await?;
        match (wanted, row) {
            (Wanted::Present(desired), row) if row.as_ref().is_none_or(|row| row.id == desired.id) => {
                self.reconcile_desired(&client, &desired, row).await?;
            }
            // The row is that of an earlier database, whose removal this node missed.
            (Wanted::Present(_), Some(row)) => self.remove(&client, &row).await?,
            (Wanted::Removed, Some(row)) if tables::unlist(&*client, &self.id).await? => {
                self.remove(&client, &row).await?;
            }
            (wanted, Some(row)) => {
                match wanted {
                    Wanted::Withdrawn => tables::withdraw(&*client, &self.id).await?,
                    _ => self.recheck_at = Some(Instant::now() + RECHECK_INTERVAL),
                }
                self.stop_unless(None).await;
                self.withdraw(&client, &row, Logins::Closed).await?;
            }
            (_, None) => {
                shared.registry.forget(&self.id);
                shared.statuses.remove(&self.id);
                return Ok(true);
            }
        }
        shared.metrics.observe_reconcile(began.elapsed());
        Ok(false)
    }

    async fn reconcile_desired(
        &mut self,
        client: &AdminConnection,
        desired: &Arc<Database>,
        row: Option<DatabaseRow>,
    ) -> anyhow::Result<()> {
        let shared = Arc::clone(&self.shared);
        let names = Names::new(&desired.id).context("the id of the database is malformed")?;
        let operation = desired.operation.as_ref();
        let is_in = |phase: OperationPhase| operation.is_some_and(|operation| operation.phase == phase);
        let is_deletion = operation.is_some_and(|operation| operation.kind == DatabaseOperationKind::Delete);
        if row.is_none() && is_deletion && is_in(OperationPhase::Committing) {
            shared.registry.forget(&self.id);
            self.complete(operation);
            self.report(desired, None, 0, Logins::Closed);
            return Ok(());
        }
        let row = tables::upsert(&**client, &self.id, &desired.id, desired.epoch).await?;
        let own = self.own_logins(&names)?;
        let size = size(client, &names.database()).await?;
        let step = Step::due(client, &self.id, desired, &row, size.is_none()).await?;
        let step = step.filter(|step| !self.is_completed(step));
        let logins = match step {
            // The login of backups restores.
            Some(Step::Recover { .. } | Step::Prepare(_)) => Logins::NodeOnly,
            _ => Logins::of(desired, size.unwrap_or_default()),
        };
        if !matches!(logins, Logins::Open { .. }) {
            // Before Postgres refuses the logins.
            shared.registry.close(&self.id);
        }
        self.stop_unless(step.as_ref()).await;
        let is_prepared_for = operation.map(|operation| &operation.id);
        if size.is_some() && row.prepared_operation.is_some() && row.prepared_operation.as_ref() != is_prepared_for {
            discard(client, &self.id).await?;
        }
        let roles = DesiredRoles::new(names.clone(), logins, desired, &own.verifiers);
        shared.registry.set_roles(&self.id, roles.clone());
        let mut converged = converge(client, &roles, &own.dump).await?;
        let is_restored = matches!(step, Some(Step::Recover { .. } | Step::Prepare(_)));
        // During an operation, a missing database stays missing: nothing is lost by it.
        let is_operated = operation.is_some() && !is_in(OperationPhase::Reactivating);
        if converged.is_missing && !is_restored && !is_operated {
            create(&shared, client, &names.database(), &names.database()).await?;
            tracing::info!(project = self.id, database = names.database(), "created an empty database");
            converged = converge(client, &roles, &own.dump).await?;
        }
        if converged.changed_access_mode || !matches!(logins, Logins::Open { .. }) {
            let keep = (logins != Logins::Closed).then(|| names.dump());
            terminate(client, &names.database(), keep.as_deref()).await?;
        }
        if is_in(OperationPhase::Reactivating) && step.is_none() {
            self.complete(operation);
        }
        if converged.is_missing {
            shared.registry.remove(&self.id);
        } else {
            let (project, desired, credentials) = (self.id.clone(), Arc::clone(desired), Arc::clone(&own.dump));
            shared.registry.set(Entry { project, desired, credentials, logins });
            let is_open = shared.registry.is_open(&self.id);
            if matches!(logins, Logins::Open { .. }) && (!is_open || converged.changed_access_mode) {
                shared.registry.open(&self.id, Arc::clone(&own.node));
            }
        }
        self.report(desired, row.recovered_from, size.unwrap_or_default(), logins);
        if let Some(step) = step {
            self.start(step, &names, desired.epoch, &own);
        }
        Ok(())
    }

    /// Closes the logins of a database that is not desired.
    async fn withdraw(&mut self, client: &AdminConnection, row: &DatabaseRow, logins: Logins) -> anyhow::Result<()> {
        let names = Names::new(&row.id).context("the id of the database is malformed")?;
        let own = self.own_logins(&names)?;
        self.shared.registry.remove(&self.id);
        self.shared.statuses.remove(&self.id);
        let roles = DesiredRoles::withdrawn(names.clone(), logins, &own.verifiers);
        self.shared.registry.set_roles(&self.id, roles.clone());
        converge(client, &roles, &own.dump).await?;
        let keep = (logins != Logins::Closed).then(|| names.dump());
        terminate(client, &names.database(), keep.as_deref()).await?;
        Ok(())
    }

    /// Removes a database that is not desired: the logins end, then the final generation, then the tombstone.
    async fn remove(&mut self, client: &AdminConnection, row: &DatabaseRow) -> anyhow::Result<()> {
        let names = Names::new(&row.id).context("the id of the database is malformed")?;
        let removal = tables::begin_removal(&**client, &self.id).await?;
        let seal = Step::SealRemoved { database: row.id.clone(), epoch: row.epoch, removal };
        let is_sealed = self.is_completed(&seal) || !exists(client, &names.database()).await?;
        let step = if is_sealed { Step::Remove { database: row.id.clone() } } else { seal };
        self.stop_unless(Some(&step)).await;
        self.withdraw(client, row, if is_sealed { Logins::Closed } else { Logins::NodeOnly }).await?;
        let own = self.own_logins(&names)?;
        self.start(step, &names, row.epoch, &own);
        Ok(())
    }

    fn own_logins(&mut self, names: &Names) -> anyhow::Result<OwnLogins> {
        if let Some((of, own)) = &self.own
            && of == names
        {
            return Ok(own.clone());
        }
        let own = OwnLogins::new(names, &self.shared.address)?;
        self.own = Some((names.clone(), own.clone()));
        Ok(own)
    }

    fn is_completed(&self, step: &Step) -> bool {
        self.completed.as_ref().is_some_and(|(completed, _)| completed == step)
    }

    /// Records that the current phase of an operation is complete.
    fn complete(&mut self, operation: Option<&DatabaseOperation>) {
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

    /// Stops the running step if it is another one.
    async fn stop_unless(&mut self, due: Option<&Step>) {
        if self.running.as_ref() != due && self.running.is_some() {
            tracing::info!(project = self.id, step = ?self.running, "stopping a step of a database");
            self.steps.shutdown().await;
            self.running = None;
        }
    }

    fn start(&mut self, step: Step, names: &Names, epoch: i64, own: &OwnLogins) {
        if self.running.is_some() || self.retry_at.is_some() {
            return;
        }
        let (shared, project, names) = (Arc::clone(&self.shared), self.id.clone(), names.clone());
        let target = Target { shared, project, names, epoch, backups: Arc::clone(&own.dump) };
        self.running = Some(step.clone());
        self.steps.spawn(async move {
            let result = step.run(&target).await;
            (step, result)
        });
    }

    fn report(&self, desired: &Database, recovered_from: Option<String>, size: u64, logins: Logins) {
        let operation = desired.operation.as_ref();
        let progress = self.completed.as_ref().and_then(|(step, report)| match step {
            Step::Phase(completed) if Some(completed) == operation => report.clone(),
            _ => None,
        });
        self.shared.statuses.apply(&self.id, &desired.id, |report| {
            report.revision = desired.revision;
            report.ready = matches!(logins, Logins::Open { .. });
            report.read_only = logins == Logins::Open { read_only: true };
            if report.size_bytes.abs_diff(size) >= MIN_SIZE_CHANGE {
                report.size_bytes = size;
            }
            report.recovered_from = recovered_from;
            report.operation = progress;
        });
    }
}
