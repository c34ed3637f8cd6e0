//! Pages of results, with a section for each benchmark or fault.

use std::fs;

use anyhow::{Context as _, Result};
use clap::{Args, Command};
use xtask::workspace;

/// Replaces the section with the same heading in a page of the repository, or appends the section. Other sections stay.
pub fn replace_section(page: &str, section: &str) -> Result<()> {
    let path = workspace::root()?.join(page);
    let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    fs::write(&path, with_section(&text, section)).with_context(|| format!("{}", path.display()))
}

/// Returns whether all options have their default values.
pub fn are_defaults<A: Args + PartialEq>(args: &A) -> Result<bool> {
    let matches = A::augment_args(Command::new("defaults")).try_get_matches_from(["defaults"])?;
    Ok(A::from_arg_matches(&matches)? == *args)
}

/// Returns the page with the section instead of the one with the same heading, or appends the section.
fn with_section(page: &str, section: &str) -> String {
    let mut sections = split(page);
    match sections.iter_mut().find(|found| found.lines().next() == section.lines().next()) {
        Some(found) => *found = section,
        None => sections.push(section),
    }
    let sections: Vec<&str> = sections.into_iter().map(str::trim_end).collect();
    format!("{}\n", sections.join("\n\n"))
}

/// Splits a page into the text before the first section, and its sections.
fn split(page: &str) -> Vec<&str> {
    let mut begins: Vec<usize> = page.match_indices("\n## ").map(|(at, _)| at + 1).collect();
    begins.insert(0, 0);
    let ends = begins.iter().skip(1).copied().chain([page.len()]);
    begins.iter().zip(ends).filter_map(|(begin, end)| page.get(*begin..end)).collect()
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    #[derive(Args, PartialEq)]
    struct Options {
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        #[arg(long, value_delimiter = ',', default_values_t = [1, 8])]
        connections: Vec<usize>,
        #[arg(long)]
        quick: bool,
    }

    #[test]
    fn other_sections_stay() {
        let page = "# Page\n\nAbout\n\n## One\n\n1\n\n### Part\n\n## Two\n\n2\n";
        let replaced = with_section(page, "## One\n\nnew");
        assert_eq!(replaced, "# Page\n\nAbout\n\n## One\n\nnew\n\n## Two\n\n2\n");
        assert_eq!(with_section(page, "## Three\n\n3"), format!("{page}\n## Three\n\n3\n"));
    }

    #[test]
    fn only_default_options_are_complete() {
        let is_complete = |arguments: &[&str]| {
            let matches = Options::augment_args(Command::new("bench").no_binary_name(true));
            let matches = matches.try_get_matches_from(arguments).unwrap();
            are_defaults(&Options::from_arg_matches(&matches).unwrap()).unwrap()
        };
        assert!(is_complete(&[]));
        assert!(is_complete(&["--rounds", "3", "--connections", "1,8"]));
        assert!(!is_complete(&["--rounds", "1"]));
        assert!(!is_complete(&["--connections", "1"]));
        assert!(!is_complete(&["--quick"]));
    }
}
