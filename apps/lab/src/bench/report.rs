//! The section of a benchmark on the page of results. It is printed while it grows.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::machine::IS_RELEASE;
use super::run::{Run, median};
use crate::page::{self, are_defaults};

/// The page with a section for each benchmark.
const PAGE: &str = "docs/benchmarks.md";
/// The columns of [`Report::comparison`].
const COMPARISON_COLUMNS: &[&str] = &["operation", "program", "per second", "p50 ms", "p99 ms", "errors", "ratio"];

/// A section in Markdown.
pub struct Report {
    text: String,
    /// Whether a part was skipped because a program is missing.
    is_partial: bool,
}

impl Report {
    /// Starts a section with a description of the machine and the versions of other programs.
    pub fn new(title: &str, about: &str, versions: &[String]) -> Result<Self> {
        let mut text = format!("## {title}\n\n{about}\n\n{}\n", describe_machine::<&str>(&[])?);
        for version in versions {
            writeln!(text, "- {version}")?;
        }
        print!("\n{text}");
        Ok(Self { text, is_partial: false })
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) -> Result<()> {
        self.add(&format!("\n{text}"))
    }

    /// Adds the reason why a part is missing. [`Self::finish`] then does not write the section.
    pub fn skip(&mut self, reason: &anyhow::Error) -> Result<()> {
        self.is_partial = true;
        self.paragraph(&format!("Skipped: {reason:#}."))
    }

    /// Adds the head of a table.
    pub fn columns(&mut self, names: &[&str]) -> Result<()> {
        self.add(&format!("\n| {} |\n|{}", names.join(" | "), "---|".repeat(names.len())))
    }

    /// Adds a row of a table.
    pub fn row(&mut self, cells: &[&str]) -> Result<()> {
        self.add(&format!("| {} |", cells.join(" | ")))
    }

    /// Adds the head of a table of comparisons, with further columns at its end.
    pub fn comparison_columns(&mut self, further: &[&str]) -> Result<()> {
        self.columns(&[COMPARISON_COLUMNS, further].concat())
    }

    /// Adds a row for each program, with the median of its runs. The first program is the baseline of the ratio.
    pub fn comparison(&mut self, operation: &str, programs: &[(&str, &[Run])]) -> Result<()> {
        let rows: Vec<_> = programs.iter().map(|(program, runs)| (*program, median(runs), Vec::new())).collect();
        self.comparison_with(operation, &rows)
    }

    /// Like [`Self::comparison`], with the medians and the cells of the further columns.
    pub fn comparison_with(&mut self, operation: &str, programs: &[(&str, Run, Vec<String>)]) -> Result<()> {
        let baseline = programs.first().map_or(1.0, |(_, run, _)| run.rate);
        for (at, (program, run, further)) in programs.iter().enumerate() {
            let mut cells = vec![if at == 0 { operation } else { "" }.to_owned(), (*program).to_owned()];
            cells.extend(run.cells());
            cells.extend([run.errors.to_string(), format!("{:.2}", run.rate / baseline)]);
            cells.extend_from_slice(further);
            self.row(&cells.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Writes the section to the page if the run is complete: a release build with the default options of the benchmark,
    /// and without a missing part. Other sections stay.
    pub fn finish<A: clap::Args + PartialEq>(self, args: &A) -> Result<()> {
        if !IS_RELEASE || self.is_partial || !are_defaults(args)? {
            println!("\n{PAGE} stays as it is: only a release build with the default options and all parts changes it");
            return Ok(());
        }
        page::replace_section(PAGE, &self.text)
    }

    fn add(&mut self, lines: &str) -> Result<()> {
        println!("{lines}");
        Ok(writeln!(self.text, "{lines}")?)
    }
}

/// Returns the first line that a program prints about its version. Some programs print it to the standard error.
pub fn version(program: impl AsRef<OsStr>, arguments: &[&str]) -> Result<String> {
    version_of(Command::new(program).args(arguments))
}

/// Like [`version`], of a command.
pub fn version_of(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let output = command.output().with_context(|| format!("{}", program.display()))?;
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    let line = printed.lines().find(|line| !line.trim().is_empty());
    Ok(line.with_context(|| format!("{} prints no version", program.display()))?.trim().to_owned())
}

/// Returns a Markdown list of the machine's properties and the versions of `programs`.
pub fn describe_machine<P: AsRef<OsStr>>(programs: &[P]) -> Result<String> {
    let field = |file: &str, name: &str| -> Result<String> {
        let text = fs::read_to_string(file)?;
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        Ok(line.split([':', '=']).nth(1).unwrap_or("unknown").trim().trim_matches('"').to_owned())
    };
    let cores = std::thread::available_parallelism()?;
    let memory = field("/proc/meminfo", "MemTotal")?;
    let kibibytes: u64 = memory.split(' ').next().unwrap_or_default().parse().unwrap_or_default();
    let mut list = format!(
        "- {}, {cores} cores, {} GiB; {}, Linux {}",
        field("/proc/cpuinfo", "model name")?,
        kibibytes >> 20,
        field("/etc/os-release", "PRETTY_NAME")?,
        fs::read_to_string("/proc/sys/kernel/osrelease")?.trim()
    );
    for program in programs {
        write!(list, "\n- {}", version(program, &["--version"])?)?;
    }
    Ok(list)
}
