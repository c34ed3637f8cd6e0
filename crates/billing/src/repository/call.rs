//! Calls of AI models, and the usage of projects.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Bool, Integer, Nullable, Text, Timestamptz};
use diesel_async::RunQueryDsl;
use kernel::{NodeId, OrgId, Plan, ProjectId, Time};
use store::{Connection, Prepared, Result, purge_batch};
use uuid::Uuid;

use super::call_sql::{ADMIT, CORRECT, DEDUCT, DEDUCT_LOST, END_FREE, PROGRESS, PURGE, USAGE};
use crate::model::AiUsage24h;
use crate::schema::calls;

/// The limits of a plan that apply to a call.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    /// Maximum number of calls of a project per minute.
    pub per_minute: i32,
    /// Maximum spend of a project in 24 hours, in microcents.
    pub spend_per_day: i64,
    /// Maximum input of a call, in tokens. `i64::MAX` means the maximum of the model.
    pub max_input: i64,
    /// The output that a call is expected to have at most, in tokens. The account holds its cost while the call is open.
    pub expected_output: i64,
}

/// A call that requests admission.
#[derive(Debug)]
pub struct NewCall<'a> {
    pub id: Uuid,
    pub node: NodeId,
    pub project: ProjectId,
    pub model: &'a str,
    /// The price of the input, in microcents per million tokens.
    pub input_price: i64,
    pub output_price: i64,
    /// The estimated input, in tokens.
    pub input_tokens: i64,
    /// The context length of the model, in tokens. The stored estimate is limited to it.
    pub context_tokens: i64,
    pub free: CallLimits,
    pub pro: CallLimits,
}

/// The facts on which the admission of a call depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub struct CallDecision {
    /// Whether the project has access to AI models and is on this node.
    #[diesel(sql_type = Bool)]
    pub is_granted: bool,
    /// Whether the balance is above the estimated cost of the organization's open calls.
    #[diesel(sql_type = Bool)]
    pub is_funded: bool,
    /// The spend in the last 24 hours and the estimated cost of the project's open calls, in microcents.
    #[diesel(sql_type = BigInt)]
    pub spent: i64,
    #[diesel(sql_type = BigInt)]
    pub spend_per_day: i64,
    #[diesel(sql_type = Integer)]
    pub per_minute: i32,
    /// Maximum input, in tokens.
    #[diesel(sql_type = BigInt)]
    pub max_input: i64,
    /// The estimated input, in tokens.
    #[diesel(sql_type = BigInt)]
    pub input_tokens: i64,
    #[diesel(sql_type = Text)]
    pub plan: Plan,
    #[diesel(sql_type = Bool)]
    pub is_admitted: bool,
}

/// The usage of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallUsage {
    pub input_tokens: i64,
    pub output_tokens: i64,
    pub estimated: bool,
}

/// A deducted call, and the top-up that it starts.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub struct Deduction {
    #[diesel(sql_type = diesel::sql_types::Uuid)]
    pub org: OrgId,
    #[diesel(sql_type = BigInt)]
    pub amount: i64,
    /// The balance after the deduction.
    #[diesel(sql_type = BigInt)]
    pub balance: i64,
    /// The amount of the automatic top-up, if it is on and the balance is below its threshold.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub top_up: Option<i64>,
}

/// A call in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallProgress {
    pub id: Uuid,
    /// The estimated output so far, in tokens.
    pub output_tokens: i64,
}

/// A call that its node has not reported for a long time.
#[derive(Debug, Clone, PartialEq, Eq, Queryable)]
pub struct LostCall {
    pub id: Uuid,
    pub input_tokens: i64,
    pub output_tokens: i64,
}

