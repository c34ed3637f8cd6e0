//! What must hold whatever happened: `invariants.sql`, whose statements find what is wrong.

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::check::Database;

/// A statement whose every row is something wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invariant {
    /// What each row is.
    pub fault: String,
    sql: String,
}

const FILE: &str = include_str!("invariants.sql");

/// What the statements need in the session that runs them.
#[must_use]
pub fn preparation() -> &'static str {
    FILE.split("\n\n").find(|paragraph| paragraph.contains("CREATE FUNCTION")).unwrap_or_default()
}

/// All of them: paragraphs of a comment, which names the fault, and a statement.
#[must_use]
pub fn invariants() -> Vec<Invariant> {
    let paragraphs = FILE.split("\n\n").filter(|paragraph| *paragraph != preparation());
    let read = |paragraph: &str| {
        let is_comment = |line: &&str| line.starts_with("--");
        let (comment, sql): (Vec<&str>, Vec<&str>) = paragraph.lines().partition(is_comment);
        let fault = comment.iter().map(|line| line.trim_start_matches('-').trim()).collect::<Vec<_>>().join(" ");
        Invariant { fault, sql: sql.join("\n") }
    };
    paragraphs.map(read).filter(|invariant| !invariant.sql.trim().is_empty()).collect()
}

/// What is wrong in the database at this address, each as `fault: row`. `keys` are the ids of the keys that values may be
/// sealed with.
///
/// # Errors
/// Postgres is away, or refuses a statement.
pub async fn broken(database: &str, keys: &[&str]) -> Result<Vec<String>> {
    let database = Database::connect(database).await?;
    database.client.batch_execute(&format!("SET svc.sealing_keys = '{}'", keys.join(","))).await?;
    let mut broken = Vec::new();
    for Invariant { fault, sql } in invariants() {
        let rows = database.rows(&format!("{} LIMIT 20", sql.trim().trim_end_matches(';'))).await;
        broken.extend(rows.with_context(|| fault.clone())?.iter().map(|row| format!("{fault}: {row}")));
    }
    Ok(broken)
}

/// The rows of a statement, each as one JSON object.
///
/// # Errors
/// Postgres is away, or refuses the statement.
pub async fn rows(database: &str, statement: &str) -> Result<Vec<Value>> {
    Database::connect(database).await?.rows(statement).await
}
