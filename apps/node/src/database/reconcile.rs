//! One reconciliation: compares the desired state of a database with the node's tables and the catalogs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use protocol::{Database, DatabaseOperationKind, OperationPhase};
use tokio::time::Instant;

use super::DesiredDatabase;
use super::admin::AdminConnection;
use super::converge::converge;
use super::create::{SizeLimits, create, discard, exists};
use super::credential::OwnLogins;
use super::logins::{DesiredRoles, Logins};
use super::names::Names;
use super::project::Project;
use super::registry::Entry;
use super::sessions::terminate;
use super::snapshot::{Filter, Snapshot};
use super::step::Step;
use super::tables::{self, DatabaseRow};
use super::time::is_plausible;
use super::usage::{self, Usage};

/// The interval between the checks of an unlisted database, until it is removed.
const RECHECK_INTERVAL: Duration = Duration::from_secs(10 * 60);

impl Project {
    /// Changes the database into its desired state, or starts the step that is due. Returns whether the task can end.
    pub(super) async fn reconcile(&mut self) -> anyhow::Result<bool> {
        let state = self.desired.borrow_and_update().clone();
        let is_authorized = *self.is_authorized.borrow_and_update();
        let shared = Arc::clone(&self.shared);
        // A tenant can make every change of its database fail. Failing databases have separate permits, so the tenant
        // delays only other failing databases.
        let permits = if self.has_failed { &shared.retry_permits } else { &shared.permits };
        let _permit = permits.acquire().await?;
        self.recheck_at = None;
        let began = Instant::now();
        let client = shared.admin.connect().await?;
        let row = tables::find(&*client, &self.id).await?;
        match (state, row) {
            (DesiredDatabase::Saved(desired), row) => self.restrict(&client, &desired, row, is_authorized).await?,
            (DesiredDatabase::Present(desired), row) if !is_authorized => {
                self.restrict(&client, &desired, row, false).await?
            }
            (DesiredDatabase::Present(desired), row) if row.as_ref().is_none_or(|row| row.id == desired.id) => {
                self.reconcile_desired(&client, &desired, row).await?;
            }
            // The row belongs to an earlier database of the project, whose removal this node missed.
            (DesiredDatabase::Present(_), Some(row)) => self.remove(&client, &row).await?,
            (DesiredDatabase::Removed, Some(row)) if self.may_remove(&client).await? => {
                self.remove(&client, &row).await?;
            }
            (state, Some(row)) => {
                match state {
                    DesiredDatabase::Withdrawn => tables::withdraw(&*client, &self.id).await?,
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
            self.report(desired, None, Usage::default(), Logins::Closed);
            return Ok(());
        }
        let row = tables::upsert(&**client, &self.id, &desired.id, desired.epoch).await?;
        let own = self.own_logins(&names)?;
        let usage = usage::find(client, &names.database()).await?;
        let bytes = usage.map(|usage| usage.bytes);
        let max_login_bytes = tables::set_max_login_bytes(&**client, &row, desired.size_bytes, bytes).await?;
        let step = Step::due(client, &self.id, desired, &row, usage.is_none()).await?;
        // The other steps are due only while a database is missing, which can happen again.
        let step = step.filter(|step| !matches!(step, Step::Phase(_)) || !self.is_completed(step));
        let logins = match step {
            // A restore needs this state, because every other state closes the login of restores.
            Some(Step::Recover { .. } | Step::Prepare(_)) => Logins::NodeOnly,
            _ => Logins::of(desired, usage.unwrap_or_default(), row.max_login_bytes),
        };
        if !matches!(logins, Logins::Open { .. }) {
            // `env.db` closes its connections before Postgres refuses the logins.
            shared.registry.close(&self.id);
        }
        self.stop_unless(step.as_ref()).await;
        if usage.is_some() && row.prepared_operation.is_some() {
            discard(client, &self.id, operation.map(|operation| operation.id.as_str())).await?;
        }
        let roles = DesiredRoles::new(names.clone(), logins, desired, &own.verifiers);
        shared.registry.set_roles(&self.id, roles.clone());
        let mut converged = converge(client, &roles).await?;
        let is_restored = matches!(step, Some(Step::Recover { .. } | Step::Prepare(_)));
        // During an operation, a missing database is not created again as an empty one.
        let is_operated = operation.is_some() && !is_in(OperationPhase::Reactivating);
        if converged.is_missing && !is_restored && !is_operated {
            // If it disappeared after the step was chosen, the next reconciliation may recover it from a generation.
            anyhow::ensure!(usage.is_none(), "the database disappeared during the reconciliation");
            create(&shared, client, &names.database(), Some(&names.database())).await?;
            tables::set_max_login_bytes(&**client, &row, desired.size_bytes, Some(0)).await?;
            tracing::info!(project = self.id, database = names.database(), "created an empty database");
            converged = converge(client, &roles).await?;
        }
        if converged.changed_access_mode || !matches!(logins, Logins::Open { .. }) {
            terminate(client, &names.database(), &kept(&names, logins)).await?;
        }
        if is_in(OperationPhase::Reactivating) && step.is_none() {
            self.complete(operation);
        }
        if converged.is_missing {
            shared.registry.remove(&self.id);
        } else {
            self.register(&own, desired, logins, converged.changed_access_mode);
        }
        self.report(desired, row.recovered_from, usage.unwrap_or_default(), logins);
        if let Some(step) = step {
            let limits = SizeLimits::of_operation(desired.size_bytes, max_login_bytes);
            self.start(step, &names, (desired.epoch, limits), &own);
        }
        Ok(())
    }

    /// Returns whether a database that a full state does not list may be removed.
    async fn may_remove(&self, client: &AdminConnection) -> anyhow::Result<bool> {
        let has_clock = is_plausible(client, &self.shared.clock).await?;
        tables::unlist(&**client, &self.id, has_clock).await
    }

    /// Records an existing database in the registry, and opens or closes the connections of `env.db`.
    fn register(&self, own: &OwnLogins, desired: &Arc<Database>, logins: Logins, changed_access_mode: bool) {
        let registry = &self.shared.registry;
        let (project, desired, credentials) = (self.id.clone(), Arc::clone(desired), Arc::clone(&own.dump));
        registry.set(Entry { project, desired, credentials, logins });
        if matches!(logins, Logins::Open { .. }) && (!registry.is_open(&self.id) || changed_access_mode) {
            registry.open(&self.id, Arc::clone(&own.node), Arc::clone(&own.auth));
        }
    }

    /// Closes the logins that the part does not permit, and opens none: the part can be outdated, or the node is not
    /// authorized. Executes no step and sends no report.
    async fn restrict(
        &mut self,
        client: &AdminConnection,
        desired: &Arc<Database>,
        row: Option<DatabaseRow>,
        is_authorized: bool,
    ) -> anyhow::Result<()> {
        self.stop_unless(None).await;
        // A database with another id than the part is not changed.
        let Some(row) = row.filter(|row| row.id == desired.id) else {
            self.shared.registry.remove(&self.id);
            return Ok(());
        };
        let names = Names::new(&row.id).context("the id of the database is malformed")?;
        let own = self.own_logins(&names)?;
        let is_closed = !is_authorized || row.is_withdrawn || row.removal.is_some();
        let usage = usage::find(client, &names.database()).await?.unwrap_or_default();
        let permitted = if is_closed { Logins::Closed } else { Logins::of(desired, usage, row.max_login_bytes) };
        let database = names.database();
        let filter = Filter::Project { database: &database, roles: &[database.clone(), names.node(), names.dump()] };
        let seen = Snapshot::read(&**client, &filter).await?;
        let logins = permitted.most_restrictive(Logins::observed(&names, &seen));
        if !matches!(logins, Logins::Open { .. }) {
            self.shared.registry.close(&self.id);
        }
        let roles = DesiredRoles::new(names.clone(), logins, desired, &own.verifiers).restricted_to(&seen);
        self.shared.registry.set_roles(&self.id, roles.clone());
        let converged = converge(client, &roles).await?;
        if converged.changed_access_mode || !matches!(logins, Logins::Open { .. }) {
            terminate(client, &database, &kept(&names, logins)).await?;
        }
        if converged.is_missing {
            self.shared.registry.remove(&self.id);
        } else {
            self.register(&own, desired, logins, converged.changed_access_mode);
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
        converge(client, &roles).await?;
        terminate(client, &names.database(), &kept(&names, logins)).await?;
        Ok(())
    }

    /// Removes a database that is not desired: first closes its logins, then makes the final generation, and then turns
    /// the database into a tombstone.
    async fn remove(&mut self, client: &AdminConnection, row: &DatabaseRow) -> anyhow::Result<()> {
        let names = Names::new(&row.id).context("the id of the database is malformed")?;
        let removal = tables::begin_removal(&**client, &self.id).await?;
        let seal = Step::SealRemoved { database: row.id.clone(), epoch: row.epoch, removal };
        let is_sealed = self.is_completed(&seal) || !exists(client, &names.database()).await?;
        let step = if is_sealed { Step::Remove { database: row.id.clone() } } else { seal };
        self.stop_unless(Some(&step)).await;
        self.withdraw(client, row, if is_sealed { Logins::Closed } else { Logins::NodeOnly }).await?;
        let own = self.own_logins(&names)?;
        // Without the part, the limit of the plan is not known. Logins are refused above at least twice this limit.
        let limits = SizeLimits::of_operation(row.max_login_bytes.unwrap_or_default() / 2, 0);
        self.start(step, &names, (row.epoch, limits), &own);
        Ok(())
    }
}

/// Returns the logins whose sessions continue.
fn kept(names: &Names, logins: Logins) -> Vec<String> {
    match logins {
        Logins::Closed => Vec::new(),
        Logins::Open { .. } | Logins::NodeOnly => vec![names.dump(), names.load()],
    }
}
