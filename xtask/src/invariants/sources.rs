//! Checks for text that no file of the checkout may contain.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::graph::Graph;

// The texts are split into two parts, so that this file does not contain them.
const FORBIDDEN_IN_RUST: &[(&str, &str)] = &[
    (concat!("#[", "ignore"), "run the test or delete it"),
    (concat!("todo", "!("), "do not call unimplemented code"),
    (concat!("[", "allow("), "use `expect` with a reason"),
];
const LOG_MACROS: &[&str] =
    &["tracing::trace!(", "tracing::debug!(", "tracing::info!(", "tracing::warn!(", "tracing::error!("];
const UNIT_TESTS: &str = concat!("#[cfg", "(test)]");
/// Top-level folders that differ between machines.
const MACHINE_FOLDERS: &[&str] = &["home", "root", "tmp", "work", "Users"];

pub fn check(root: &Path, graph: &Graph) -> Result<Vec<String>> {
    let mut violations = Vec::new();
    let mut untested = Vec::new();
    for (_, manifest) in graph.manifests() {
        let text = std::fs::read_to_string(manifest)?;
        let manifest = manifest.strip_prefix(root).unwrap_or(manifest);
        if !text.contains("[lints]\nworkspace = true") {
            violations.push(format!("{}: the crate does not inherit the workspace lints", manifest.display()));
        }
        if text.contains("[lib]\ntest = false") {
            untested.push(format!("{}/", manifest.with_file_name("src").display()));
        }
    }
    for path in files(root)? {
        // The file was deleted, or is not UTF-8.
        let Ok(text) = std::fs::read_to_string(root.join(&path)) else {
            continue;
        };
        if path.ends_with(".rs") && (path.starts_with("crates/") || path.starts_with("apps/")) {
            violations.extend(log_messages(&text).filter_map(|(number, message)| {
                let rule = message_violation(message)?;
                Some(format!("{path}:{number}: the log message {message:?} {rule} (docs/logging.md)"))
            }));
        }
        for (line, number) in text.lines().zip(1..) {
            violations.extend(violation(&path, line).map(|text| format!("{path}:{number}: {text}")));
            if line.contains(UNIT_TESTS) && untested.iter().any(|source| path.starts_with(source)) {
                violations.push(format!("{path}:{number}: unit tests of a library with `test = false` do not run"));
            }
        }
    }
    Ok(violations)
}

fn violation(path: &str, line: &str) -> Option<String> {
    if path.ends_with(".rs")
        && let Some((found, rule)) = FORBIDDEN_IN_RUST.iter().find(|(it, _)| line.contains(it))
    {
        return Some(format!("{found}: {rule}"));
    }
    let folder = MACHINE_FOLDERS.iter().find(|folder| contains_path_in(line, folder))?;
    (!path.ends_with(".lock")).then(|| format!("/{folder}/…: absolute path of a developer machine"))
}

/// Returns whether the line contains `/<folder>/<letter>`, but not as the end of a longer path.
fn contains_path_in(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let (before, after) = (line.get(..at).unwrap_or_default(), line.get(at + folder.len()..).unwrap_or_default());
        let begins = before.strip_suffix('/').is_some_and(|it| !it.ends_with(|c: char| c.is_ascii_alphanumeric()));
        begins && after.strip_prefix('/').is_some_and(|it| it.starts_with(|c: char| c.is_ascii_lowercase()))
    })
}

/// Returns the messages of the log macros in a Rust source: the last string literal of each call, with the number of
/// the line that the call starts on.
fn log_messages(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let calls = LOG_MACROS.iter().flat_map(|name| text.match_indices(name).map(|(at, name)| (at, at + name.len())));
    calls.filter_map(|(start, at)| {
        let number = text.get(..start)?.matches('\n').count() + 1;
        let call = text.get(at..)?;
        let (mut depth, mut message, mut chars) = (1_usize, None, call.char_indices());
        while let Some((at, c)) = chars.next() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                '"' => {
                    let literal = call.get(at + 1..)?;
                    let end = literal.find('"')?;
                    if depth == 1 {
                        message = literal.get(..end);
                    }
                    chars.by_ref().take_while(|(_, c)| *c != '"').for_each(drop);
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        Some((number, message?))
    })
}

/// Returns the rule of `docs/logging.md` that a message breaks.
fn message_violation(message: &str) -> Option<&'static str> {
    if message.contains(|c: char| c == '{' || c.is_ascii_digit()) {
        return Some("contains a value");
    }
    if message.ends_with('.') {
        return Some("ends with a full stop");
    }
    let starts = message.starts_with(|c: char| c.is_ascii_lowercase());
    (!starts).then_some("does not start in lower case")
}

/// Returns all tracked files and all untracked files that are not ignored.
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
    fn log_messages_are_the_last_literals_of_their_calls() {
        let source = "fn f() {\n    tracing::warn!(%error, cause = format!(\"{error:#}\"), \"failed to read\");\n}\n\
            tracing::info!(\n    zone,\n    \"Zone {zone} is ready.\"\n);";
        let found: Vec<(usize, &str)> = log_messages(source).collect();
        assert_eq!(found, [(4, "Zone {zone} is ready."), (2, "failed to read")]);
        assert_eq!(message_violation("failed to read"), None);
        for violations in ["Failed to read", "failed to read.", "failed to read {path}", "failed 3 times"] {
            assert!(message_violation(violations).is_some(), "{violations}");
        }
    }

    #[test]
    fn machine_paths_are_distinguished_from_path_suffixes() {
        let path = |folder: &str| format!("see /{folder}/ada/x");
        for folder in MACHINE_FOLDERS {
            assert!(contains_path_in(&path(folder), folder), "{folder}");
            assert!(!contains_path_in(
                &format!("/var/{folder}/x /{folder} /{folder}/ https://a.example/{folder}/x"),
                folder
            ));
        }
    }
}
