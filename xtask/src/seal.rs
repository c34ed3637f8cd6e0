//! `seal`: counts the sealed values by key, and re-seals them with the first key. Like `migrate`, it is also for
//! operators.

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Subcommand;
use kernel::audit::Actor;
use kernel::seal::Keys;
use store::{SealedColumn, Store};

use crate::output::{note, out};
use crate::setting::DatabaseArgs;

pub type Args = DatabaseArgs<Command>;

#[derive(Subcommand)]
pub enum Command {
    /// Count the values of each column by key
    Status,
    /// Re-seal all values with the first key of SVC_SEALING_KEYS, while the service runs
    Rotate,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let keys = args.database.keys()?;
    let store = args.database.store_with(keys.clone()).await?;
    match args.command {
        Command::Status => status(&store, &keys).await?,
        Command::Rotate => rotate(&store, &keys).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the sealed columns of all contexts.
fn columns() -> impl Iterator<Item = SealedColumn> {
    let contexts = [
        store::SEALED_COLUMNS,
        resources::SEALED_COLUMNS,
        databases::SEALED_COLUMNS,
        oauth::SEALED_COLUMNS,
        git::SEALED_COLUMNS,
        domains::SEALED_COLUMNS,
        certificates::SEALED_COLUMNS,
    ];
    contexts.into_iter().flatten().copied()
}

async fn status(store: &Store, keys: &Keys) -> Result<()> {
    for column in columns() {
        let counts = store.count_sealed(column).await?;
        if counts.is_empty() {
            out!("{column}  no values")?;
        }
        for count in counts {
            let state = match keys.ids().position(|id| id == count.key_id) {
                Some(0) => "first key",
                Some(_) => "to be rotated",
                None => "NOT CONFIGURED",
            };
            out!("{column}  {}  values: {}  {state}", count.key_id, count.values)?;
        }
    }
    Ok(())
}

async fn rotate(store: &Store, keys: &Keys) -> Result<()> {
    let actor = Actor::operator("xtask seal rotate");
    let first = keys.ids().next().context("no keys")?;
    let mut left = 0;
    for column in columns() {
        let (mut rotation, mut rows, mut resealed) = (store.rotate_sealed(column)?, 0, 0);
        while let Some(batch) = rotation.next_batch(&actor).await? {
            for value in &batch.failed {
                note!("{column}, row {}: {}", value.row, value.error)?;
            }
            (rows, resealed) = (rows + batch.rows, resealed + batch.resealed);
            out!("{column}  rows read: {rows}  re-sealed: {resealed}")?;
        }
        let counts = store.count_sealed(column).await?;
        left += counts.iter().filter(|count| count.key_id != first).map(|count| count.values).sum::<i64>();
    }
    ensure!(
        left == 0,
        "{left} values are not sealed with the key {first}: resolve the errors above, and check that {first} is the first \
         key of every server; then rotate again"
    );
    out!("all values are sealed with the key {first}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use testkit::TestDatabase;

    use super::*;

    /// The names and types of the columns of a table.
    const COLUMNS: &str = "SELECT column_name AS name, data_type AS type FROM information_schema.columns \
        WHERE table_schema || '.' || table_name = ";

    /// The columns of each unique index of a table, in their order.
    const UNIQUE_INDEXES: &str = "SELECT array_agg(a.attname ORDER BY k.position) AS columns \
        FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k (number, position), pg_attribute a \
        WHERE i.indisunique AND a.attrelid = i.indrelid AND a.attnum = k.number AND i.indrelid::regclass = ";

    #[tokio::test]
    async fn every_table_with_key_ids_is_declared() {
        let database = TestDatabase::create().await;
        let tables = "SELECT table_schema || '.' || table_name AS name, column_name AS column \
            FROM information_schema.columns WHERE column_name LIKE '%key\\_id' AND data_type = 'text'";
        let found = database.rows(tables).await;
        assert!(found.iter().all(|row| row["column"] == "key_id"), "{found:?}");
        let found: BTreeSet<&str> = found.iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(found, columns().map(|column| column.table).collect());
    }

    #[tokio::test]
    async fn declared_columns_exist_and_an_index_orders_the_rows() {
        let database = TestDatabase::create().await;
        for SealedColumn { table, column, row_key } in columns() {
            let existing = database.rows(&format!("{COLUMNS}'{table}'")).await;
            for (name, sql_type) in row_key.iter().chain(&[(column, "bytea")]) {
                let exists = existing.iter().any(|row| row["name"] == *name && row["type"] == *sql_type);
                assert!(exists, "{table} has no column {name} of type {sql_type}: {existing:?}");
            }
            let names: Vec<_> = row_key.iter().map(|(name, _)| *name).collect();
            let indexes = database.rows(&format!("{UNIQUE_INDEXES}'{table}'::regclass GROUP BY i.indexrelid")).await;
            let is_ordered = indexes.iter().any(|index| {
                let columns: Vec<&str> =
                    index["columns"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
                names.starts_with(&columns)
            });
            assert!(is_ordered, "no unique index of {table} begins with {names:?}: {indexes:?}");
        }
    }
}
