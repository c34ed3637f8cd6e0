//! Rotation of the sealing keys: re-seals the values of a column with the first configured key, while the service runs.
//!
//! A rotation reads the table in batches, in the order of the row key, and re-seals outside any transaction. The update
//! skips locked rows, and rows whose value was replaced in the meantime. So a rotation never waits for a row that
//! another transaction has locked, and never overwrites a newer value. If a rotation is killed, the next one continues
//! its work, because it ignores rows that are already re-sealed.

use std::collections::BTreeSet;
use std::time::Duration;

use diesel::QueryableByName;
use diesel::pg::Pg;
use diesel::sql_types::{Array, BigInt, Binary, Nullable, Text};
use diesel_async::RunQueryDsl;
use kernel::audit::{Actor, Event};
use kernel::seal::{OpenError, SealError, Sealed};
use serde_json::json;

use super::SealedColumn;
use crate::{Connection, Error, Outcome, Result, Store};

/// The number of rows in a batch. A value can have 64 KiB, so these batches are smaller than those of other jobs.
const BATCH_SIZE: i64 = 200;

/// The number of times that a rotation returns to the rows that it skipped, and the pause before each time. Together,
/// the pauses take longer than any transaction of the service: Postgres ends a transaction after 10 seconds without a
/// statement.
const MAX_ROUNDS: u32 = 60;
const ROUND_INTERVAL: Duration = Duration::from_millis(200);

/// The number of values that a key has sealed.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub struct KeyCount {
    /// The id of the key.
    #[diesel(sql_type = Text)]
    pub key_id: String,
    /// The number of values.
    #[diesel(sql_type = BigInt)]
    pub values: i64,
}

/// A rotation of one column.
pub struct Rotation<'a> {
    store: &'a Store,
    column: SealedColumn,
    /// The id of the first key.
    key_id: String,
    /// The last row key that was read. The next batch begins after it.
    after: Option<Vec<String>>,
    round: u32,
    /// Whether this round has skipped a row.
    skipped: bool,
    /// The rows whose values cannot be opened.
    failed: BTreeSet<String>,
}

/// A batch of a rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotatedBatch {
    /// The number of rows that were read.
    pub rows: usize,
    /// The number of values that were re-sealed.
    pub resealed: usize,
    /// The values that cannot be opened. Each is listed once per rotation.
    pub failed: Vec<FailedValue>,
}

/// A value that cannot be opened, and therefore not be re-sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedValue {
    /// The row, as in the associated data.
    pub row: String,
    /// The reason.
    pub error: OpenError,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Array<Text>)]
    key: Vec<String>,
    #[diesel(sql_type = Nullable<Text>)]
    key_id: Option<String>,
    /// The sealed value. `None` if the first key sealed it.
    #[diesel(sql_type = Nullable<Binary>)]
    sealed: Option<Vec<u8>>,
}

/// A value to replace.
struct Replacement {
    key: Vec<String>,
    old: Vec<u8>,
    new: Vec<u8>,
}

impl Store {
    /// Counts the sealed values of a column by key, ordered by key id.
    ///
    /// # Errors
    /// Returns an error if Postgres fails.
    pub async fn count_sealed(&self, column: SealedColumn) -> Result<Vec<KeyCount>> {
        let count = format!(
            "SELECT key_id, count(*) AS values FROM {} WHERE key_id IS NOT NULL GROUP BY key_id ORDER BY key_id",
            column.table
        );
        self.snapshot(async |connection: &mut Connection| {
            // The count of a large table takes longer than a request may.
            diesel::sql_query("SET LOCAL statement_timeout = 0").execute(connection).await?;
            Ok(diesel::sql_query(count).load(connection).await?)
        })
        .await
    }

    /// Starts a rotation of a column. It changes nothing before [`Rotation::next_batch`].
    ///
    /// # Errors
    /// Returns [`Error::Inconsistent`] if no key is configured.
    pub fn rotate_sealed(&self, column: SealedColumn) -> Result<Rotation<'_>> {
        let key_id = self.keys().ids().next().ok_or_else(|| Error::inconsistent(SealError::NoKey))?.to_owned();
        Ok(Rotation { store: self, column, key_id, after: None, round: 1, skipped: false, failed: BTreeSet::new() })
    }
}

