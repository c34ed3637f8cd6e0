//! Calls of AI models: the admission before a call, and the deduction after it (contract section 8, "AI calls").

use std::sync::LazyLock;

use kernel::{NodeId, Plan, ProjectId, Time};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use store::{BATCH_SIZE, Connection, Error, is_full_batch};
use uuid::Uuid;

use super::{Billing, Result};
use crate::catalog::CatalogEntry;
use crate::ports::Notice;
use crate::repository::{
    CallDecision, CallLimits, CallProgress, CallRepository as _, CallUsage, Deduction, LostCall, NewCall,
};

/// The time after which an open call that no node has reported is ended with its estimated usage.
const LOST_AFTER_SECONDS: i64 = 15 * 60;
/// The time for which ended calls are kept. Within that time, a node settles the calls of its journal.
const RETENTION_SECONDS: i64 = 30 * 24 * 3600;
/// The expected output of a call that neither its request nor its plan limits, in tokens.
const DEFAULT_OUTPUT_TOKENS: u32 = 4_096;

static DECISIONS: LazyLock<Counter<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .u64_counter("svc.ai.calls")
        .with_description("Calls of AI models, by the decision about them")
        .build()
});

static DEDUCTIONS: LazyLock<Counter<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .u64_counter("svc.ai.deductions")
        .with_description("Settled calls of AI models, by the origin of their usage")
        .build()
});

/// A request to admit a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRequest {
    /// The id of the call. The node creates a new one for each call.
    pub id: Uuid,
    pub project: ProjectId,
    /// The id of a model in the catalog.
    pub model: String,
    /// The estimated input, in tokens.
    pub input_tokens: u32,
    /// The output limit of the request, in tokens. `None` if it has none.
    pub max_output_tokens: Option<u32>,
}

/// The parameters of an admitted call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAdmission {
    /// The name of the model at the upstream.
    pub upstream_model: String,
    /// The context length of the model, in tokens.
    pub context_tokens: u32,
    /// Maximum output, in tokens. 0 means the maximum of the model.
    pub max_output_tokens: u32,
}

/// The reason why a call is rejected. The text is for the developer of the worker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallRefusal {
    #[error("The model does not exist. GET /v1/models lists the models.")]
    ModelNotFound,
    #[error("The input has about {tokens} tokens. The limit is {limit}.")]
    ContextLengthExceeded { tokens: i64, limit: i64 },
    #[error("The organization has no AI credit left, or calls in progress use it up. An admin can add credit.")]
    InsufficientCredit,
    #[error("The project may make {per_minute} calls per minute. Try again in {retry_after} seconds.")]
    RateLimited { per_minute: i32, retry_after: u32 },
    #[error("The project spent its limit of {limit} microcents in 24 hours, or its calls in progress use it up.")]
    SpendLimit { limit: i64 },
    #[error("AI is not enabled for the project.")]
    NotGranted,
}

/// The decision about a call.
pub type CallResult = std::result::Result<CallAdmission, CallRefusal>;

impl Billing {
    /// Admits a call of a project on this node, or rejects it. One statement checks the grant, the balance, the spend
    /// of 24 hours and the calls of the minute, and records the call. The estimated cost of open calls reduces the
    /// balance and the spend that is left. The estimate includes the output that the request permits.
    ///
    /// # Errors
    /// Returns [`BillingError::Store`](crate::BillingError::Store).
    pub async fn admit_call(&self, node: NodeId, request: &CallRequest) -> Result<CallResult> {
        let decided = self.decide(node, request).await?;
        if decided == Err(CallRefusal::InsufficientCredit) {
            self.start_due_topup(request.project).await?;
        }
        let decision = match &decided {
            Ok(_) => "admitted",
            Err(CallRefusal::ModelNotFound) => "model_not_found",
            Err(CallRefusal::ContextLengthExceeded { .. }) => "context_length_exceeded",
            Err(CallRefusal::InsufficientCredit) => "insufficient_credit",
            Err(CallRefusal::RateLimited { .. }) => "rate_limited",
            Err(CallRefusal::SpendLimit { .. }) => "spend_limit",
            Err(CallRefusal::NotGranted) => "not_granted",
        };
        DECISIONS.add(1, &[KeyValue::new("decision", decision)]);
        Ok(decided)
    }

