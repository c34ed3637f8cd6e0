//! Sagas: work in several steps at providers, which no transaction can contain, such as a purchase.
//!
//! [`Store::saga_start`](crate::Store::saga_start) writes a saga in the transaction that causes it. A runner takes the
//! lease of the saga and executes the steps in their order ([`Store::saga_run`](crate::Store::saga_run)). For each
//! step:
//!
//! 1. One commit records the attempt and the idempotency key of the step. The key stays the same in all attempts.
//! 2. The handler calls the provider, without a transaction, a connection or a lock ([`SagaHandler::execute`]).
//! 3. One commit records the response, together with the context's own rows and the audit event
//!    ([`SagaHandler::record`]).
//!
//! So a process that dies loses at most one response, and the next attempt asks again with the same key. The step records
//! when the last attempt began whose result is unknown, because it may still be in progress at the provider. A transient
//! failure ends the run: a background job continues the saga after a backoff
//! ([`Store::saga_resume`](crate::Store::saga_resume)), and a repeated request continues it immediately. A refusal
//! undoes the started steps in the opposite order ([`SagaHandler::compensate`]).
//!
//! A finished saga is deleted after 90 days, and one that was refused or abandoned after a year
//! ([`Store::saga_purge`](crate::Store::saga_purge)).
//!
//! **One runner.** A lease of 15 seconds has a number, and each commit of a runner requires that its number is still
//! the latest. A stale runner changes nothing in the database, and its calls have the same keys as those of the new
//! runner.

mod metrics;
mod operator;
mod queue;
mod run;
mod runner;
mod state;

use std::time::Duration;

use async_trait::async_trait;
use kernel::audit::Event;
use kernel::{OrgId, Time, UserId};
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use crate::{Connection, Error, Result};

pub use operator::{SagaFilter, SagaStatus};
pub use queue::{find_completed, find_open, find_open_of_org};
pub use state::{SagaState, StepState};

/// A saga to start.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSaga<'a> {
    /// The kind, which selects the handler, such as `domains.purchase`.
    pub kind: &'static str,
    /// The object that the saga is about. An object has at most one unfinished saga of a kind.
    pub key: &'a str,
    pub org: OrgId,
    /// The user who starts the saga: the actor of its audit events.
    pub user: Option<UserId>,
    /// The parameters of the steps. They are stored unsealed, so they must not contain a secret or a contact.
    pub input: Value,
}

/// A saga, as its runner sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Saga {
    pub id: Uuid,
    pub key: String,
    pub org: OrgId,
    pub user: Option<UserId>,
    pub input: Value,
    pub created_at: Time,
    /// The started steps.
    steps: Vec<Step>,
    /// The number of the runner's lease.
    lease: i32,
    /// The failed attempts since the last finished step.
    attempts: i32,
    refusal: Option<Value>,
    is_abandoned: bool,
}

/// A step of a saga.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    name: String,
    key: String,
    state: StepState,
    attempts: i32,
    response: Value,
    /// When the last attempt began whose result is unknown.
    unanswered_at: Option<Time>,
}

/// An attempt to execute a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub step: &'static str,
    /// The idempotency key: the same in every attempt, and unique among all sagas.
    pub key: String,
    /// The number of the attempt, from 1. A later attempt may find the effect of an earlier one, whose response was
    /// lost.
    pub number: i32,
    /// When the last earlier attempt began whose result is unknown: it may have had its effect, or may still be in
    /// progress at the provider. `None` if no earlier attempt had an effect.
    pub unanswered_at: Option<Time>,
}