impl Rotation<'_> {
    /// Re-seals the next batch in one transaction, with an audit event if it changes a row. Returns `None` after the
    /// last batch. Some values can then still have another key: values that cannot be opened, and values that a process
    /// with another first key has sealed in the meantime ([`Store::count_sealed`]).
    ///
    /// # Errors
    /// Returns an error if Postgres fails. The next call repeats the batch.
    pub async fn next_batch(&mut self, actor: &Actor) -> Result<Option<RotatedBatch>> {
        let mut rows = self.read().await?;
        while rows.is_empty() {
            if !self.skipped || self.round == MAX_ROUNDS {
                return Ok(None);
            }
            (self.after, self.skipped, self.round) = (None, false, self.round + 1);
            tokio::time::sleep(ROUND_INTERVAL).await;
            rows = self.read().await?;
        }
        let (read, last) = (rows.len(), rows.last().map(|row| row.key.clone()));
        let (mut replacements, mut failed) = (Vec::new(), Vec::new());
        for Row { key, key_id, sealed } in rows {
            let (Some(key_id), Some(bytes)) = (key_id, sealed) else { continue };
            let (row, sealed) = (SealedColumn::row(&key), Sealed { key_id, bytes });
            match self.store.keys().open(self.column.associated_data(&row), &sealed) {
                Ok(plaintext) => {
                    let new = self.store.seal(self.column.associated_data(&row), &plaintext)?.bytes;
                    replacements.push(Replacement { key, old: sealed.bytes, new });
                }
                Err(error) => failed.push(FailedValue { row, error }),
            }
        }
        let candidates = replacements.len();
        let resealed = if candidates == 0 { 0 } else { self.write(actor, replacements).await? };
        self.skipped |= resealed < candidates;
        self.after = last;
        failed.retain(|value| self.failed.insert(value.row.clone()));
        Ok(Some(RotatedBatch { rows: read, resealed, failed }))
    }

    /// Reads the next rows. It also returns rows that need no re-sealing, so that each statement reads a limited number
    /// of rows.
    async fn read(&self) -> Result<Vec<Row>> {
        let SealedColumn { table, column, .. } = self.column;
        let (key, texts) = (self.key_columns(""), self.list(|_, (name, _)| format!("{name}::text")));
        let after = self.after.as_ref().map_or_else(String::new, |_| {
            let bounds = self.list(|at, (_, sql_type)| format!("($2::text[])[{at}]::{sql_type}"));
            format!("WHERE ({key}) > ({bounds})")
        });
        let select = format!(
            "SELECT ARRAY[{texts}] AS key, key_id, CASE WHEN key_id <> $1 THEN {column} END AS sealed \
             FROM {table} {after} ORDER BY {key} LIMIT {BATCH_SIZE}"
        );
        let mut select = diesel::sql_query(select).into_boxed::<Pg>().bind::<Text, _>(&self.key_id);
        if let Some(after) = &self.after {
            select = select.bind::<Array<Text>, _>(after);
        }
        Ok(select.load(&mut *self.store.connection().await?).await?)
    }

    /// Replaces the values that are neither locked nor changed, and returns their number.
    async fn write(&self, actor: &Actor, replacements: Vec<Replacement>) -> Result<usize> {
        let SealedColumn { table, column, row_key } = self.column;
        let (key, free_key, row_columns, value_key) =
            (self.key_columns(""), self.key_columns("free."), self.key_columns("t."), self.key_columns("value."));
        let arrays = self.list(|at, (_, sql_type)| format!("${}::text[]::{sql_type}[]", at + 3));
        let update = format!(
            "WITH free AS MATERIALIZED (\
                 SELECT {row_columns}, new_value FROM unnest({arrays}, $2, $3) AS value ({key}, old_value, new_value) \
                 JOIN {table} AS t ON ({row_columns}) = ({value_key}) AND t.{column} = old_value \
                 FOR UPDATE OF t SKIP LOCKED) \
             UPDATE {table} AS t SET {column} = new_value, key_id = $1 FROM free WHERE ({row_columns}) = ({free_key})"
        );
        let mut keys = vec![Vec::new(); row_key.len()];
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for replacement in replacements {
            keys.iter_mut().zip(replacement.key).for_each(|(column, value)| column.push(value));
            old.push(replacement.old);
            new.push(replacement.new);
        }
        let mut update = diesel::sql_query(update)
            .into_boxed::<Pg>()
            .bind::<Text, _>(&self.key_id)
            .bind::<Array<Binary>, _>(old)
            .bind::<Array<Binary>, _>(new);
        for column in keys {
            update = update.bind::<Array<Text>, _>(column);
        }
        let work = async move |tx: &mut Connection| {
            let resealed = update.execute(tx).await?;
            if resealed == 0 {
                return Ok::<_, Error>(Outcome::Unchanged(0));
            }
            let data = json!({ "key": self.key_id, "values": resealed });
            let event = Event::of_platform("seal.rotate", self.column, data);
            Ok(Outcome::Changed(resealed, event))
        };
        self.store.transaction(actor, work).await
    }

    /// Returns the columns of the row key with a prefix, separated by commas.
    fn key_columns(&self, prefix: &str) -> String {
        self.list(|_, (name, _)| format!("{prefix}{name}"))
    }

    /// Formats each column of the row key from its position, name and type, and joins the results with commas.
    fn list(&self, form: impl Fn(usize, (&str, &str)) -> String) -> String {
        let columns = self.column.row_key.iter().enumerate();
        columns.map(|(at, column)| form(at + 1, *column)).collect::<Vec<_>>().join(", ")
    }
}