/// Calls of AI models on a [`store::Connection`].
pub trait CallRepository {
    /// Checks a call, and admits it if possible, in one statement. Returns `None` for an unknown or deleted project, and
    /// for a call that was already admitted or ended. The statement may fail because of such a call, so call it outside
    /// a transaction.
    async fn call_admit(&mut self, call: &NewCall<'_>, at: Time) -> Result<Option<CallDecision>>;

    /// Ends an open call of the node, deducts its cost, and inserts its row of the ledger. Returns `None` if the call
    /// had already ended or was not admitted.
    async fn call_deduct(&mut self, id: Uuid, node: NodeId, usage: CallUsage, at: Time) -> Result<Option<Deduction>>;

    /// Ends an open call that its node has not reported since `seen_before`, and deducts its cost. Returns `None` if it
    /// was reported or ended in the meantime.
    async fn call_deduct_lost(&mut self, lost: &LostCall, seen_before: Time, at: Time) -> Result<Option<Deduction>>;

    /// Corrects the balance after [`Self::call_deduct_lost`] ended a call of the node with an estimate: replaces the
    /// estimate by the actual usage, once for each call. Returns `None` if the balance is already correct.
    async fn call_correct(&mut self, id: Uuid, node: NodeId, usage: CallUsage, at: Time) -> Result<Option<Deduction>>;

    /// Ends an open call of the node without a cost. If the call was not admitted, also records its end, so that it is
    /// never admitted later. Returns false if it had already ended.
    async fn call_end_free(&mut self, id: Uuid, node: NodeId, at: Time) -> Result<bool>;

    /// Stores that these calls of the node are in progress. Adds their output beyond the expected one to the cost of the
    /// open calls.
    async fn call_progress(&mut self, node: NodeId, open: &[CallProgress], at: Time) -> Result<()>;

    /// Returns the open calls that no node has reported since `seen_before`, oldest first.
    async fn call_list_lost(&mut self, seen_before: Time, limit: i64) -> Result<Vec<LostCall>>;

    /// Deletes a batch of the calls that ended before this time, and returns their number.
    async fn call_purge(&mut self, ended_before: Time) -> Result<usize>;

    /// Returns the usage of a project since this time, and its spend in microcents.
    async fn usage_since(&mut self, project: ProjectId, since: Time) -> Result<(AiUsage24h, i64)>;
}

#[derive(QueryableByName)]
struct EndRow {
    #[diesel(sql_type = Bool)]
    is_ended: bool,
}

#[derive(QueryableByName)]
struct UsageRow {
    #[diesel(sql_type = BigInt)]
    calls: i64,
    #[diesel(sql_type = BigInt)]
    input_tokens: i64,
    #[diesel(sql_type = BigInt)]
    output_tokens: i64,
    #[diesel(sql_type = BigInt)]
    spent: i64,
}

/// The period to which the limit of the spend applies, in seconds.
pub(crate) const SPEND_PERIOD_SECONDS: i64 = 24 * 3600;

impl CallRepository for Connection {
    async fn call_admit(&mut self, call: &NewCall<'_>, at: Time) -> Result<Option<CallDecision>> {
        use diesel::sql_types::Uuid as SqlUuid;
        let admit = diesel::sql_query(ADMIT)
            .bind::<SqlUuid, _>(call.project)
            .bind::<Timestamptz, _>(at.plus_seconds(-SPEND_PERIOD_SECONDS))
            .bind::<Timestamptz, _>(at)
            .bind::<SqlUuid, _>(call.node)
            .bind::<SqlUuid, _>(call.id)
            .bind::<Text, _>(call.model)
            .bind::<BigInt, _>(call.input_price)
            .bind::<BigInt, _>(call.output_price)
            .bind::<Integer, _>(call.free.per_minute)
            .bind::<BigInt, _>(call.free.spend_per_day)
            .bind::<Integer, _>(call.pro.per_minute)
            .bind::<BigInt, _>(call.pro.spend_per_day)
            .bind::<BigInt, _>(call.input_tokens)
            .bind::<BigInt, _>(call.free.max_input)
            .bind::<BigInt, _>(call.pro.max_input)
            .bind::<BigInt, _>(call.context_tokens)
            .bind::<BigInt, _>(call.free.expected_output)
            .bind::<BigInt, _>(call.pro.expected_output);
        match Prepared(admit).get_result(self).await.optional().map_err(store::Error::from) {
            // The statement was rolled back, so it counts no second call.
            Err(error) if error.violates("calls_pkey") => Ok(None),
            decision => decision,
        }
    }

