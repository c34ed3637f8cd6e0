//! The runner of one saga, which has its lease.

use std::time::Duration;

use kernel::audit::{Actor, Event};
use kernel::{Time, error_chain};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::queue::{self, Change, LEASE_SECONDS};
use super::{ABANDONED, Attempt, Saga, SagaHandler, SagaResult, SagaState, Step, StepOutcome, StepState, metrics};
use crate::audit::append;
use crate::backoff::backoff;
use crate::clock_check::MAX_UNCORRECTED_MILLIS;
use crate::outbox::sanitize;
use crate::{Connection, Error, Result, Store};

/// The timeout of a step. The rest of the lease is for recording the result.
const STEP_TIMEOUT: Duration = Duration::from_secs(12);

/// The longest pause before another attempt to record a result.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The recorded error of an attempt without a response.
const NO_RESPONSE: &str = "no response in time";

pub(super) struct Runner<'a> {
    pub(super) store: &'a Store,
    pub(super) handler: &'a dyn SagaHandler,
    pub(super) saga: Saga,
    pub(super) until: Instant,
}

/// The writes of a commit in addition to the row of the saga.
enum Write<'a> {
    Nothing,
    /// An attempt, with the key of its step if this is the first one.
    Attempt {
        step: &'a str,
        new_key: &'a str,
    },
    /// An attempt that had no effect, with the key of the next one if that needs a new key. `unanswered_at` is that of
    /// the earlier attempts.
    NoEffect {
        step: &'a str,
        unanswered_at: Option<Time>,
        new_key: Option<&'a str>,
    },
    Response {
        step: &'a str,
        response: &'a Value,
    },
    /// `refused` is the step that the provider refused.
    Refusal {
        refused: Option<&'a str>,
        refusal: &'a Value,
    },
    Compensation {
        step: &'a str,
        response: &'a Value,
    },
}

/// The key and the number of a recorded attempt.
type Recorded = Option<(String, i32)>;

