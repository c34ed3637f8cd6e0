//! Calls of AI models, and the usage of projects.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Bool, Integer, Nullable, Text, Timestamptz};
use diesel_async::RunQueryDsl;
use kernel::{NodeId, OrgId, Plan, ProjectId, Time};
use store::{Connection, Prepared, Result};
use uuid::Uuid;

use super::account::ledger_time;
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
    #[diesel(sql_type = BigInt)]
    pub balance: i64,
    /// The spend in the last 24 hours, in microcents.
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
    /// Whether the limit per minute allows the call.
    #[diesel(sql_type = Bool)]
    pub is_counted: bool,
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
    /// Checks a call, and admits it if possible, in one statement. Returns `None` for an unknown or deleted project.
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

    /// Stores that these calls of the node are in progress.
    async fn call_progress(&mut self, node: NodeId, open: &[CallProgress], at: Time) -> Result<()>;

    /// Returns the open calls that no node has reported since `seen_before`, oldest first.
    async fn call_list_lost(&mut self, seen_before: Time, limit: i64) -> Result<Vec<LostCall>>;

    /// Deletes the calls that ended before this time, and returns their number.
    async fn call_purge(&mut self, ended_before: Time, limit: i64) -> Result<usize>;

    /// Returns the usage of a project since this time, and its spend in microcents.
    async fn usage_since(&mut self, project: ProjectId, since: Time) -> Result<(AiUsage24h, i64)>;
}

/// Joins the two rows of the ledger that contain the running sums of a project at `$2`, the start of the last 24 hours:
/// its last call before that time, and its first call after that time.
macro_rules! join_ledger {
    () => {
        "LEFT JOIN LATERAL (SELECT * FROM billing.ledger l \
            WHERE l.kind = 'call' AND l.project_id = u.project_id AND l.created_at < $2 \
            ORDER BY l.created_at DESC, l.ledger_id DESC LIMIT 1) earlier ON true \
        LEFT JOIN LATERAL (SELECT * FROM billing.ledger l \
            WHERE l.kind = 'call' AND l.project_id = u.project_id AND l.created_at >= $2 \
            ORDER BY l.created_at, l.ledger_id LIMIT 1) later ON true"
    };
}

/// The increase of a running sum since `$2`. The sum of the later row is without that row's own value. If the clock was
/// set back, one of the rows may have a time that was in the future, and a sum that is too small.
macro_rules! increase {
    ($column:literal, $without_own:literal) => {
        concat!(
            "u.",
            $column,
            " - greatest(earlier.project_",
            $column,
            ", coalesce(later.project_",
            $column,
            $without_own,
            ", u.",
            $column,
            "))"
        )
    };
}

/// The spend of a project since `$2`, in microcents.
macro_rules! spent {
    () => {
        increase!("spent_micro_cents", " + later.amount_micro_cents")
    };
}

/// Whether the stored minute is the present one. The clock of another process may be ahead by up to a minute. A later
/// minute shows that the clock was set back, so the count starts again.
macro_rules! is_current_minute {
    () => {
        "u.minute BETWEEN excluded.minute AND excluded.minute + interval '1 minute'"
    };
}