    async fn call_deduct(&mut self, id: Uuid, node: NodeId, usage: CallUsage, at: Time) -> Result<Option<Deduction>> {
        use diesel::sql_types::Uuid as SqlUuid;
        let deduct = diesel::sql_query(DEDUCT)
            .bind::<SqlUuid, _>(id)
            .bind::<Timestamptz, _>(at)
            .bind::<BigInt, _>(usage.input_tokens)
            .bind::<BigInt, _>(usage.output_tokens)
            .bind::<Bool, _>(usage.estimated)
            .bind::<SqlUuid, _>(node);
        Ok(Prepared(deduct).get_result(self).await.optional()?)
    }

    async fn call_deduct_lost(&mut self, lost: &LostCall, seen_before: Time, at: Time) -> Result<Option<Deduction>> {
        let deduct = diesel::sql_query(DEDUCT_LOST)
            .bind::<diesel::sql_types::Uuid, _>(lost.id)
            .bind::<Timestamptz, _>(at)
            .bind::<BigInt, _>(lost.input_tokens)
            .bind::<BigInt, _>(lost.output_tokens)
            .bind::<Bool, _>(true)
            .bind::<Timestamptz, _>(seen_before);
        Ok(Prepared(deduct).get_result(self).await.optional()?)
    }

    async fn call_correct(&mut self, id: Uuid, node: NodeId, usage: CallUsage, at: Time) -> Result<Option<Deduction>> {
        use diesel::sql_types::Uuid as SqlUuid;
        let correct = diesel::sql_query(CORRECT)
            .bind::<SqlUuid, _>(id)
            .bind::<Timestamptz, _>(at)
            .bind::<BigInt, _>(usage.input_tokens)
            .bind::<BigInt, _>(usage.output_tokens)
            .bind::<SqlUuid, _>(node);
        Ok(Prepared(correct).get_result(self).await.optional()?)
    }

    async fn call_end_free(&mut self, id: Uuid, node: NodeId, at: Time) -> Result<bool> {
        use diesel::sql_types::Uuid as SqlUuid;
        let end =
            diesel::sql_query(END_FREE).bind::<SqlUuid, _>(id).bind::<SqlUuid, _>(node).bind::<Timestamptz, _>(at);
        let EndRow { is_ended } = Prepared(end).get_result(self).await?;
        Ok(is_ended)
    }

    async fn call_progress(&mut self, node: NodeId, open: &[CallProgress], at: Time) -> Result<()> {
        use diesel::sql_types::Uuid as SqlUuid;
        let ids: Vec<Uuid> = open.iter().map(|call| call.id).collect();
        let output_tokens: Vec<i64> = open.iter().map(|call| call.output_tokens).collect();
        let progress = diesel::sql_query(PROGRESS)
            .bind::<SqlUuid, _>(node)
            .bind::<Array<SqlUuid>, _>(ids)
            .bind::<Array<BigInt>, _>(output_tokens)
            .bind::<Timestamptz, _>(at);
        Prepared(progress).execute(self).await?;
        Ok(())
    }

    async fn call_list_lost(&mut self, seen_before: Time, limit: i64) -> Result<Vec<LostCall>> {
        let lost = calls::table
            .filter(calls::ended_at.is_null().and(calls::seen_at.lt(seen_before)))
            .order(calls::seen_at)
            .limit(limit)
            .select((calls::id, calls::input_tokens, calls::output_tokens));
        Ok(lost.load(self).await?)
    }

    async fn call_purge(&mut self, ended_before: Time) -> Result<usize> {
        purge_batch(self, PURGE, ended_before).await
    }

    async fn usage_since(&mut self, project: ProjectId, since: Time) -> Result<(AiUsage24h, i64)> {
        let usage = diesel::sql_query(USAGE).bind::<diesel::sql_types::Uuid, _>(project).bind::<Timestamptz, _>(since);
        let found: Option<UsageRow> = Prepared(usage).get_result(self).await.optional()?;
        Ok(found.map_or_else(Default::default, |UsageRow { calls, input_tokens, output_tokens, spent }| {
            (AiUsage24h { calls, input_tokens, output_tokens }, spent)
        }))
    }
}
