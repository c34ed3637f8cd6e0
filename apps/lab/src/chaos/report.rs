//! What was found, for people: a table while it runs, and a page of `docs/` in the end.

use std::fmt::Write as _;
use std::fs;

use anyhow::Result;
use xtask::workspace;

use crate::bench::report::machine;

/// The result of one fault.
#[derive(Default)]
pub struct Outcome {
    pub findings: Vec<Finding>,
    /// Acknowledged writes that were lost or doubled, invariants that were broken, faults in the log.
    pub wrong: Vec<String>,
    /// Faults that could not be injected here, and the reasons.
    pub left_out: Vec<String>,
}

/// One promise, and what came of it.
#[derive(Debug, Clone)]
pub struct Finding {
    pub promise: &'static str,
    pub figure: &'static str,
    pub measured: String,
    pub met: bool,
}

impl Finding {
    pub fn new(promise: &'static str, figure: &'static str, met: bool, measured: String) -> Self {
        Self { promise, figure, measured, met }
    }

    const fn verdict(&self) -> &'static str {
        if self.met { "met" } else { "**not met**" }
    }
}

const HEAD: &str = "\
# Reliability

Written by `cargo xtask chaos`, which breaks a release build on purpose and measures what it promises to survive. Postgres
keeps what it acknowledges (`fsync` on); it, the service and whoever loads it share one machine, and everything is on
loopback. Writers keep a journal of what was acknowledged to them; after each fault it is compared with the database,
along with the statements of [`invariants.sql`](../crates/chaos/src/invariants.sql), none of which may answer a row.
`no-op` is the 99th percentile of `/healthz` in the same run.

";

const ABSENT: &str = "
Not built yet, and so not measured: redelivered webhooks, providers other than mail, code host and name servers, sagas,
the ledger, orders and revoked grants. A million projects in one organization are `cargo xtask bench`'s.
";

/// Faults that are shown of each kind.
const SHOWN: usize = 10;

/// What came of a fault, as it is found.
pub fn print(outcome: &Outcome) {
    for Finding { promise, figure, measured, met } in &outcome.findings {
        println!("  {:<9} {promise} [{figure}]: {measured}", if *met { "met" } else { "NOT MET" });
    }
    for wrong in outcome.wrong.iter().take(SHOWN) {
        println!("  {:<9} {wrong}", "WRONG");
    }
    if outcome.wrong.len() > SHOWN {
        println!("  {:<9} … {} more", "WRONG", outcome.wrong.len() - SHOWN);
    }
    for what in &outcome.left_out {
        println!("  {:<9} {what}", "left out");
    }
}

/// Writes the page.
pub fn write(outcome: &Outcome) -> Result<()> {
    let mut page =
        format!("{HEAD}{}\n\n| promise | figure | measured | |\n|---|---|---|---|\n", machine(&["psql", "rustc"])?);
    for finding in &outcome.findings {
        let Finding { promise, figure, measured, .. } = finding;
        writeln!(page, "| {promise} | {figure} | {measured} | {} |", finding.verdict())?;
    }
    page.push_str(ABSENT);
    for what in &outcome.left_out {
        writeln!(page, "\nLeft out in this run: {what}.")?;
    }
    Ok(fs::write(workspace::root()?.join("docs/reliability.md"), page)?)
}
