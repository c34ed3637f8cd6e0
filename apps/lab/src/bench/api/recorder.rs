//! Records the statements of a request from the Postgres log, so that pgbench runs exactly the statements of the
//! current server.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use diesel_async::SimpleAsyncConnection as _;
use kernel::Secret;
use store::migrations;
use tokio::time::sleep;

/// A statement and its parameters; `None` is null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    pub text: String,
    pub parameters: Vec<Option<String>>,
}

/// Reads the Postgres log.
pub struct Recorder<'a> {
    pub log: &'a Path,
    /// The URL of a database in the same cluster.
    pub url: &'a str,
}

/// The delay until all sessions apply a changed setting.
const RELOAD_DELAY: Duration = Duration::from_millis(300);

impl Recorder<'_> {
    /// Returns the statements of `request` as soon as two consecutive requests run the same ones. This excludes
    /// occasional statements, such as the update of a credential's `last_used_at`.
    pub async fn record(&self, request: impl AsyncFn() -> Result<()>) -> Result<Vec<Statement>> {
        self.set_log_statement("all").await?;
        let mut before: Option<Vec<Statement>> = None;
        for _ in 0..10 {
            // Takes permits of the caller's rate limit, so that the recorded request needs no statement for them.
            request().await?;
            let from = File::open(self.log)?.metadata()?.len();
            request().await?;
            // Postgres logs a statement before it runs. Later, statements of background jobs may follow.
            let statements = parse_log(&self.read_log_from(from)?)?;
            let texts = |statements: &[Statement]| statements.iter().map(|it| it.text.clone()).collect::<Vec<_>>();
            if before.is_some_and(|before| texts(&before) == texts(&statements)) {
                self.set_log_statement("none").await?;
                return Ok(statements);
            }
            before = Some(statements);
        }
        bail!("the statements differ from request to request: {before:?}")
    }

    /// Sets `log_statement` for all sessions.
    async fn set_log_statement(&self, which: &str) -> Result<()> {
        let mut connection = migrations::connect(Secret::new(self.url.to_owned())).await?;
        connection.batch_execute(&format!("ALTER SYSTEM SET log_statement = '{which}'")).await?;
        connection.batch_execute("SELECT pg_reload_conf()").await?;
        sleep(RELOAD_DELAY).await;
        Ok(())
    }

    fn read_log_from(&self, from: u64) -> Result<String> {
        let mut log = File::open(self.log)?;
        log.seek(SeekFrom::Start(from))?;
        let mut text = String::new();
        log.read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Parses the statements in a part of the log. A line that starts with a tab continues the previous line.
fn parse_log(log: &str) -> Result<Vec<Statement>> {
    let mut statements: Vec<Statement> = Vec::new();
    for line in log.replace("\n\t", " ").lines() {
        if let Some((_, text)) = line.split_once("] LOG:  statement: ") {
            statements.push(Statement { text: text.to_owned(), parameters: Vec::new() });
        } else if let Some((_, prepared)) = line.split_once("] LOG:  execute ") {
            let (_, text) = prepared.split_once(": ").context("a statement without a text")?;
            statements.push(Statement { text: text.to_owned(), parameters: Vec::new() });
        } else if let Some((_, list)) = line.split_once("] DETAIL:  parameters: ") {
            statements.last_mut().context("parameters without a statement")?.parameters = parse_parameters(list)?;
        }
    }
    Ok(statements)
}

/// Parses a parameter list such as `$1 = 'it''s', $2 = NULL`.
fn parse_parameters(mut list: &str) -> Result<Vec<Option<String>>> {
    let mut values = Vec::new();
    while let Some((_, value)) = list.split_once(" = ") {
        if let Some(rest) = value.strip_prefix("NULL") {
            values.push(None);
            list = rest;
        } else {
            let quoted = value.strip_prefix('\'').context("a value without quotes")?;
            let mut end = 0;
            loop {
                end += quoted.get(end..).and_then(|rest| rest.find('\'')).context("a value without an end")?;
                if !quoted.get(end + 1..).is_some_and(|rest| rest.starts_with('\'')) {
                    break;
                }
                end += 2;
            }
            values.push(quoted.get(..end).map(|value| value.replace("''", "'")));
            list = quoted.get(end + 1..).unwrap_or_default();
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_parsed_into_statements() {
        let log = "2026-11-22 06:49:28.1 UTC [7] LOG:  statement: BEGIN\n\
             2026-11-22 06:49:28.2 UTC [7] LOG:  execute s3: SELECT $1,\n\t$2, $3\n\
             2026-11-22 06:49:28.2 UTC [7] DETAIL:  parameters: $1 = 'it''s, $2 = ''', $2 = NULL, $3 = ''\n";
        let bound = vec![Some("it's, $2 = '".to_owned()), None, Some(String::new())];
        let expected = [
            Statement { text: "BEGIN".to_owned(), parameters: Vec::new() },
            Statement { text: "SELECT $1, $2, $3".to_owned(), parameters: bound },
        ];
        assert_eq!(parse_log(log).unwrap(), expected);
    }
}