/// The outcome of calling a provider.
#[derive(Debug, Clone, PartialEq)]
pub enum StepOutcome {
    /// The effect happened. The response is recorded; it must not contain a secret or a contact.
    Done(Value),
    /// Another attempt may succeed. The reason is stored unsealed, so it must not quote the provider.
    Retry {
        reason: String,
        /// Whether the provider refused this key, so that the next attempt needs a new one. Set this only if the
        /// attempt had no effect.
        new_key: bool,
    },
    /// This attempt had no effect, but an earlier one may still be in progress at the provider. Another attempt has the
    /// same key. The reason is stored unsealed, so it must not quote the provider.
    Inconclusive { reason: String },
    /// No attempt will succeed, and there was no effect. [`SagaHandler::refuse`] and the callers of
    /// [`Store::saga_run`](crate::Store::saga_run) receive `refusal`.
    Refused { refusal: Value, reason: String },
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum SagaResult {
    /// All steps are done.
    Done,
    /// A step was refused, or an operator abandoned the saga. The steps of the saga are undone, or will be.
    Refused(Value),
    /// The saga continues later. `step` is the step at which it stopped.
    Incomplete { step: String },
}

/// Returns whether this is the refusal of a saga that an operator abandoned.
#[must_use]
pub fn is_abandonment(refusal: &Value) -> bool {
    refusal.get(ABANDONED).is_some()
}

const ABANDONED: &str = "abandoned";

/// Executes the steps of the sagas of one kind.
#[async_trait]
pub trait SagaHandler: Send + Sync {
    /// The kind.
    fn kind(&self) -> &'static str;

    /// Returns the names of the steps, in their order. A step that only writes to the database does so in
    /// [`Self::record`].
    fn steps(&self) -> &'static [&'static str];

    /// Returns the minimum time that a run needs to start this step. A run with less time leaves the step to the
    /// background job, because an attempt that is cut off has an unknown result.
    fn min_time(&self, _step: &str) -> Duration {
        Duration::ZERO
    }

    /// Calls the provider of a step, outside any transaction. The timeout is 12 seconds.
    ///
    /// # Errors
    /// A database error counts as [`StepOutcome::Retry`].
    async fn execute(&self, saga: &Saga, attempt: &Attempt) -> Result<StepOutcome>;

    /// Writes the context's rows in the commit that records the response of a step. Returns the audit event.
    ///
    /// # Errors
    /// After an error, the response is not recorded, and the step is repeated with the same key.
    async fn record(&self, tx: &mut Connection, saga: &Saga, step: &str, response: &Value) -> Result<Option<Event>>;

    /// Writes the context's rows in the commit that records a refusal.
    ///
    /// # Errors
    /// After an error, the refusal is not recorded, and the step is repeated.
    async fn refuse(&self, tx: &mut Connection, saga: &Saga, refusal: &Value) -> Result<Option<Event>>;

    /// Undoes a started step at its provider, if that is necessary. Safe to repeat.
    ///
    /// # Errors
    /// A database error counts as [`StepOutcome::Retry`].
    async fn compensate(&self, saga: &Saga, step: &str) -> Result<StepOutcome>;

    /// Writes the context's rows in the commit that records a compensation.
    ///
    /// # Errors
    /// After an error, the compensation is not recorded, and is repeated.
    async fn record_compensation(
        &self,
        tx: &mut Connection,
        saga: &Saga,
        step: &str,
        response: &Value,
    ) -> Result<Option<Event>>;
}

impl Saga {
    /// Returns the input as the type from which [`NewSaga::input`] was serialized.
    ///
    /// # Errors
    /// [`Error::Inconsistent`] for an input of another type.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T> {
        T::deserialize(&self.input).map_err(Error::inconsistent)
    }

    /// Returns the response of a finished step; `None` if the step is not finished.
    ///
    /// # Errors
    /// [`Error::Inconsistent`] for a response of another type.
    pub fn response<T: DeserializeOwned>(&self, step: &str) -> Result<Option<T>> {
        let found = self.steps.iter().find(|it| it.name == step && it.state == StepState::Done);
        found.map(|it| T::deserialize(&it.response).map_err(Error::inconsistent)).transpose()
    }

    fn state_of(&self, step: &str) -> Option<StepState> {
        self.steps.iter().find(|it| it.name == step).map(|it| it.state)
    }
}
