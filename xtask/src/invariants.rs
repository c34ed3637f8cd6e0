//! `invariants`: checks the workspace rules of `docs/architecture.md` that the compiler cannot check.

mod graph;
mod modules;
mod readmes;
mod sources;

use std::process::ExitCode;

use anyhow::{Result, ensure};
use xtask::workspace;

use graph::Graph;

/// The crates that may depend on an HTTP server.
const HTTP_CRATES: &[&str] = &["bare", "daemon", "gateway", "git-node", "mail-node", "server", "node", "tls"];
const HTTP_SERVERS: &[&str] = &["actix-web", "actix-http", "axum"];
/// The crates that the operators' commands do not need.
const NOT_FOR_OPERATORS: &[&str] =
    &["bundle", "chaos", "gateway", "lab", "node", "projects", "providers", "sandbox", "server"];
/// C libraries that have a Rust replacement in this workspace.
const BANNED_LIBRARIES: &[&str] = &["pq-sys", "aws-lc-sys", "aws-lc-rs", "native-tls"];

/// The crates that contain OpenSSL: the authorization server, which signs access tokens with josekit, and the crates
/// that depend on it. `xtask` depends on it only in a build of the whole workspace.
const OPENSSL_CRATES: &[&str] = &["oauth", "gateway", "server", "lab", "xtask"];

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
    let mut violations = check_dependencies(&graph);
    violations.extend(modules::check(&root, &metadata)?);
    violations.extend(sources::check(&root, &graph)?);
    violations.extend(readmes::check(&root, &graph));
    for line in &violations {
        eprintln!("{line}");
    }
    ensure!(violations.is_empty(), "{} invariant violations", violations.len());
    Ok(ExitCode::SUCCESS)
}

fn check_dependencies(graph: &Graph) -> Vec<String> {
    let mut violations = Vec::new();
    let members: Vec<&str> = graph.members().collect();
    let contexts: Vec<&str> = graph.contexts().collect();
    let mut forbid = |from: &str, to: &str, rule: &str| {
        violations.extend(graph.shortest_path(from, to).map(|path| format!("{}: {rule}", path.join(" → "))));
    };
    for &member in &members {
        for &other in members.iter().filter(|other| **other != member) {
            match member {
                "kernel" | "protocol" if other != "sha256" => {
                    forbid(member, other, "the only workspace dependency of kernel and protocol is sha256");
                }
                "sha256" | "webhooks" => forbid(member, other, "this crate has no workspace dependencies"),
                "store" if !["kernel", "sha256"].contains(&other) => {
                    forbid(member, other, "the only workspace dependency of store is kernel")
                }
                "providers" if !["kernel", "sha256", "webhooks"].contains(&other) => {
                    forbid(member, other, "the only workspace dependencies of providers are kernel and webhooks")
                }
                "objects" if other != "settings" => {
                    forbid(member, other, "the only workspace dependency of objects is settings");
                }
                "sandbox" if other != "settings" => {
                    forbid(member, other, "the sandbox simulates external systems and shares no code with the product");
                }
                "client" => forbid(member, other, "client depends only on the OpenAPI document"),
                "daemon" if other != "settings" => {
                    forbid(member, other, "the only workspace dependency of daemon is settings");
                }
                "git-node" if !["bundle", "daemon", "protocol", "settings", "sha256"].contains(&other) => {
                    forbid(member, other, "the git node depends on the control plane only through the protocol");
                }
                "mail-node" if !["daemon", "protocol", "settings", "sha256"].contains(&other) => {
                    forbid(member, other, "the mail node depends on the control plane only through the protocol");
                }
                "tls" => forbid(member, other, "tls terminates connections for programs that share nothing else"),
                "node"
                    if !["bundle", "daemon", "objects", "protocol", "settings", "sha256", "tls"].contains(&other) =>
                {
                    forbid(member, other, "a node depends on the control plane only through the protocol");
                }
                "cli" if !["client", "bundle"].contains(&other) => {
                    forbid(member, other, "cli depends on the platform only through the API client and bundles");
                }
                "xtask" if NOT_FOR_OPERATORS.contains(&other) => {
                    forbid(member, other, "the operator program stays small: this crate is for tests and the lab");
                }
                context if contexts.contains(&context) => {
                    if contexts.contains(&other) {
                        forbid(context, other, "contexts do not depend on each other, but declare ports");
                    } else if ["providers", "gateway"].contains(&other) {
                        forbid(context, other, "contexts do not depend on provider adapters or on HTTP");
                    } else if other == "protocol" && context != "convergence" {
                        forbid(
                            context,
                            other,
                            "contexts write desired state through a port; only the wiring uses the wire types",
                        );
                    }
                }
                _ => {}
            }
        }
        if !HTTP_CRATES.contains(&member) {
            for server in HTTP_SERVERS {
                forbid(member, server, "only gateway and the programs depend on an HTTP server");
            }
        }
        for library in BANNED_LIBRARIES {
            forbid(member, library, "this library is banned; see deny.toml");
        }
        if !OPENSSL_CRATES.contains(&member) {
            forbid(member, "openssl-sys", "only the authorization server uses OpenSSL, through josekit");
        }
        if !["chaos", "lab", "sandbox", "testkit"].contains(&member) {
            for fixture in ["chaos", "sandbox", "testkit"] {
                forbid(member, fixture, "fixtures, the sandbox and fault injection are for tests and the lab");
            }
        }
        if !["client", "cli"].contains(&member) {
            forbid(member, "client", "only cli depends on the generated client");
        }
    }
    for member in members {
        for library in ["josekit", "openssl"] {
            if graph.depends_directly(member, library) && (member, library) != ("oauth", "josekit") {
                violations
                    .push(format!("{member} → {library}: only oauth depends on josekit, and no crate on OpenSSL"));
            }
        }
    }
    for context in contexts {
        if graph.depends_directly(context, "hyper") {
            violations.push(format!("{context} → hyper: contexts do not depend on an HTTP server"));
        }
    }
    violations
}
