//! The AI credit of organizations.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{OrgId, Time};
use store::{Connection, Prepared, Result};

use crate::model::{LedgerKind, LedgerRow};
use crate::schema::{accounts, ledger};

/// AI credit on a [`store::Connection`].
pub trait AccountRepository {
    /// Returns whether an order was credited. The result is reliable while the organization is locked.
    async fn ledger_has_order(&mut self, order_id: &str) -> Result<bool>;

    /// Adds the amount of a paid order to the balance, and inserts the order's row of the ledger.
    async fn account_credit(&mut self, org: OrgId, order_id: &str, micro_cents: i64, at: Time) -> Result<()>;

    /// Adds the amount of a correction to the balance, and inserts its row of the ledger. Returns the new balance.
    async fn account_adjust(&mut self, org: OrgId, micro_cents: i64, at: Time) -> Result<i64>;

    /// Returns the balance in microcents. It is 0 for an organization without an account.
    async fn account_balance(&mut self, org: OrgId) -> Result<i64>;

    /// Returns at most `limit` rows of an organization's ledger whose id is less than `before`, newest first.
    async fn ledger_list(&mut self, org: OrgId, limit: i64, before: Option<i64>) -> Result<Vec<LedgerRow>>;
}

/// The time of the next row of the ledger: `$now`, or the time of the last row if that is at most a minute later, because
/// the clocks of two processes differ. If the last row is later than that, the clock was set back. A row with that time
/// would count as spend of 24 hours for too long.
macro_rules! ledger_time {
    ($now:literal) => {
        concat!(
            "CASE WHEN a.last_ledger_at - interval '1 minute' <= ",
            $now,
            " THEN greatest(a.last_ledger_at, ",
            $now,
            ") ELSE ",
            $now,
            " END"
        )
    };
}
pub(super) use ledger_time;

/// Adds `$2` to the balance of an account at a time. The update of the account locks the account until the transaction
/// ends. So the ids, times and running balances of the ledger increase in the same order.
macro_rules! change_account {
    ($now:literal) => {
        concat!(
            "WITH account AS ( \
                INSERT INTO billing.accounts AS a (org_id, balance_micro_cents, last_ledger_id, last_ledger_at) \
                VALUES ($1, $2, 1, ",
            $now,
            ") \
                ON CONFLICT (org_id) DO UPDATE SET \
                    balance_micro_cents = a.balance_micro_cents + excluded.balance_micro_cents, \
                    last_ledger_id = a.last_ledger_id + 1, last_ledger_at = ",
            ledger_time!($now),
            " RETURNING *) "
        )
    };
}

const CREDIT: &str = concat!(
    change_account!("$4"),
    "INSERT INTO billing.ledger (org_id, ledger_id, kind, amount_micro_cents, balance_micro_cents, order_id, created_at) \
    SELECT org_id, last_ledger_id, 'topup', $2, balance_micro_cents, $3, last_ledger_at FROM account"
);

const ADJUST: &str = concat!(
    change_account!("$3"),
    "INSERT INTO billing.ledger (org_id, ledger_id, kind, amount_micro_cents, balance_micro_cents, created_at) \
    SELECT org_id, last_ledger_id, 'adjust', $2, balance_micro_cents, last_ledger_at FROM account \
    RETURNING balance_micro_cents AS balance"
);

#[derive(QueryableByName)]
struct BalanceRow {
    #[diesel(sql_type = BigInt)]
    balance: i64,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = ledger)]
struct LedgerRecord {
    ledger_id: i64,
    kind: LedgerKind,
    amount_micro_cents: i64,
    balance_micro_cents: i64,
    project: Option<String>,
    model: Option<String>,
    input_tokens: Option<i64>,
    output_tokens: Option<i64>,
    estimated: bool,
    created_at: Time,
}

impl From<LedgerRecord> for LedgerRow {
    fn from(record: LedgerRecord) -> Self {
        let LedgerRecord { ledger_id, kind, amount_micro_cents, balance_micro_cents, project, model, .. } = record;
        let LedgerRecord { input_tokens, output_tokens, estimated, created_at, .. } = record;
        Self {
            ledger_id,
            kind,
            amount_micro_cents,
            balance_micro_cents,
            project,
            model,
            input_tokens,
            output_tokens,
            estimated,
            created_at,
        }
    }
}

impl AccountRepository for Connection {
    async fn ledger_has_order(&mut self, order_id: &str) -> Result<bool> {
        let found = ledger::table.filter(ledger::order_id.eq(order_id)).select(ledger::ledger_id);
        Ok(found.first::<i64>(self).await.optional()?.is_some())
    }

    async fn account_credit(&mut self, org: OrgId, order_id: &str, micro_cents: i64, at: Time) -> Result<()> {
        let credit = diesel::sql_query(CREDIT)
            .bind::<Uuid, _>(org)
            .bind::<BigInt, _>(micro_cents)
            .bind::<Text, _>(order_id)
            .bind::<Timestamptz, _>(at);
        Prepared(credit).execute(self).await?;
        Ok(())
    }

    async fn account_adjust(&mut self, org: OrgId, micro_cents: i64, at: Time) -> Result<i64> {
        let adjust =
            diesel::sql_query(ADJUST).bind::<Uuid, _>(org).bind::<BigInt, _>(micro_cents).bind::<Timestamptz, _>(at);
        let BalanceRow { balance } = adjust.get_result(self).await?;
        Ok(balance)
    }

    async fn account_balance(&mut self, org: OrgId) -> Result<i64> {
        let balance = accounts::table.find(org).select(accounts::balance_micro_cents).first(self).await.optional()?;
        Ok(balance.unwrap_or_default())
    }

    async fn ledger_list(&mut self, org: OrgId, limit: i64, before: Option<i64>) -> Result<Vec<LedgerRow>> {
        let rows: Vec<LedgerRecord> = ledger::table
            .filter(ledger::org_id.eq(org).and(ledger::ledger_id.lt(before.unwrap_or(i64::MAX))))
            .order(ledger::ledger_id.desc())
            .limit(limit)
            .select(LedgerRecord::as_select())
            .load(self)
            .await?;
        Ok(rows.into_iter().map(LedgerRow::from).collect())
    }
}
