//! pgbench and its scripts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use diesel_async::SimpleAsyncConnection as _;
use kernel::Secret;
use store::migrations;
use tokio::process::Command;

use super::Environment;
use super::recorder::Statement;
use crate::bench::run::{Run, percentiles};

/// Creates a function that returns a unique, ascending id for each audit row, like the server's UUIDv7.
const CREATE_ID_FUNCTION: &str = "\
    CREATE SEQUENCE bench_ids; \
    CREATE FUNCTION bench_id() RETURNS uuid LANGUAGE sql AS \
    $$ SELECT ('01f00000-0000-7000-8000-' || lpad(to_hex(nextval('bench_ids')), 12, '0'))::uuid $$";

pub struct PgBench<'a> {
    program: PathBuf,
    url: &'a str,
    /// The folder for the transaction logs of pgbench.
    folder: &'a Path,
}

/// A pgbench script and the values of its variables.
pub struct Script {
    path: PathBuf,
    values: Vec<String>,
}

impl Script {
    /// Writes a script without values of variables.
    pub fn plain(path: &Path, text: &str) -> Result<Self> {
        fs::write(path, text)?;
        Ok(Self { path: path.to_owned(), values: Vec::new() })
    }

    /// Writes recorded statements as a pgbench script with the same parameters. Null parameters must be text. The ids
    /// of audit rows are replaced by unique ones.
    pub fn write(path: &Path, statements: &[Statement]) -> Result<Self> {
        let (mut text, mut values) = (String::new(), Vec::new());
        for (number, statement) in statements.iter().enumerate() {
            // The id of the audit row follows the four parameters of the caller's check.
            let audits = statement.text.contains("INSERT INTO store.audit (id,");
            // In descending order, so that the replacement of $1 does not match $10.
            let line =
                statement.parameters.iter().enumerate().rev().fold(statement.text.clone(), |line, (at, value)| {
                    let with = match value {
                        _ if audits && at == 4 => "bench_id()".to_owned(),
                        None if audits || statement.text.starts_with("INSERT") => "NULL".to_owned(),
                        // The planner must not know that the value is null: it would skip the index lookup, which the
                        // server's statement performs.
                        None => {
                            values.push(format!("s{number}p{at}=null"));
                            format!("NULLIF(:s{number}p{at}, 'null'::text)")
                        }
                        Some(value) => {
                            values.push(format!("s{number}p{at}={value}"));
                            format!(":s{number}p{at}")
                        }
                    };
                    line.replace(&format!("${}", at + 1), &with)
                });
            text.push_str(&line);
            text.push_str(";\n");
        }
        fs::write(path, text)?;
        Ok(Self { path: path.to_owned(), values })
    }
}

impl<'a> PgBench<'a> {
    pub async fn prepare(lab: &'a Environment<'_>, url: &'a str) -> Result<Self> {
        let program = lab.bin.join("pgbench");
        ensure!(
            program.is_file(),
            "this Postgres installation has no pgbench (Debian: apt-get install postgresql-contrib)"
        );
        migrations::connect(Secret::new(url.to_owned())).await?.batch_execute(CREATE_ID_FUNCTION).await?;
        Ok(Self::new(program, url, lab.folder))
    }

    pub const fn new(program: PathBuf, url: &'a str, folder: &'a Path) -> Self {
        Self { program, url, folder }
    }

    /// Runs a script with prepared statements on this number of connections.
    pub async fn run(&self, script: &Script, connections: u32, seconds: u32) -> Result<Run> {
        self.run_with("prepared", script, connections, seconds).await
    }

    /// Runs a script with this protocol for queries (pgbench's option `--protocol`).
    pub async fn run_with(&self, protocol: &str, script: &Script, connections: u32, seconds: u32) -> Result<Run> {
        let name = script.path.file_stem().unwrap_or_default().to_string_lossy();
        let log = self.folder.join(format!("{name}.latencies"));
        let mut pgbench = Command::new(&self.program);
        pgbench.args(["-n", "-M", protocol, "-T", &seconds.to_string(), "-c", &connections.to_string()]);
        pgbench.args(["-j", &connections.min(2).to_string(), "-l", "--sampling-rate=0.1"]);
        pgbench.arg(format!("--log-prefix={}", log.display())).arg("-f").arg(&script.path);
        pgbench.args(script.values.iter().flat_map(|value| ["-D", value]));
        let output = pgbench.arg(self.url).stdin(Stdio::null()).kill_on_drop(true).output().await?;
        let printed = String::from_utf8(output.stdout)?;
        ensure!(output.status.success(), "pgbench: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        let after = |label: &str| printed.lines().find_map(|line| line.trim().strip_prefix(label));
        let rate = after("tps = ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        let failed = after("number of failed transactions: ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        let [p50, p99] = percentiles(self.read_latencies(&name)?, [50, 99]);
        Ok(Run {
            rate: rate.with_context(|| format!("unexpected pgbench output:\n{printed}"))?,
            p50,
            p99,
            errors: failed.unwrap_or_default(),
        })
    }

    /// Reads the transaction latencies of one run in milliseconds. pgbench writes one log file per thread.
    fn read_latencies(&self, name: &str) -> Result<Vec<f64>> {
        let mut latencies = Vec::new();
        for file in fs::read_dir(self.folder)? {
            let path = file?.path();
            if path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&format!("{name}.latencies."))) {
                let lines = fs::read_to_string(&path)?;
                let micros = lines.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<f64>().ok());
                latencies.extend(micros.map(|micros| micros / 1000.0));
                fs::remove_file(path)?;
            }
        }
        Ok(latencies)
    }
}