/// The upsert of the project's usage counts the call, and locks the row against other calls of the project. So a minute
/// never admits more calls than its limit.
const ADMIT: &str = concat!(
    "WITH target AS ( \
        SELECT p.id, p.name, p.org_id, p.is_granted AND p.node_id IS NOT DISTINCT FROM $4 AS is_granted, \
            coalesce(a.balance_micro_cents, 0) AS balance, \
            coalesce(",
    spent!(),
    ", 0) AS spent, \
            CASE p.plan WHEN 'pro' THEN $12 ELSE $10 END AS spend_per_day, \
            CASE p.plan WHEN 'pro' THEN $11 ELSE $9 END AS per_minute, \
            CASE p.plan WHEN 'pro' THEN $15 ELSE $14 END AS max_input, p.plan \
        FROM billing.ai_projects p LEFT JOIN billing.accounts a ON a.org_id = p.org_id \
            LEFT JOIN billing.project_usage u ON u.project_id = p.id ",
    join_ledger!(),
    " WHERE p.id = $1), \
    counted AS ( \
        INSERT INTO billing.project_usage AS u (project_id, minute, minute_calls) \
        SELECT id, date_trunc('minute', $3), 1 FROM target \
        WHERE is_granted AND $13 <= max_input AND balance > 0 AND spent < spend_per_day AND per_minute > 0 \
        ON CONFLICT (project_id) DO UPDATE SET \
            minute = CASE WHEN ",
    is_current_minute!(),
    " THEN u.minute ELSE excluded.minute END, \
            minute_calls = CASE WHEN ",
    is_current_minute!(),
    " THEN u.minute_calls + 1 ELSE 1 END \
        WHERE u.minute_calls < (SELECT per_minute FROM target) OR NOT ",
    is_current_minute!(),
    " RETURNING u.project_id), \
    admitted AS ( \
        INSERT INTO billing.calls (id, node_id, org_id, project_id, project, model, input_price, output_price, \
            input_tokens, seen_at) \
        SELECT $5, $4, t.org_id, t.id, t.name, $6, $7, $8, least($13, $16), $3 \
        FROM target t JOIN counted c ON c.project_id = t.id \
        ON CONFLICT (id) DO NOTHING RETURNING id) \
    SELECT is_granted, balance, spent, spend_per_day, per_minute, max_input, $13 AS input_tokens, plan, \
        EXISTS (SELECT FROM counted) AS is_counted, EXISTS (SELECT FROM admitted) AS is_admitted FROM target"
);

/// The cost of a call with `$3` input tokens and `$4` output tokens. The cost of each part is rounded up.
macro_rules! cost {
    () => {
        "div($3::numeric * input_price + 999999, 1000000)::bigint \
            + div($4::numeric * output_price + 999999, 1000000)::bigint"
    };
}

/// The result of a change of an account: the inserted row of the ledger, and the top-up that it starts.
macro_rules! deduction {
    () => {
        "RETURNING org_id, -amount_micro_cents AS amount, balance_micro_cents AS balance) \
            SELECT e.org_id AS org, e.amount, e.balance, t.amount_micro_cents AS top_up FROM entry e \
                LEFT JOIN billing.auto_topups t ON t.org_id = e.org_id AND t.enabled AND e.balance < t.threshold_micro_cents"
    };
}

/// Deducts the call that `ended` returns. The update of the account locks the account until the transaction ends, and
/// the usage is updated after that. The row of the ledger gets the values that both updates return, because they are
/// current.
macro_rules! deduct {
    ($is_lost:literal, $ended:literal) => {
        concat!(
            "WITH ended AS (UPDATE billing.calls SET ended_at = $2, is_lost = ", $is_lost, " \
                WHERE id = $1 AND ended_at IS NULL AND ", $ended, " \
                RETURNING *, ", cost!(), " AS cost), \
            account AS ( \
                UPDATE billing.accounts a SET balance_micro_cents = a.balance_micro_cents - e.cost, \
                    last_ledger_id = a.last_ledger_id + 1, last_ledger_at = ", ledger_time!("$2"), " \
                FROM ended e WHERE a.org_id = e.org_id \
                RETURNING a.*, e.id, e.project_id, e.project, e.model, e.cost), \
            project_usage AS ( \
                UPDATE billing.project_usage u SET calls = u.calls + 1, input_tokens = u.input_tokens + $3, \
                    output_tokens = u.output_tokens + $4, spent_micro_cents = u.spent_micro_cents + a.cost \
                FROM account a WHERE u.project_id = a.project_id RETURNING u.*), \
            entry AS ( \
                INSERT INTO billing.ledger (org_id, ledger_id, kind, amount_micro_cents, balance_micro_cents, call_id, \
                    project_id, project, model, input_tokens, output_tokens, estimated, project_calls, \
                    project_input_tokens, project_output_tokens, project_spent_micro_cents, created_at) \
                SELECT a.org_id, a.last_ledger_id, 'call', -a.cost, a.balance_micro_cents, a.id, a.project_id, a.project, \
                    a.model, $3, $4, $5, u.calls, u.input_tokens, u.output_tokens, u.spent_micro_cents, a.last_ledger_at \
                FROM account a JOIN project_usage u ON u.project_id = a.project_id ",
            deduction!()
        )
    };
}