    async fn decide(&self, node: NodeId, request: &CallRequest) -> Result<CallResult> {
        let CallRequest { id, project, model, input_tokens, max_output_tokens } = request;
        let Some(entry) = self.catalog().get(model) else { return Ok(Err(CallRefusal::ModelNotFound)) };
        let CatalogEntry { model, upstream_model } = entry;
        let limits = |plan: Plan| {
            let limits = self.limits.for_plan(plan);
            CallLimits {
                per_minute: i32::try_from(limits.ai_requests_per_minute).unwrap_or(i32::MAX),
                spend_per_day: limits.ai_spend_per_day_micro_cents,
                max_input: match limits.ai_max_input_tokens {
                    0 => i64::MAX,
                    max => i64::from(max),
                },
                expected_output: expected_output(*max_output_tokens, limits.ai_max_output_tokens)
                    .min(model.context_tokens)
                    .into(),
            }
        };
        let call = NewCall {
            id: *id,
            node,
            project: *project,
            model: &model.id,
            input_price: model.input_micro_cents_per_m_tok,
            output_price: model.output_micro_cents_per_m_tok,
            input_tokens: i64::from(*input_tokens),
            context_tokens: i64::from(model.context_tokens),
            free: limits(Plan::Free),
            pro: limits(Plan::Pro),
        };
        let now = self.store.clock_rng().now();
        let decision = self.store.connection().await?.call_admit(&call, now).await?;
        Ok(check(decision, now).map(|plan| CallAdmission {
            upstream_model: upstream_model.clone(),
            context_tokens: model.context_tokens,
            max_output_tokens: self.limits.for_plan(plan).ai_max_output_tokens,
        }))
    }

    /// Ends a call of the node and deducts its usage. `None` is a free call. If [`Self::end_lost_calls`] already ended
    /// the call with its estimated usage, corrects the balance. Returns false if the call had already ended. Safe to
    /// repeat, and to run concurrently with [`Self::end_lost_calls`].
    ///
    /// # Errors
    /// Returns [`BillingError::Store`](crate::BillingError::Store).
    pub async fn settle_call(&self, node: NodeId, id: Uuid, usage: Option<CallUsage>) -> Result<bool> {
        let now = self.store.clock_rng().now();
        let is_first = match usage {
            None => self.store.connection().await?.call_end_free(id, node, now).await?,
            Some(usage) => {
                let is_first = self
                    .store
                    .transaction_unaudited(async |tx: &mut Connection| {
                        let deducted = tx.call_deduct(id, node, usage, now).await?;
                        self.after_deduction(tx, deducted.as_ref(), now).await?;
                        Ok::<_, Error>(deducted.is_some())
                    })
                    .await?;
                count_end(is_first, usage.estimated);
                is_first
            }
        };
        if !is_first {
            self.correct_lost_call(node, id, usage.unwrap_or_default(), now).await?;
        }
        Ok(is_first)
    }

