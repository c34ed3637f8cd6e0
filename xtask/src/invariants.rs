//! What holds for the whole workspace and no compiler checks (`docs/architecture.md`).

mod graph;
mod modules;
mod readmes;
mod sources;

use std::process::ExitCode;

use anyhow::{Result, ensure};
use xtask::workspace;

use graph::Graph;

/// Programs and the one crate that speaks HTTP.
const MAY_SERVE_HTTP: &[&str] = &["bare", "gateway", "server", "node"];
const HTTP_SERVERS: &[&str] = &["actix-web", "actix-http", "axum"];
/// Crates that no command for operators needs.
const NOT_FOR_OPERATORS: &[&str] =
    &["bundle", "chaos", "gateway", "lab", "node", "projects", "providers", "sandbox", "server"];
/// C libraries for what Rust ones do here.
const BANNED: &[&str] = &["pq-sys", "openssl-sys", "aws-lc-sys", "aws-lc-rs", "native-tls"];

#[derive(clap::Args)]
pub struct Args {
    /// Print which files of each crate use each other in a cycle; of one crate, every use in its cycles
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
    let mut broken = dependencies(&graph);
    broken.extend(modules::check(&root, &metadata)?);
    broken.extend(sources::check(&root, &graph)?);
    broken.extend(readmes::check(&root, &graph));
    for line in &broken {
        eprintln!("{line}");
    }
    ensure!(broken.is_empty(), "invariants broken: {}", broken.len());
    Ok(ExitCode::SUCCESS)
}

fn dependencies(graph: &Graph) -> Vec<String> {
    let mut broken = Vec::new();
    let members: Vec<&str> = graph.members().collect();
    let contexts: Vec<&str> = graph.contexts().collect();
    let mut forbid = |from: &str, to: &str, rule: &str| {
        broken.extend(graph.path(from, to).map(|path| format!("{}: {rule}", path.join(" → "))));
    };
    for &member in &members {
        for &other in members.iter().filter(|other| **other != member) {
            match member {
                "kernel" | "protocol" if other != "sha256" => {
                    forbid(member, other, "kernel and protocol depend on no other crate of the workspace than sha256");
                }
                "sha256" => forbid(member, other, "sha256 depends on no other crate of the workspace"),
                "store" if !["kernel", "sha256"].contains(&other) => {
                    forbid(member, other, "store depends on kernel alone")
                }
                "providers" if !["kernel", "sha256"].contains(&other) => {
                    forbid(member, other, "providers depends on kernel alone")
                }
                "sandbox" if other != "settings" => {
                    forbid(member, other, "the sandbox plays other people's systems: it knows none of our code");
                }
                "client" => forbid(member, other, "client knows the API by its document alone"),
                "node" if !["bundle", "protocol", "settings", "sha256"].contains(&other) => {
                    forbid(member, other, "a node knows the control plane by the protocol alone");
                }
                "cli" if !["client", "bundle"].contains(&other) => {
                    forbid(member, other, "cli is a client: what it knows of the platform is the API and its bundles");
                }
                "xtask" if NOT_FOR_OPERATORS.contains(&other) => {
                    forbid(member, other, "the operator's program stays small: this is for tests and the lab");
                }
                context if contexts.contains(&context) => {
                    if contexts.contains(&other) {
                        forbid(context, other, "no context depends on another; what it needs is a port of its own");
                    } else if ["providers", "gateway"].contains(&other) {
                        forbid(context, other, "no context depends on the outside world's adapters or on HTTP");
                    } else if other == "protocol" && context != "convergence" {
                        forbid(
                            context,
                            other,
                            "a context writes its part through a port; the wiring knows the wire type",
                        );
                    }
                }
                _ => {}
            }
        }
        if !MAY_SERVE_HTTP.contains(&member) {
            for server in HTTP_SERVERS {
                forbid(member, server, "only gateway and the programs know an HTTP server");
            }
        }
        for library in BANNED {
            forbid(member, library, "this library is banned; see deny.toml");
        }
        if !["chaos", "lab", "sandbox", "testkit"].contains(&member) {
            for fixture in ["chaos", "sandbox", "testkit"] {
                forbid(member, fixture, "fixtures, the sandbox and fault injection are for tests and the lab");
            }
        }
        if !["client", "cli"].contains(&member) {
            forbid(member, "client", "what the client is written from is built without it");
        }
    }
    for context in contexts {
        if graph.depends_directly(context, "hyper") {
            broken.push(format!("{context} → hyper: a context knows no HTTP server"));
        }
    }
    broken
}