/// The reason why a run ended before the saga ended.
enum Stop {
    /// An attempt failed, or the time is over.
    Incomplete(&'static str),
    /// Another runner has the lease.
    LostLease(&'static str),
    Database(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

type Progress<T = ()> = std::result::Result<T, Stop>;

impl Runner<'_> {
    pub(super) async fn run(mut self) -> Result<SagaResult> {
        if self.saga.is_abandoned && self.saga.refusal.is_none() {
            let first = self.handler.steps().first().copied().unwrap_or_default();
            let refusal = json!({ ABANDONED: true });
            match self.refuse(first, refusal, "abandoned by an operator", false).await {
                Ok(()) => {}
                Err(stop) => return stop.result(),
            }
        }
        if self.saga.refusal.is_none()
            && let Err(stop) = self.forward().await
        {
            return stop.result();
        }
        let Some(refusal) = self.saga.refusal.clone() else { return Ok(SagaResult::Done) };
        // The refusal is final, whether its compensation succeeds now or later.
        match self.backward().await {
            Err(Stop::Database(error)) => Err(error),
            _ => Ok(SagaResult::Refused(refusal)),
        }
    }

    /// Executes the steps that are not done, up to a refusal.
    async fn forward(&mut self) -> Progress {
        for &step in self.handler.steps() {
            if self.saga.state_of(step) == Some(StepState::Done) {
                continue;
            }
            self.require_time(step, self.handler.min_time(step)).await?;
            let attempt = self.start(step).await?;
            let unanswered_at = attempt.unanswered_at;
            let outcome = self.bounded(self.handler.execute(&self.saga, &attempt)).await;
            match outcome {
                StepOutcome::Done(response) => {
                    let finished = self.finish(&attempt, response).await;
                    self.or_postpone(step, finished).await?;
                }
                StepOutcome::Retry { reason, new_key: false } => {
                    return self.postpone(step, &reason, Write::Nothing).await;
                }
                StepOutcome::Retry { reason, new_key: true } => {
                    let key = self.new_key(step);
                    let write = Write::NoEffect { step, unanswered_at, new_key: Some(&key) };
                    return self.postpone(step, &reason, write).await;
                }
                StepOutcome::Inconclusive { reason } => {
                    let write = Write::NoEffect { step, unanswered_at, new_key: None };
                    return self.postpone(step, &reason, write).await;
                }
                StepOutcome::Refused { refusal, reason } => {
                    let refused = self.refuse(step, refusal, &reason, true).await;
                    return self.or_postpone(step, refused).await;
                }
            }
        }
        Ok(())
    }

    /// Undoes the started steps, the last one first.
    async fn backward(&mut self) -> Progress {
        for &step in self.handler.steps().iter().rev() {
            if !matches!(self.saga.state_of(step), Some(StepState::Started | StepState::Done)) {
                continue;
            }
            self.require_time(step, Duration::ZERO).await?;
            self.renew(step).await?;
            match self.bounded(self.handler.compensate(&self.saga, step)).await {
                StepOutcome::Done(response) => self.finish_compensation(step, &response).await?,
                StepOutcome::Retry { reason, .. } | StepOutcome::Inconclusive { reason } => {
                    return self.postpone(step, &reason, Write::Nothing).await;
                }
                // An operator must decide what happens to the saga.
                StepOutcome::Refused { reason, .. } => {
                    tracing::error!(kind = self.handler.kind(), saga = %self.saga.id, step, reason, "failed to undo a step");
                    return self.postpone(step, &reason, Write::Nothing).await;
                }
            }
        }
        let state = if self.saga.is_abandoned { SagaState::Abandoned } else { SagaState::Failed };
        let change =
            |now| Change { state: Some(state), finished_at: Some(now), lease_until: Some(None), ..Change::default() };
        self.commit("", change, Write::Nothing).await?;
        metrics::record_end(self.handler.kind(), state, self.saga.created_at, self.store.last_corrected_now());
        Ok(())
    }

    /// Waits for a call until the timeout of the step, or until the end of the run if that is earlier.
    async fn bounded(&self, call: impl Future<Output = Result<StepOutcome>>) -> StepOutcome {
        let retry = |reason: String| StepOutcome::Retry { reason, new_key: false };
        match timeout_at(self.until.min(Instant::now() + STEP_TIMEOUT), call).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                tracing::warn!(kind = self.handler.kind(), error = %error_chain(&error), "failed to execute a step of a saga");
                retry("a database error; see the log of the service".to_owned())
            }
            Err(_) => retry(NO_RESPONSE.to_owned()),
        }
    }

    /// Records an attempt, with the key of the step, and renews the lease.
    async fn start(&mut self, step: &'static str) -> Progress<Attempt> {
        let new_key = self.new_key(step);
        let recorded = self.commit(step, |now| renewal(step, now), Write::Attempt { step, new_key: &new_key }).await?;
        let (key, number) = recorded.ok_or(Stop::LostLease(step))?;
        let unanswered_at = self.saga.steps.iter().find(|it| it.name == step).and_then(|it| it.unanswered_at);
        self.saga.steps.retain(|it| it.name != step);
        self.saga.steps.push(Step {
            name: step.to_owned(),
            key: key.clone(),
            state: StepState::Started,
            attempts: number,
            response: Value::Null,
            unanswered_at,
        });
        Ok(Attempt { step, key, number, unanswered_at })
    }

    /// Records the response of a step together with the rows of the context.
    async fn finish(&mut self, attempt: &Attempt, response: Value) -> Progress {
        let step = attempt.step;
        let is_last = self.handler.steps().last() == Some(&step);
        let change = |now| {
            let change = Change { attempts: Some(0), ..Change::default() };
            if !is_last {
                return change;
            }
            Change { state: Some(SagaState::Done), finished_at: Some(now), lease_until: Some(None), ..change }
        };
        self.commit(step, change, Write::Response { step, response: &response }).await?;
        self.saga.attempts = 0;
        for known in self.saga.steps.iter_mut().filter(|it| it.name == step) {
            known.state = StepState::Done;
            known.response = response.clone();
        }
        if is_last {
            let now = self.store.last_corrected_now();
            metrics::record_end(self.handler.kind(), SagaState::Done, self.saga.created_at, now);
        }
        Ok(())
    }

    /// Records a refusal. From then on, the steps of the saga are undone. `is_refused` states whether the provider
    /// refused the step; otherwise, an operator abandoned the saga.
    async fn refuse(&mut self, step: &'static str, refusal: Value, reason: &str, is_refused: bool) -> Progress {
        let reason = sanitize(reason);
        metrics::count_failure(self.handler.kind(), step, "refused");
        let change =
            |_| Change { refusal: Some(&refusal), last_error: Some(&reason), attempts: Some(0), ..Change::default() };
        let refused = is_refused.then_some(step);
        self.commit(step, change, Write::Refusal { refused, refusal: &refusal }).await?;
        for known in self.saga.steps.iter_mut().filter(|it| is_refused && it.name == step) {
            known.state = StepState::Refused;
        }
        self.saga.refusal = Some(refusal);
        Ok(())
    }

    async fn finish_compensation(&mut self, step: &'static str, response: &Value) -> Progress {
        let change = |_| Change { attempts: Some(0), ..Change::default() };
        self.commit(step, change, Write::Compensation { step, response }).await?;
        for known in self.saga.steps.iter_mut().filter(|it| it.name == step) {
            known.state = StepState::Compensated;
        }
        Ok(())
    }

    /// Schedules the next attempt of a step whose result the context failed to record.
    async fn or_postpone(&mut self, step: &'static str, recorded: Progress) -> Progress {
        match recorded {
            Err(Stop::Database(error)) => {
                let (kind, saga) = (self.handler.kind(), self.saga.id);
                tracing::error!(kind, %saga, step, error = %error_chain(&error), "failed to record a step of a saga");
                let reason = "failed to record the result; see the log of the service";
                self.postpone(step, reason, Write::Nothing).await
            }
            recorded => recorded,
        }
    }

    /// Schedules the next attempt, and ends the run.
    async fn postpone(&self, step: &'static str, reason: &str, write: Write<'_>) -> Progress {
        metrics::count_failure(self.handler.kind(), step, "retry");
        let (attempts, reason) = (self.saga.attempts.saturating_add(1), sanitize(reason));
        let delay = backoff(self.store.clock_rng(), attempts);
        tracing::warn!(kind = self.handler.kind(), saga = %self.saga.id, step, reason, "a step of a saga failed; retrying later");
        let change = |now: Time| Change {
            attempts: Some(attempts),
            last_error: Some(&reason),
            next_attempt_at: Some(now.plus_millis(delay)),
            state: Some(SagaState::Waiting),
            lease_until: Some(None),
            ..Change::default()
        };
        self.commit(step, change, write).await?;
        Err(Stop::Incomplete(step))
    }

    /// Ends the run if less than this time is left. The background job then continues the saga immediately.
    async fn require_time(&self, step: &'static str, min_time: Duration) -> Progress {
        if Instant::now() + min_time < self.until {
            return Ok(());
        }
        let change = |now| Change {
            step: Some(step),
            next_attempt_at: Some(now),
            state: Some(SagaState::Waiting),
            lease_until: Some(None),
            ..Change::default()
        };
        self.commit(step, change, Write::Nothing).await?;
        Err(Stop::Incomplete(step))
    }

    /// Renews the lease for a compensation.
    async fn renew(&self, step: &'static str) -> Progress {
        self.commit(step, |now| renewal(step, now), Write::Nothing).await.map(drop)
    }

    /// Commits a change of the saga, with other writes and an audit event, if the lease is still the latest. `change`
    /// receives the current time.
    async fn commit<'c>(
        &self,
        step: &'static str,
        change: impl Fn(Time) -> Change<'c>,
        write: Write<'_>,
    ) -> Progress<Recorded> {
        let mut pause = Duration::from_millis(50);
        loop {
            match self.try_commit(&change, &write).await {
                Ok(Some(recorded)) => return Ok(recorded),
                Ok(None) => return Err(Stop::LostLease(step)),
                // Retry: the effect may have happened, and without its record the saga would wait for the end of the
                // lease.
                Err(Error::Unavailable(_)) if Instant::now() + pause < self.until => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns `None` if another runner has the lease.
    async fn try_commit<'c>(&self, change: impl Fn(Time) -> Change<'c>, write: &Write<'_>) -> Result<Option<Recorded>> {
        let actor = Actor { user: self.saga.user, ..Actor::service(self.handler.kind()) };
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                let now = self.store.corrected_now(tx).await?;
                if !queue::change(tx, &self.saga, &change(now)).await? {
                    return Ok(None);
                }
                let (recorded, event) = self.write(tx, write, now).await?;
                if let Some(event) = event {
                    append(tx, self.store.clock_rng(), &actor, &event).await?;
                }
                Ok(Some(recorded))
            })
            .await
    }

