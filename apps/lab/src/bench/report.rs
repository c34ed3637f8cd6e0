//! What was measured: told at once, and kept for a page of the documentation.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use xtask::workspace;

use super::run::{Run, median};

/// A page that grows.
pub struct Report {
    text: String,
}

impl Report {
    /// A page that begins with where and with what it was measured. `programs` are asked for their versions.
    pub fn new(title: &str, about: &str, programs: &[&Path]) -> Result<Self> {
        let text = format!("# {title}\n\n{about}\n\n{}\n", machine(programs)?);
        println!("{text}");
        Ok(Self { text })
    }

    /// A heading, and what is to be known of the table below it.
    pub fn section(&mut self, title: &str, about: &str) -> Result<()> {
        self.add(&format!("\n## {title}\n\n{about}\n"))
    }

    /// A table's head.
    pub fn columns(&mut self, names: &[&str]) -> Result<()> {
        self.add(&format!("\n| {} |\n|{}", names.join(" | "), "---|".repeat(names.len())))
    }

    /// A row of it.
    pub fn row(&mut self, cells: &[&str]) -> Result<()> {
        self.add(&format!("| {} |", cells.join(" | ")))
    }

    /// A row for what is known and one for what is measured beside it.
    pub fn beside(&mut self, what: &str, [known, ours]: [(&str, &[Run]); 2]) -> Result<()> {
        let [of_known, of_ours] = [known.1, ours.1].map(median);
        self.add(&of_known.row(what, known.0, 1.0))?;
        self.add(&of_ours.row("", ours.0, of_ours.rate / of_known.rate))
    }

    /// Writes the page to its file in the checkout.
    pub fn write(&self, path: &str) -> Result<()> {
        let path = workspace::root()?.join(path);
        fs::write(&path, &self.text).with_context(|| format!("{}", path.display()))
    }

    fn add(&mut self, lines: &str) -> Result<()> {
        println!("{lines}");
        Ok(writeln!(self.text, "{lines}")?)
    }
}

/// The columns of [`Report::beside`].
pub const BESIDE: &[&str] = &["what", "", "per second", "p50 ms", "p99 ms", "errors", "ratio"];

/// What it is measured on, as a list: the machine, and the versions of these programs.
pub fn machine<P: AsRef<OsStr>>(programs: &[P]) -> Result<String> {
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
        let output = Command::new(program).arg("--version").output()?;
        write!(list, "\n- {}", String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default())?;
    }
    Ok(list)
}
