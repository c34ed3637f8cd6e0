//! The import graph of each crate, read from its source.
//!
//! A file uses another file when it imports or names an item that the other file defines. A re-exported name (`pub use`)
//! leads to the file that defines it. Three things are not uses: to declare a module, to re-export an item, and to import a
//! module by its own name. A `mod.rs` that does nothing else is therefore in no cycle. A parent module whose own types its
//! children use is in a cycle with those children whose items it uses itself. Code that only tests compile does not count.
//! The reader knows the syntax of items and imports, but no types: it does not see method calls, or which file holds an
//! `impl`.

mod crate_tree;
mod file_graph;
mod source;
mod token;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use file_graph::FileGraph;

/// A larger cycle is hard to take apart, to test in parts and to read.
const LARGEST: usize = 3;
/// Crates in which no cycle is larger.
const CHECKED: &[&str] = &["gateway"];

/// A library, a program or a test of the workspace.
struct Target {
    package: String,
    kind: String,
    name: String,
    root: PathBuf,
}

/// Cycles that are too large, where that is checked.
pub fn check(root: &Path, metadata: &Value) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for target in targets(metadata).filter(|it| it.kind == "lib" && CHECKED.contains(&it.package.as_str())) {
        let graph = FileGraph::read(&target.root)?;
        for cycle in graph.cycles().iter().filter(|it| it.len() > LARGEST) {
            let files: Vec<String> = cycle.iter().map(|it| below(root, graph.file(*it))).collect();
            broken.push(format!(
                "{}: {} files use each other, at most {LARGEST} may (`cargo xtask invariants --graph {}`): {}",
                target.package,
                files.len(),
                target.package,
                files.join(", ")
            ));
        }
    }
    Ok(broken)
}

/// Prints the size of each graph and its cycles; of one crate also which use makes each cycle.
pub fn print(out: &mut impl Write, root: &Path, metadata: &Value, package: Option<&str>) -> Result<()> {
    for target in targets(metadata).filter(|it| package.is_none_or(|package| it.package == package)) {
        let graph = FileGraph::read(&target.root)?;
        let cycles = graph.cycles();
        let sizes: Vec<String> = cycles.iter().map(|it| it.len().to_string()).collect();
        let sizes = if sizes.is_empty() { "none".to_owned() } else { sizes.join(", ") };
        let Target { package: of, kind, name, .. } = &target;
        writeln!(out, "{of} ({kind} {name}): {} files, {} uses; cycles: {sizes}", graph.files(), graph.edges())?;
        for cycle in &cycles {
            if package.is_some() {
                writeln!(out, "\n  a cycle of {} files:", cycle.len())?;
                for (from, to, why) in graph.within(cycle) {
                    let [from, to] = [from, to].map(|it| below(root, graph.file(it)));
                    writeln!(out, "  {from}:{} → {to}  {}", why.line, why.segments.join("::"))?;
                }
            } else if cycle.len() > LARGEST {
                let files: Vec<String> = cycle.iter().map(|it| below(root, graph.file(*it))).collect();
                writeln!(out, "  {}: {}", files.len(), files.join(", "))?;
            }
        }
    }
    Ok(())
}

fn below(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).display().to_string()
}

/// The targets of the workspace's crates.
fn targets(metadata: &Value) -> impl Iterator<Item = Target> {
    let list = |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let members = list(metadata, "workspace_members");
    let packages =
        list(metadata, "packages").into_iter().filter(move |it| it.get("id").is_some_and(|id| members.contains(id)));
    packages.flat_map(move |package| {
        let of = |name: &str| package.get(name).map(text).unwrap_or_default();
        let target = |it: Value| Target {
            package: of("name"),
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
