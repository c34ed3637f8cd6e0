//! The statements of calls of AI models. Each locks a call first, then the account, then the usage of the project.

use super::account::ledger_time;

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

/// A running sum at `$2`. The sum of the later row is without that row's own value. If the clock was set back, one of
/// the rows may have a time that was in the future, and a sum that is too small.
macro_rules! before {
    ($column:literal, $without_own:literal) => {
        concat!(
            "greatest(earlier.project_",
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

/// The increase of a running sum since `$2`.
macro_rules! increase {
    ($column:literal, $without_own:literal) => {
        concat!("u.", $column, " - ", before!($column, $without_own))
    };
}

/// The sum of a project's spend at `$2`, in microcents.
macro_rules! spent_before {
    () => {
        before!("spent_micro_cents", " + later.amount_micro_cents")
    };
}

/// The spend of a project since `$2`, in microcents.
macro_rules! spent {
    () => {
        concat!("u.spent_micro_cents - ", spent_before!())
    };
}

/// Whether the stored minute is the present one. The clock of another process may be ahead by up to a minute. A later
/// minute shows that the clock was set back, so the count starts again.
macro_rules! is_current_minute {
    () => {
        "u.minute BETWEEN excluded.minute AND excluded.minute + interval '1 minute'"
    };
}

/// The cost of tokens at a price for a million tokens, in microcents, rounded up.
macro_rules! part_cost {
    ($tokens:literal, $price:literal) => {
        concat!("div(", $tokens, "::numeric * ", $price, " + 999999, 1000000)::bigint")
    };
}

/// The cost of a call with these numbers of tokens, in microcents.
macro_rules! cost {
    ($input_tokens:literal, $output_tokens:literal) => {
        concat!(part_cost!($input_tokens, "input_price"), " + ", part_cost!($output_tokens, "output_price"))
    };
}

/// The estimated cost of an open call, which its account and its project hold: that of its input, and of the greater of
/// its expected and its reported output.
macro_rules! held {
    () => {
        cost!("input_tokens", "greatest(output_tokens, expected_output_tokens)")
    };
}

/// The lock of the account lets the admissions and ends of an organization's calls wait for each other. So `account`
/// reads the present balance and the cost of all open calls. The upsert of the project's usage checks the limits again
/// with its present row, which may be newer than that of `target`. Both rows hold the estimated cost of the call until
/// its end. A second admission of an id finds no target. If the first one commits at the same time, the second one violates
/// `calls_pkey`, so that it holds nothing.
pub(super) const ADMIT: &str = concat!(
    "WITH target AS ( \
        SELECT p.id, p.name, p.org_id, p.is_granted AND p.node_id IS NOT DISTINCT FROM $4 AS is_granted, \
            coalesce(",
    spent!(),
    ", 0) + coalesce(u.held_micro_cents, 0) AS spent, coalesce(",
    spent_before!(),
    ", 0) AS spent_before, \
            CASE p.plan WHEN 'pro' THEN $12 ELSE $10 END AS spend_per_day, \
            CASE p.plan WHEN 'pro' THEN $11 ELSE $9 END AS per_minute, \
            CASE p.plan WHEN 'pro' THEN $15 ELSE $14 END AS max_input, p.plan, e.expected_output, ",
    part_cost!("least($13, $16)", "$7"),
    " + ",
    part_cost!("e.expected_output", "$8"),
    " AS cost \
        FROM billing.ai_projects p \
            CROSS JOIN LATERAL (SELECT CASE p.plan WHEN 'pro' THEN $18 ELSE $17 END AS expected_output) e \
            LEFT JOIN billing.project_usage u ON u.project_id = p.id ",
    join_ledger!(),
    " WHERE p.id = $1 AND NOT EXISTS (SELECT FROM billing.calls WHERE id = $5)), \
    account AS ( \
        SELECT a.org_id FROM billing.accounts a JOIN target t ON t.org_id = a.org_id \
        WHERE t.is_granted AND $13 <= t.max_input AND a.balance_micro_cents > a.held_micro_cents \
        FOR NO KEY UPDATE OF a), \
    counted AS ( \
        INSERT INTO billing.project_usage AS u (project_id, minute, minute_calls, held_micro_cents) \
        SELECT t.id, date_trunc('minute', $3), 1, t.cost FROM target t JOIN account a ON a.org_id = t.org_id \
        WHERE t.spent < t.spend_per_day AND t.per_minute > 0 \
        ON CONFLICT (project_id) DO UPDATE SET held_micro_cents = u.held_micro_cents + excluded.held_micro_cents, \
            minute = CASE WHEN ",
    is_current_minute!(),
    " THEN u.minute ELSE excluded.minute END, \
            minute_calls = CASE WHEN ",
    is_current_minute!(),
    " THEN u.minute_calls + 1 ELSE 1 END \
        WHERE (u.minute_calls < (SELECT per_minute FROM target) OR NOT ",
    is_current_minute!(),
    ") AND u.spent_micro_cents - (SELECT spent_before FROM target) + u.held_micro_cents \
            < (SELECT spend_per_day FROM target) \
        RETURNING u.project_id), \
    admitted AS ( \
        INSERT INTO billing.calls (id, node_id, org_id, project_id, project, model, input_price, output_price, \
            input_tokens, expected_output_tokens, seen_at) \
        SELECT $5, $4, t.org_id, t.id, t.name, $6, $7, $8, least($13, $16), t.expected_output, $3 \
        FROM target t JOIN counted c ON c.project_id = t.id \
        RETURNING project_id), \
    held AS ( \
        UPDATE billing.accounts a SET held_micro_cents = a.held_micro_cents + t.cost \
        FROM target t JOIN admitted c ON c.project_id = t.id WHERE a.org_id = t.org_id) \
    SELECT is_granted, spent, spend_per_day, per_minute, max_input, $13 AS input_tokens, plan, \
        EXISTS (SELECT FROM account) AS is_funded, EXISTS (SELECT FROM admitted) AS is_admitted FROM target"
);

/// The result of a change of an account: the inserted row of the ledger, and the top-up that it starts.
macro_rules! deduction {
    () => {
        "RETURNING org_id, -amount_micro_cents AS amount, balance_micro_cents AS balance) \
            SELECT e.org_id AS org, e.amount, e.balance, t.amount_micro_cents AS top_up FROM entry e \
                LEFT JOIN billing.auto_topups t ON t.org_id = e.org_id AND t.enabled AND e.balance < t.threshold_micro_cents"
    };
}

/// Deducts the call with `$3` input tokens and `$4` output tokens that `ended` returns. The update of the account locks
/// the account until the transaction ends, and the usage is updated after that. The row of the ledger gets the values
/// that both updates return, because they are current.
macro_rules! deduct {
    ($is_lost:literal, $ended:literal) => {
        concat!(
            "WITH ended AS (UPDATE billing.calls SET ended_at = $2, is_lost = ", $is_lost, " \
                WHERE id = $1 AND ended_at IS NULL AND ", $ended, " \
                RETURNING *, ", cost!("$3", "$4"), " AS cost, ", held!(), " AS held), \
            account AS ( \
                UPDATE billing.accounts a SET balance_micro_cents = a.balance_micro_cents - e.cost, \
                    held_micro_cents = a.held_micro_cents - e.held, \
                    last_ledger_id = a.last_ledger_id + 1, last_ledger_at = ", ledger_time!("$2"), " \
                FROM ended e WHERE a.org_id = e.org_id \
                RETURNING a.*, e.id, e.project_id, e.project, e.model, e.cost, e.held), \
            project_usage AS ( \
                UPDATE billing.project_usage u SET calls = u.calls + 1, input_tokens = u.input_tokens + $3, \
                    output_tokens = u.output_tokens + $4, spent_micro_cents = u.spent_micro_cents + a.cost, \
                    held_micro_cents = u.held_micro_cents - a.held \
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

pub(super) const DEDUCT: &str = deduct!("false", "node_id = $6");
pub(super) const DEDUCT_LOST: &str = deduct!("true", "seen_at < $6");

/// Inserts a row with the correction. Does not change the row of the ledger with the estimate.
pub(super) const CORRECT: &str = concat!(
    "WITH corrected AS (UPDATE billing.calls SET is_lost = false WHERE id = $1 AND is_lost AND node_id = $5 \
        RETURNING *, ",
    cost!("$3", "$4"),
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

pub(super) const END_FREE: &str = concat!(
    "WITH ended AS ( \
        INSERT INTO billing.calls AS c (id, node_id, input_tokens, seen_at, ended_at) VALUES ($1, $2, 0, $3, $3) \
        ON CONFLICT (id) DO UPDATE SET ended_at = excluded.ended_at \
        WHERE c.ended_at IS NULL AND c.node_id = excluded.node_id \
        RETURNING org_id, project_id, ",
    held!(),
    " AS held), \
    account AS ( \
        UPDATE billing.accounts a SET held_micro_cents = a.held_micro_cents - e.held FROM ended e \
        WHERE a.org_id = e.org_id RETURNING e.project_id, e.held), \
    project_usage AS ( \
        UPDATE billing.project_usage u SET held_micro_cents = u.held_micro_cents - a.held FROM account a \
        WHERE u.project_id = a.project_id) \
    SELECT EXISTS (SELECT FROM ended) AS is_ended"
);

/// Locks the calls and then the accounts, each in the order of their ids, so that two reports cannot wait for each
/// other. The lock of a call also returns its present output.
pub(super) const PROGRESS: &str = concat!(
    "WITH previous AS ( \
        SELECT id, ",
    held!(),
    " AS held FROM billing.calls \
        WHERE id = ANY ($2) AND node_id = $1 AND ended_at IS NULL ORDER BY id FOR NO KEY UPDATE), \
    progress AS ( \
        UPDATE billing.calls c SET seen_at = greatest(c.seen_at, $4), \
            output_tokens = greatest(c.output_tokens, o.output_tokens) \
        FROM previous p JOIN unnest($2, $3) AS o (call_id, output_tokens) ON o.call_id = p.id WHERE c.id = p.id \
        RETURNING c.org_id, c.project_id, ",
    cost!("c.input_tokens", "greatest(c.output_tokens, c.expected_output_tokens)"),
    " - p.held AS held), \
    raised AS ( \
        SELECT org_id, project_id, sum(held)::bigint AS held FROM progress \
        GROUP BY org_id, project_id HAVING sum(held) > 0), \
    locked AS ( \
        SELECT org_id FROM billing.accounts WHERE org_id IN (SELECT org_id FROM raised) ORDER BY org_id \
        FOR NO KEY UPDATE), \
    account AS ( \
        UPDATE billing.accounts a SET held_micro_cents = a.held_micro_cents + r.held \
        FROM (SELECT r.org_id, sum(r.held)::bigint AS held FROM raised r JOIN locked l ON l.org_id = r.org_id \
            GROUP BY r.org_id) r \
        WHERE a.org_id = r.org_id RETURNING a.org_id) \
    UPDATE billing.project_usage u SET held_micro_cents = u.held_micro_cents + r.held \
    FROM raised r JOIN account a ON a.org_id = r.org_id WHERE u.project_id = r.project_id"
);

pub(super) const PURGE: &str = "\
    DELETE FROM billing.calls WHERE id IN (SELECT id FROM billing.calls WHERE ended_at < $1 ORDER BY ended_at LIMIT $2)";

pub(super) const USAGE: &str = concat!(
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
