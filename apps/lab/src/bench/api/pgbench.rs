//! pgbench, and the scripts it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use diesel_async::SimpleAsyncConnection as _;
use kernel::Secret;
use store::migrations;
use tokio::process::Command;

use super::Lab;
use super::recorded::Statement;
use crate::bench::run::{Run, quantile};

/// An id of its own for every audit row, in the order of time as the server's are.
const NEXT_ID: &str = "\
    CREATE SEQUENCE bench_ids; \
    CREATE FUNCTION bench_id() RETURNS uuid LANGUAGE sql AS \
    $$ SELECT ('01f00000-0000-7000-8000-' || lpad(to_hex(nextval('bench_ids')), 12, '0'))::uuid $$";

pub struct PgBench<'a> {
    program: PathBuf,
    url: &'a str,
    /// Where it writes how long each transaction took.
    folder: &'a Path,
}

/// Statements for pgbench, and the values of their variables.
pub struct Script {
    path: PathBuf,
    values: Vec<String>,
}

impl Script {
    /// Writes statements for pgbench: what was bound is bound again (null only where it is a text), but for the ids of audit rows, of which no two may be
    /// the same.
    pub fn write(path: &Path, statements: &[Statement]) -> Result<Self> {
        let (mut text, mut values) = (String::new(), Vec::new());
        for (number, statement) in statements.iter().enumerate() {
            let audits = statement.text.starts_with("INSERT INTO \"store\".\"audit\" (\"id\",");
            // From the last on, so that $1 is not found in $10.
            let line = statement.bound.iter().enumerate().rev().fold(statement.text.clone(), |line, (at, value)| {
                let with = match value {
                    _ if audits && at == 0 => "bench_id()".to_owned(),
                    None if statement.text.starts_with("INSERT") => "NULL".to_owned(),
                    // Known as null no sooner than it is for the server: what is compared with it would not be looked up.
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
    pub async fn prepare(lab: &'a Lab<'_>, url: &'a str) -> Result<Self> {
        let program = lab.bin.join("pgbench");
        ensure!(program.is_file(), "this Postgres comes without pgbench (Debian: apt-get install postgresql-contrib)");
        migrations::connect(Secret::new(url.to_owned())).await?.batch_execute(NEXT_ID).await?;
        Ok(Self { program, url, folder: lab.folder })
    }

    /// Runs a script on so many connections.
    pub async fn run(&self, script: &Script, connections: u32, seconds: u32) -> Result<Run> {
        let name = script.path.file_stem().unwrap_or_default().to_string_lossy();
        let log = self.folder.join(format!("{name}.took"));
        let mut pgbench = Command::new(&self.program);
        pgbench.args(["-n", "-M", "prepared", "-T", &seconds.to_string(), "-c", &connections.to_string()]);
        pgbench.args(["-j", &connections.min(2).to_string(), "-l", "--sampling-rate=0.1"]);
        pgbench.arg(format!("--log-prefix={}", log.display())).arg("-f").arg(&script.path);
        pgbench.args(script.values.iter().flat_map(|value| ["-D", value]));
        let output = pgbench.arg(self.url).stdin(Stdio::null()).kill_on_drop(true).output().await?;
        let printed = String::from_utf8(output.stdout)?;
        ensure!(output.status.success(), "pgbench: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        let after = |label: &str| printed.lines().find_map(|line| line.trim().strip_prefix(label));
        let rate = after("tps = ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        let failed = after("number of failed transactions: ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        let mut took = self.took(&name)?;
        took.sort_by(f64::total_cmp);
        Ok(Run {
            rate: rate.with_context(|| format!("pgbench printed what is not understood:\n{printed}"))?,
            p50: quantile(&took, 50),
            p99: quantile(&took, 99),
            errors: failed.unwrap_or_default(),
        })
    }

    /// Milliseconds of the transactions that one run logged, each of its threads in a file of its own.
    fn took(&self, name: &str) -> Result<Vec<f64>> {
        let mut took = Vec::new();
        for file in fs::read_dir(self.folder)? {
            let path = file?.path();
            if path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&format!("{name}.took."))) {
                let lines = fs::read_to_string(&path)?;
                let micros = lines.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<f64>().ok());
                took.extend(micros.map(|micros| micros / 1000.0));
                fs::remove_file(path)?;
            }
        }
        Ok(took)
    }
}