const DEDUCT: &str = deduct!("false", "node_id = $6");
const DEDUCT_LOST: &str = deduct!("true", "seen_at < $6");

/// Inserts a row with the correction. Does not change the row of the ledger with the estimate.
const CORRECT: &str = concat!(
    "WITH corrected AS (UPDATE billing.calls SET is_lost = false WHERE id = $1 AND is_lost AND node_id = $5 \
        RETURNING *, ",
    cost!(),
    " AS cost), \
    account AS ( \
        UPDATE billing.accounts a SET balance_micro_cents = a.balance_micro_cents - l.amount_micro_cents - c.cost, \
            last_ledger_id = a.last_ledger_id + 1, last_ledger_at = ",
    ledger_time!("$2"),
    " \
        FROM corrected c JOIN billing.ledger l ON l.call_id = c.id \
        WHERE a.org_id = c.org_id AND l.amount_micro_cents <> -c.cost \
        RETURNING a.*, c.project, c.model, -l.amount_micro_cents - c.cost AS amount), \
    entry AS ( \
        INSERT INTO billing.ledger (org_id, ledger_id, kind, amount_micro_cents, balance_micro_cents, project, model, \
            created_at) \
        SELECT org_id, last_ledger_id, 'adjust', amount, balance_micro_cents, project, model, last_ledger_at \
        FROM account ",
    deduction!()
);

const END_FREE: &str = "\
    INSERT INTO billing.calls AS c (id, node_id, input_tokens, seen_at, ended_at) VALUES ($1, $2, 0, $3, $3) \
    ON CONFLICT (id) DO UPDATE SET ended_at = excluded.ended_at \
    WHERE c.ended_at IS NULL AND c.node_id = excluded.node_id";

const PROGRESS: &str = "\
    UPDATE billing.calls c SET seen_at = greatest(c.seen_at, $4), output_tokens = greatest(c.output_tokens, o.output_tokens) \
    FROM unnest($2, $3) AS o (id, output_tokens) WHERE c.id = o.id AND c.node_id = $1 AND c.ended_at IS NULL";

const PURGE: &str = "\
    DELETE FROM billing.calls WHERE id IN (SELECT id FROM billing.calls WHERE ended_at < $1 ORDER BY ended_at LIMIT $2)";

const USAGE: &str = concat!(
    "SELECT ",
    increase!("calls", " - 1"),
    " AS calls, ",
    increase!("input_tokens", " - later.input_tokens"),
    " AS input_tokens, ",
    increase!("output_tokens", " - later.output_tokens"),
    " AS output_tokens, ",
    spent!(),
    " AS spent FROM billing.project_usage u ",
    join_ledger!(),
    " WHERE u.project_id = $1"
);

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
            .bind::<BigInt, _>(call.context_tokens);
        Ok(Prepared(admit).get_result(self).await.optional()?)
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
        Ok(Prepared(end).execute(self).await? == 1)
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

    async fn call_purge(&mut self, ended_before: Time, limit: i64) -> Result<usize> {
        let purge = diesel::sql_query(PURGE).bind::<Timestamptz, _>(ended_before).bind::<BigInt, _>(limit);
        Ok(purge.execute(self).await?)
    }

    async fn usage_since(&mut self, project: ProjectId, since: Time) -> Result<(AiUsage24h, i64)> {
        let usage = diesel::sql_query(USAGE).bind::<diesel::sql_types::Uuid, _>(project).bind::<Timestamptz, _>(since);
        let found: Option<UsageRow> = Prepared(usage).get_result(self).await.optional()?;
        Ok(found.map_or_else(Default::default, |UsageRow { calls, input_tokens, output_tokens, spent }| {
            (AiUsage24h { calls, input_tokens, output_tokens }, spent)
        }))
    }
}