    async fn write(&self, tx: &mut Connection, write: &Write<'_>, now: Time) -> Result<(Recorded, Option<Event>)> {
        let (handler, saga) = (self.handler, &self.saga);
        let event = match *write {
            Write::Nothing => None,
            Write::Attempt { step, new_key } => {
                let attempt = queue::start_step(tx, saga, step, new_key, now).await?;
                return Ok((Some(attempt), None));
            }
            Write::NoEffect { step, unanswered_at, new_key } => {
                queue::end_attempt(tx, saga, step, unanswered_at).await?;
                if let Some(key) = new_key {
                    queue::replace_key(tx, saga, step, key).await?;
                }
                None
            }
            Write::Response { step, response } => {
                queue::end_step(tx, saga, step, StepState::Done, Some(response), now).await?;
                handler.record(tx, saga, step, response).await?
            }
            Write::Refusal { refused, refusal } => {
                if let Some(step) = refused {
                    queue::end_step(tx, saga, step, StepState::Refused, None, now).await?;
                }
                handler.refuse(tx, saga, refusal).await?
            }
            Write::Compensation { step, response } => {
                queue::end_step(tx, saga, step, StepState::Compensated, None, now).await?;
                handler.record_compensation(tx, saga, step, response).await?
            }
        };
        Ok((None, event))
    }

    /// Returns a new idempotency key.
    fn new_key(&self, step: &str) -> String {
        let id: Uuid = self.store.clock_rng().id();
        format!("{}-{step}-{}", self.saga.id.simple(), id.simple())
    }
}

/// Returns the change that renews the lease.
fn renewal(step: &'static str, now: Time) -> Change<'static> {
    let lease_until = now.plus_seconds(LEASE_SECONDS);
    Change {
        step: Some(step),
        lease_until: Some(Some(lease_until)),
        next_attempt_at: Some(lease_until),
        ..Change::default()
    }
}

impl Stop {
    fn result(self) -> Result<SagaResult> {
        match self {
            Self::Incomplete(step) | Self::LostLease(step) => Ok(SagaResult::Incomplete { step: step.to_owned() }),
            Self::Database(error) => Err(error),
        }
    }
}

const _: () =
    assert!(2 * MAX_UNCORRECTED_MILLIS.unsigned_abs() < (LEASE_SECONDS.unsigned_abs() - STEP_TIMEOUT.as_secs()) * 1000);
