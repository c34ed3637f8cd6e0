//! The import graph of the files in each crate, from their source code.
//!
//! A file uses another file if it imports or names an item that the other file defines. A re-exported name (`pub use`)
//! resolves to the file that defines it. Module declarations, re-exports and imports of a module by its name are not
//! uses, so a `mod.rs` that contains nothing else is in no cycle. A parent module and a child are in a cycle if each
//! uses items of the other. Code that only tests compile is ignored. The parser knows the syntax of items and imports,
//! but no types: it ignores method calls and the locations of `impl` blocks.

mod crate_tree;
mod file_graph;
mod source;
mod token;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use file_graph::FileGraph;

/// The maximum number of files in a cycle. Larger cycles are hard to read, test and split.
const MAX_CYCLE_FILES: usize = 3;
/// The crates that are checked.
const CHECKED_CRATES: &[&str] = &["gateway"];

/// A library, program or test target.
struct Target {
    package: String,
    kind: String,
    name: String,
    root: PathBuf,
}

/// Returns the cycles of the checked crates that are too large.
pub fn check(root: &Path, metadata: &Value) -> Result<Vec<String>> {
    let mut violations = Vec::new();
    for target in targets(metadata).filter(|it| it.kind == "lib" && CHECKED_CRATES.contains(&it.package.as_str())) {
        let graph = FileGraph::read(&target.root)?;
        for cycle in graph.cycles().iter().filter(|it| it.len() > MAX_CYCLE_FILES) {
            let files: Vec<String> = cycle.iter().map(|it| relative_path(root, graph.file(*it))).collect();
            violations.push(format!(
                "{}: {} files use each other, at most {MAX_CYCLE_FILES} may (`cargo xtask invariants --graph {}`): {}",
                target.package,
                files.len(),
                target.package,
                files.join(", ")
            ));
        }
    }
    Ok(violations)
}

/// Prints the size and the cycles of each graph; for one crate, also the uses that form each cycle.
pub fn print(out: &mut impl Write, root: &Path, metadata: &Value, package: Option<&str>) -> Result<()> {
    for target in targets(metadata).filter(|it| package.is_none_or(|package| it.package == package)) {
        let graph = FileGraph::read(&target.root)?;
        let cycles = graph.cycles();
        let sizes: Vec<String> = cycles.iter().map(|it| it.len().to_string()).collect();
        let sizes = if sizes.is_empty() { "none".to_owned() } else { sizes.join(", ") };
        let Target { package: target_package, kind, name, .. } = &target;
        writeln!(
            out,
            "{target_package} ({kind} {name}): {} files, {} uses; cycles: {sizes}",
            graph.file_count(),
            graph.edge_count()
        )?;
        for cycle in &cycles {
            if package.is_some() {
                writeln!(out, "\n  a cycle of {} files:", cycle.len())?;
                for (from, to, why) in graph.edges_within(cycle) {
                    let [from, to] = [from, to].map(|it| relative_path(root, graph.file(it)));
                    writeln!(out, "  {from}:{} → {to}  {}", why.line, why.segments.join("::"))?;
                }
            } else if cycle.len() > MAX_CYCLE_FILES {
                let files: Vec<String> = cycle.iter().map(|it| relative_path(root, graph.file(*it))).collect();
                writeln!(out, "  {}: {}", files.len(), files.join(", "))?;
            }
        }
    }
    Ok(())
}

fn relative_path(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).display().to_string()
}

/// Returns the targets of the workspace crates.
fn targets(metadata: &Value) -> impl Iterator<Item = Target> {
    let list = |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let members = list(metadata, "workspace_members");
    let packages =
        list(metadata, "packages").into_iter().filter(move |it| it.get("id").is_some_and(|id| members.contains(id)));
    packages.flat_map(move |package| {
        let field = |name: &str| package.get(name).map(text).unwrap_or_default();
        let target = |it: Value| Target {
            package: field("name"),
            kind: list(&it, "kind").first().map(text).unwrap_or_default(),
            name: it.get("name").map(text).unwrap_or_default(),
            root: it.get("src_path").map(text).unwrap_or_default().into(),
        };
        let targets = list(&package, "targets").into_iter().map(target);
        targets.filter(|it| ["lib", "bin", "test"].contains(&it.kind.as_str())).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests;