    async fn correct_lost_call(&self, node: NodeId, id: Uuid, usage: CallUsage, now: Time) -> Result<()> {
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                let corrected = tx.call_correct(id, node, usage, now).await?;
                self.after_deduction(tx, corrected.as_ref(), now).await
            })
            .await?;
        Ok(())
    }

    /// Records that these calls of the node are in progress.
    ///
    /// # Errors
    /// Returns [`BillingError::Store`](crate::BillingError::Store).
    pub async fn report_open_calls(&self, node: NodeId, open: &[CallProgress]) -> Result<()> {
        let now = self.store.clock_rng().now();
        Ok(self.store.connection().await?.call_progress(node, open, now).await?)
    }

    /// Ends calls that no node has reported for 15 minutes, with their estimated usage. Also deletes calls that ended
    /// long ago.
    ///
    /// # Errors
    /// Returns [`BillingError::Store`](crate::BillingError::Store).
    pub async fn end_lost_calls(&self) -> Result<()> {
        let now = self.store.clock_rng().now();
        let seen_before = now.plus_seconds(-LOST_AFTER_SECONDS);
        loop {
            let lost = self.store.connection().await?.call_list_lost(seen_before, BATCH_SIZE).await?;
            for call in &lost {
                self.end_lost_call(call, seen_before, now).await?;
            }
            if !is_full_batch(lost.len()) {
                break;
            }
        }
        let ended_before = now.plus_seconds(-RETENTION_SECONDS);
        while is_full_batch(self.store.connection().await?.call_purge(ended_before).await?) {}
        Ok(())
    }

    async fn end_lost_call(&self, call: &LostCall, seen_before: Time, now: Time) -> Result<()> {
        let deducted = self
            .store
            .transaction_unaudited(async |tx: &mut Connection| {
                let deducted = tx.call_deduct_lost(call, seen_before, now).await?;
                self.after_deduction(tx, deducted.as_ref(), now).await?;
                Ok::<_, Error>(deducted)
            })
            .await?;
        if let Some(Deduction { org, .. }) = deducted {
            tracing::warn!(call = %call.id, %org, "ended a call that its node did not settle, at its estimate");
            count_end(true, true);
        }
        Ok(())
    }

    /// Raises the notification that the credit ran out, and starts an automatic top-up, if necessary. The caller holds
    /// the lock of the account.
    async fn after_deduction(&self, tx: &mut Connection, deducted: Option<&Deduction>, now: Time) -> store::Result<()> {
        let Some(&Deduction { org, amount, balance, top_up }) = deducted else { return Ok(()) };
        if balance <= 0 && balance.saturating_add(amount) > 0 {
            self.ports.organizations.raise(tx, org, Notice::AiCreditLimit).await?;
        }
        match top_up {
            Some(amount) => self.start_topup(tx, org, amount, now).await,
            None => Ok(()),
        }
    }
}

/// Returns the expected output of a call in tokens, from the limits of its request and of its plan. The node limits the
/// output to that of the plan, and adds it to a request without a limit.
fn expected_output(request: Option<u32>, plan: u32) -> u32 {
    match (request, plan) {
        (None, 0) => DEFAULT_OUTPUT_TOKENS,
        (Some(limit), 0) | (None, limit) => limit,
        (Some(limit), plan) => limit.min(plan),
    }
}

/// Returns the plan of an admitted call, or the reason to reject it.
fn check(decision: Option<CallDecision>, now: Time) -> std::result::Result<Plan, CallRefusal> {
    // Without a decision, the project does not exist, or the node ended the call before its request for admission
    // arrived here, so the node no longer waits for this response.
    let decision = decision.filter(|decision| decision.is_granted).ok_or(CallRefusal::NotGranted)?;
    let CallDecision { is_funded, spent, spend_per_day, per_minute, max_input, input_tokens, .. } = decision;
    if decision.is_admitted {
        return Ok(decision.plan);
    }
    Err(if input_tokens > max_input {
        CallRefusal::ContextLengthExceeded { tokens: input_tokens, limit: max_input }
    } else if !is_funded {
        CallRefusal::InsufficientCredit
    } else if spent >= spend_per_day {
        CallRefusal::SpendLimit { limit: spend_per_day }
    } else {
        // A concurrent admission may also have used up the spend. The next attempt then returns that reason.
        let retry_after = u32::try_from(60 - now.unix_seconds().rem_euclid(60)).unwrap_or(60);
        CallRefusal::RateLimited { per_minute, retry_after }
    })
}

fn count_end(is_first: bool, estimated: bool) {
    let usage = match (is_first, estimated) {
        (false, _) => "repeated",
        (true, true) => "estimated",
        (true, false) => "reported",
    };
    DEDUCTIONS.add(1, &[KeyValue::new("usage", usage)]);
}
