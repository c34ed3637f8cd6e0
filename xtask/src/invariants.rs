//! `invariants`: checks the workspace rules of `docs/architecture.md` that the compiler cannot check.

mod dependencies;
mod graph;
mod modules;
mod readmes;
mod sources;

use std::process::ExitCode;

use anyhow::{Result, ensure};
use xtask::workspace;

use graph::Graph;

#[derive(clap::Args)]
pub struct Args {
    /// Print the import cycles between the files of each crate; for one crate, print each use in its cycles
    #[arg(long, value_name = "CRATE")]
    graph: Option<Option<String>>,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let root = workspace::root()?;
    let metadata = workspace::metadata(&[])?;
    if let Some(package) = args.graph {
        modules::print(&mut std::io::stdout(), &root, &metadata, package.as_deref())?;
        return Ok(ExitCode::SUCCESS);
    }
    let graph = Graph::read(&metadata)?;
    let mut violations = dependencies::check(&graph);
    violations.extend(modules::check(&root, &metadata)?);
    violations.extend(sources::check(&root, &graph)?);
    violations.extend(readmes::check(&root, &graph));
    for line in &violations {
        eprintln!("{line}");
    }
    ensure!(violations.is_empty(), "{} invariant violations", violations.len());
    Ok(ExitCode::SUCCESS)
}
