//! A report that is printed while it grows, and written to a page of the documentation.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use xtask::workspace;

use super::run::{Run, median};

/// A Markdown page of results.
pub struct Report {
    text: String,
}

impl Report {
    /// Starts a page with a description of the machine and the versions of `programs`.
    pub fn new(title: &str, about: &str, programs: &[&Path]) -> Result<Self> {
        let text = format!("# {title}\n\n{about}\n\n{}\n", describe_machine(programs)?);
        println!("{text}");
        Ok(Self { text })
    }

    /// Starts a section of a page, with a description of the machine and other programs.
    pub fn of_section(title: &str, about: &str, programs: &str) -> Result<Self> {
        let text = format!("## {title}\n\n{about}\n\n{}\n{programs}\n", describe_machine::<&str>(&[])?);
        println!("{text}");
        Ok(Self { text })
    }

    /// Adds a heading and a paragraph.
    pub fn section(&mut self, title: &str, about: &str) -> Result<()> {
        self.add(&format!("\n## {title}\n\n{about}\n"))
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) -> Result<()> {
        self.add(&format!("\n{text}"))
    }

    /// Adds the head of a table.
    pub fn columns(&mut self, names: &[&str]) -> Result<()> {
        self.add(&format!("\n| {} |\n|{}", names.join(" | "), "---|".repeat(names.len())))
    }

    /// Adds a row of a table.
    pub fn row(&mut self, cells: &[&str]) -> Result<()> {
        self.add(&format!("| {} |", cells.join(" | ")))
    }

    /// Adds a row for the baseline, and a row for the measured program.
    pub fn comparison(&mut self, what: &str, [baseline, measured]: [(&str, &[Run]); 2]) -> Result<()> {
        let [baseline_run, measured_run] = [baseline.1, measured.1].map(median);
        self.add(&baseline_run.row(what, baseline.0, 1.0))?;
        self.add(&measured_run.row("", measured.0, measured_run.rate / baseline_run.rate))
    }

    /// Writes the page or section to a file of the checkout. Other sections of the file stay.
    pub fn write(&self, path: &str) -> Result<()> {
        let path = workspace::root()?.join(path);
        let page = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
        fs::write(&path, replace_sections(&page, &self.text)).with_context(|| format!("{}", path.display()))
    }

    fn add(&mut self, lines: &str) -> Result<()> {
        println!("{lines}");
        Ok(writeln!(self.text, "{lines}")?)
    }
}

/// Replaces the sections of a page by those with the same headings, and appends those with new headings. The text before
/// the first section also counts as a section.
fn replace_sections(page: &str, new: &str) -> String {
    let (mut sections, new) = (split(page), split(new));
    for (heading, text) in new {
        match sections.iter_mut().find(|(found, _)| *found == heading) {
            Some((_, found)) => *found = text,
            None => sections.push((heading, text)),
        }
    }
    let sections: Vec<&str> = sections.into_iter().map(|(_, text)| text.trim_end()).collect();
    format!("{}\n", sections.join("\n\n"))
}

/// Splits a page into its sections. Returns each with its heading.
fn split(page: &str) -> Vec<(&str, &str)> {
    let mut begins: Vec<usize> = page.match_indices("\n## ").map(|(at, _)| at + 1).collect();
    begins.insert(0, 0);
    let ends = begins.iter().skip(1).copied().chain([page.len()]);
    let sections = begins.iter().zip(ends).filter_map(|(begin, end)| page.get(*begin..end));
    sections.filter(|section| !section.is_empty()).map(|section| (heading(section), section)).collect()
}

/// Returns the heading of a section. The text before the first section has none.
fn heading(section: &str) -> &str {
    section.lines().next().filter(|line| line.starts_with("## ")).unwrap_or_default()
}

/// The columns of [`Report::comparison`].
pub const COMPARISON_COLUMNS: &[&str] = &["operation", "program", "per second", "p50 ms", "p99 ms", "errors", "ratio"];

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
        let output = Command::new(program).arg("--version").output()?;
        write!(list, "\n- {}", String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default())?;
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_other_reports_stay() {
        let page = "# Page\n\nAbout\n\n## One\n\n1\n\n## Two\n\n2\n";
        let replaced = replace_sections(page, "## One\n\nnew\n\n## Three\n\n3");
        assert_eq!(replaced, "# Page\n\nAbout\n\n## One\n\nnew\n\n## Two\n\n2\n\n## Three\n\n3\n");
        assert_eq!(replace_sections(page, "# Other\n\n## Two\n\nnew"), "# Other\n\n## One\n\n1\n\n## Two\n\nnew\n");
        assert_eq!(replace_sections("", page), page);
    }
}
