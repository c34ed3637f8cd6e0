//! The statements of a request, as Postgres saw them: what is measured beside the server is what the server does, not what
//! somebody once took down.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use diesel_async::SimpleAsyncConnection as _;
use kernel::Secret;
use store::migrations;
use tokio::time::sleep;

/// A statement and what is bound to it; none: null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    pub text: String,
    pub bound: Vec<Option<String>>,
}

/// Reads them in the log of a Postgres.
pub struct Recorder<'a> {
    pub log: &'a Path,
    /// Of a database of it.
    pub url: &'a str,
}

/// How soon every session knows of a changed setting, and the log holds what was done.
const SOON: Duration = Duration::from_millis(300);

impl Recorder<'_> {
    /// What `request` has Postgres do, once it has the same done twice running: what is done now and then, such as noting
    /// that a credential is in use, is not part of it.
    pub async fn record(&self, request: impl AsyncFn() -> Result<()>) -> Result<Vec<Statement>> {
        self.logged("all").await?;
        let mut before: Option<Vec<Statement>> = None;
        for _ in 0..10 {
            let from = File::open(self.log)?.metadata()?.len();
            request().await?;
            sleep(SOON).await;
            let statements = read(&self.after(from)?)?;
            let texts = |statements: &[Statement]| statements.iter().map(|it| it.text.clone()).collect::<Vec<_>>();
            if before.is_some_and(|before| texts(&before) == texts(&statements)) {
                self.logged("none").await?;
                return Ok(statements);
            }
            before = Some(statements);
        }
        bail!("one request is not like the other: {before:?}")
    }

    /// Has statements logged, or not.
    async fn logged(&self, which: &str) -> Result<()> {
        let mut connection = migrations::connect(Secret::new(self.url.to_owned())).await?;
        connection.batch_execute(&format!("ALTER SYSTEM SET log_statement = '{which}'")).await?;
        connection.batch_execute("SELECT pg_reload_conf()").await?;
        sleep(SOON).await;
        Ok(())
    }

    fn after(&self, from: u64) -> Result<String> {
        let mut log = File::open(self.log)?;
        log.seek(SeekFrom::Start(from))?;
        let mut text = String::new();
        log.read_to_string(&mut text)?;
        Ok(text)
    }
}

/// The statements in a piece of the log. A line that begins with a tab goes on with the one before.
fn read(log: &str) -> Result<Vec<Statement>> {
    let mut statements: Vec<Statement> = Vec::new();
    for line in log.replace("\n\t", " ").lines() {
        if let Some((_, text)) = line.split_once("] LOG:  statement: ") {
            statements.push(Statement { text: text.to_owned(), bound: Vec::new() });
        } else if let Some((_, prepared)) = line.split_once("] LOG:  execute ") {
            let (_, text) = prepared.split_once(": ").context("a statement without a text")?;
            statements.push(Statement { text: text.to_owned(), bound: Vec::new() });
        } else if let Some((_, list)) = line.split_once("] DETAIL:  parameters: ") {
            statements.last_mut().context("parameters of nothing")?.bound = bound(list)?;
        }
    }
    Ok(statements)
}

/// `$1 = 'it''s', $2 = NULL`.
fn bound(mut list: &str) -> Result<Vec<Option<String>>> {
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
    fn what_postgres_logs_is_read() {
        let log = "2026-11-22 06:49:28.1 UTC [7] LOG:  statement: BEGIN\n\
             2026-11-22 06:49:28.2 UTC [7] LOG:  execute s3: SELECT $1,\n\t$2, $3\n\
             2026-11-22 06:49:28.2 UTC [7] DETAIL:  parameters: $1 = 'it''s, $2 = ''', $2 = NULL, $3 = ''\n";
        let bound = vec![Some("it's, $2 = '".to_owned()), None, Some(String::new())];
        let expected = [
            Statement { text: "BEGIN".to_owned(), bound: Vec::new() },
            Statement { text: "SELECT $1, $2, $3".to_owned(), bound },
        ];
        assert_eq!(read(log).unwrap(), expected);
    }
}
