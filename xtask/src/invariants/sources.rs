//! What no file of the checkout may hold.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::graph::Graph;

// In two pieces each, so that this file does not hold them either.
const FORBIDDEN_IN_RUST: &[(&str, &str)] = &[
    (concat!("#[", "ignore"), "a test runs or does not exist"),
    (concat!("todo", "!("), "what is not built is not called"),
    (concat!("[", "allow("), "`expect`, with its reason"),
];
const UNIT_TESTS: &str = concat!("#[cfg", "(test)]");
/// Folders at the root of somebody's machine.
const FOLDERS: &[&str] = &["home", "root", "tmp", "work", "Users"];

pub fn check(root: &Path, graph: &Graph) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    let mut untested = Vec::new();
    for (_, manifest) in graph.manifests() {
        let text = std::fs::read_to_string(manifest)?;
        let manifest = manifest.strip_prefix(root).unwrap_or(manifest);
        if !text.contains("[lints]\nworkspace = true") {
            broken.push(format!("{}: every crate inherits the lints of the workspace", manifest.display()));
        }
        if text.contains("[lib]\ntest = false") {
            untested.push(format!("{}/", manifest.with_file_name("src").display()));
        }
    }
    for path in files(root)? {
        // Deleted, or no text.
        let Ok(text) = std::fs::read_to_string(root.join(&path)) else {
            continue;
        };
        for (line, number) in text.lines().zip(1..) {
            broken.extend(fault(&path, line).map(|fault| format!("{path}:{number}: {fault}")));
            if line.contains(UNIT_TESTS) && untested.iter().any(|source| path.starts_with(source)) {
                broken.push(format!("{path}:{number}: unit tests of a library with `test = false` do not run"));
            }
        }
    }
    Ok(broken)
}

fn fault(path: &str, line: &str) -> Option<String> {
    if path.ends_with(".rs")
        && let Some((found, rule)) = FORBIDDEN_IN_RUST.iter().find(|(it, _)| line.contains(it))
    {
        return Some(format!("{found}: {rule}"));
    }
    let folder = FOLDERS.iter().find(|folder| names_folder(line, folder))?;
    (!path.ends_with(".lock")).then(|| format!("/{folder}/…: no path of one machine"))
}

/// Whether the line holds `/<folder>/<letter>`, and not as the end of a longer path.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let (before, after) = (line.get(..at).unwrap_or_default(), line.get(at + folder.len()..).unwrap_or_default());
        let begins = before.strip_suffix('/').is_some_and(|it| !it.ends_with(|c: char| c.is_ascii_alphanumeric()));
        begins && after.strip_prefix('/').is_some_and(|it| it.starts_with(|c: char| c.is_ascii_lowercase()))
    })
}

/// Everything that is tracked or about to be.
fn files(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.output()?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(String::from_utf8(output.stdout)?.split_terminator('\0').map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_one_machine_is_told_from_the_end_of_another() {
        let path = |folder: &str| format!("see /{folder}/ada/x");
        for folder in FOLDERS {
            assert!(names_folder(&path(folder), folder), "{folder}");
            assert!(!names_folder(
                &format!("/var/{folder}/x /{folder} /{folder}/ https://a.example/{folder}/x"),
                folder
            ));
        }
    }
}
