//! Prints the results of each fault and writes `docs/reliability.md`.

use std::fmt::Write as _;
use std::fs;

use anyhow::Result;
use xtask::workspace;

use crate::bench::report::describe_machine;

/// The results of one fault.
#[derive(Default)]
pub struct Outcome {
    pub findings: Vec<Finding>,
    /// Acknowledged writes that were lost or duplicated, invariant violations, and errors in the log.
    pub violations: Vec<String>,
    /// Scenarios that were not run, with the reason.
    pub skipped: Vec<String>,
}

/// The measurement of one reliability target.
#[derive(Debug, Clone)]
pub struct Finding {
    pub scenario: &'static str,
    pub target: &'static str,
    pub measured: String,
    pub met: bool,
}

impl Finding {
    pub fn new(scenario: &'static str, target: &'static str, met: bool, measured: String) -> Self {
        Self { scenario, target, measured, met }
    }

    const fn verdict(&self) -> &'static str {
        if self.met { "met" } else { "**not met**" }
    }
}

const INTRODUCTION: &str = "\
# Reliability

Written by `cargo xtask chaos`, which injects faults into a release build and measures the reliability targets. Postgres
(with `fsync` on), the service and the load generator share one machine and connect over loopback. Writers keep a
journal of acknowledged writes. After each fault, the journal is compared with the database, and the statements of
[`invariants.sql`](../crates/chaos/src/invariants.sql) must return no rows. `no-op` is the p99 of `/healthz` in the same
run.

";

const NOT_COVERED: &str = "
Not measured here: webhook redeliveries and orders of billing (tests cover them). `cargo xtask bench` measures a million projects in one organization.
";

/// The maximum number of violations to print.
const MAX_PRINTED_VIOLATIONS: usize = 10;

/// Prints the results of a fault.
pub fn print(outcome: &Outcome) {
    for Finding { scenario, target, measured, met } in &outcome.findings {
        println!("  {:<9} {scenario} [{target}]: {measured}", if *met { "met" } else { "NOT MET" });
    }
    for violation in outcome.violations.iter().take(MAX_PRINTED_VIOLATIONS) {
        println!("  {:<9} {violation}", "VIOLATION");
    }
    if outcome.violations.len() > MAX_PRINTED_VIOLATIONS {
        println!("  {:<9} … {} more", "VIOLATION", outcome.violations.len() - MAX_PRINTED_VIOLATIONS);
    }
    for skipped in &outcome.skipped {
        println!("  {:<9} {skipped}", "skipped");
    }
}

/// Writes the page.
pub fn write(outcome: &Outcome) -> Result<()> {
    let mut page = format!(
        "{INTRODUCTION}{}\n\n| scenario | target | measured | |\n|---|---|---|---|\n",
        describe_machine(&["psql", "rustc"])?
    );
    for finding in &outcome.findings {
        let Finding { scenario, target, measured, .. } = finding;
        writeln!(page, "| {scenario} | {target} | {measured} | {} |", finding.verdict())?;
    }
    page.push_str(NOT_COVERED);
    for skipped in &outcome.skipped {
        writeln!(page, "\nSkipped in this run: {skipped}.")?;
    }
    Ok(fs::write(workspace::root()?.join("docs/reliability.md"), page)?)
}
