//! Runs `invariants.sql`: each statement returns the violations of one invariant.

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::check::Database;

/// A statement that returns one row per violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invariant {
    /// A description of the violation.
    pub description: String,
    sql: String,
}

const INVARIANTS_SQL: &str = include_str!("invariants.sql");

/// Returns the SQL that a session must run before any of the statements.
#[must_use]
pub fn setup_sql() -> &'static str {
    INVARIANTS_SQL.split("\n\n").find(|paragraph| paragraph.contains("CREATE FUNCTION")).unwrap_or_default()
}

/// Parses the file: each paragraph is a comment that describes a violation, and a statement.
#[must_use]
pub fn invariants() -> Vec<Invariant> {
    let paragraphs = INVARIANTS_SQL.split("\n\n").filter(|paragraph| *paragraph != setup_sql());
    let read = |paragraph: &str| {
        let is_comment = |line: &&str| line.starts_with("--");
        let (comment, sql): (Vec<&str>, Vec<&str>) = paragraph.lines().partition(is_comment);
        let description = comment.iter().map(|line| line.trim_start_matches('-').trim()).collect::<Vec<_>>().join(" ");
        Invariant { description, sql: sql.join("\n") }
    };
    paragraphs.map(read).filter(|invariant| !invariant.sql.trim().is_empty()).collect()
}

/// Returns the violations in the database at this URL, each as `description: row`. `keys` are the ids of the valid
/// sealing keys.
///
/// # Errors
/// Returns an error if Postgres is unavailable or rejects a statement.
pub async fn violations(database: &str, keys: &[&str]) -> Result<Vec<String>> {
    let database = Database::connect(database).await?;
    database.client.batch_execute(&format!("SET svc.sealing_keys = '{}'", keys.join(","))).await?;
    let mut violations = Vec::new();
    for Invariant { description, sql } in invariants() {
        let rows = database.rows(&format!("{} LIMIT 20", sql.trim().trim_end_matches(';'))).await;
        let rows = rows.with_context(|| description.clone())?;
        violations.extend(rows.iter().map(|row| format!("{description}: {row}")));
    }
    Ok(violations)
}

/// Runs a statement and returns each row as a JSON object.
///
/// # Errors
/// Returns an error if Postgres is unavailable or rejects the statement.
pub async fn rows(database: &str, statement: &str) -> Result<Vec<Value>> {
    Database::connect(database).await?.rows(statement).await
}
