//! The results of a fault: printed, and in its section of the page of results.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;

use super::Fault;
use crate::bench::report::describe_machine;
use crate::page;

/// The page with a section for each fault.
pub const PAGE: &str = "docs/reliability.md";

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

impl Outcome {
    /// Returns whether all targets are met and nothing was violated.
    pub fn is_met(&self) -> bool {
        self.violations.is_empty() && self.findings.iter().all(|finding| finding.met)
    }
}

impl Finding {
    pub fn new(scenario: &'static str, target: &'static str, met: bool, measured: String) -> Self {
        Self { scenario, target, measured, met }
    }

    const fn verdict(&self) -> &'static str {
        if self.met { "met" } else { "**not met**" }
    }
}

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

/// Replaces the fault's section of the page. Its heading is the description of the fault.
pub fn write(fault: Fault, outcome: &Outcome) -> Result<()> {
    let value = fault.to_possible_value().context("the fault has no name")?;
    let title = value.get_help().context("the fault has no description")?;
    let mut section = format!(
        "## {title}\n\n`cargo xtask chaos {}`\n\n{}\n",
        value.get_name(),
        describe_machine(&["psql", "rustc"])?
    );
    if !outcome.findings.is_empty() {
        section.push_str("\n| scenario | target | measured | |\n|---|---|---|---|\n");
    }
    for finding in &outcome.findings {
        let Finding { scenario, target, measured, .. } = finding;
        writeln!(section, "| {scenario} | {target} | {measured} | {} |", finding.verdict())?;
    }
    if !outcome.violations.is_empty() {
        writeln!(section, "\n**{} violations**", outcome.violations.len())?;
    }
    for skipped in &outcome.skipped {
        writeln!(section, "\nSkipped in this run: {skipped}.")?;
    }
    page::replace_section(PAGE, &section)
}
