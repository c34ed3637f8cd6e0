//! The rules of the dependencies between crates.

use super::graph::Graph;

/// The crates that depend on no other crates of the workspace than these, and the reason.
const ALLOWED: &[(&str, &[&str], &str)] = &[
    ("retry", &[], "this crate has no workspace dependencies"),
    ("semaphores", &[], "this crate has no workspace dependencies"),
    ("sha256", &[], "this crate has no workspace dependencies"),
    ("webhooks", &[], "this crate has no workspace dependencies"),
    ("tls", &["semaphores"], "the only workspace dependency of tls is semaphores"),
    ("client", &[], "client depends only on the OpenAPI document"),
    ("kernel", &["semaphores", "sha256"], "the only workspace dependencies of kernel are semaphores and sha256"),
    ("protocol", &["sha256"], "the only workspace dependency of protocol is sha256"),
    ("store", &["kernel", "semaphores", "sha256"], "the only workspace dependency of store is kernel"),
    (
        "providers",
        &["kernel", "retry", "semaphores", "sha256", "webhooks"],
        "the only workspace dependencies of providers are kernel, retry and webhooks",
    ),
    ("objects", &["settings"], "the only workspace dependency of objects is settings"),
    ("daemon", &["settings"], "the only workspace dependency of daemon is settings"),
    ("sandbox", &["settings"], "the sandbox simulates external systems and shares no code with the product"),
    (
        "git-node",
        &["bundle", "daemon", "protocol", "semaphores", "settings", "sha256"],
        "the git node depends on the control plane only through the protocol",
    ),
    (
        "mail-node",
        &["daemon", "protocol", "settings", "sha256"],
        "the mail node depends on the control plane only through the protocol",
    ),
    (
        "node",
        &["bundle", "daemon", "objects", "protocol", "retry", "semaphores", "settings", "sha256", "tls"],
        "a node depends on the control plane only through the protocol",
    ),
    ("cli", &["client", "bundle"], "cli depends on the platform only through the API client and bundles"),
];

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

/// The check, with the violations so far.
struct Check<'a> {
    graph: &'a Graph,
    violations: Vec<String>,
}

pub fn check(graph: &Graph) -> Vec<String> {
    let mut check = Check { graph, violations: Vec::new() };
    let contexts: Vec<&str> = graph.contexts().collect();
    for member in graph.members() {
        for other in graph.members().filter(|other| *other != member) {
            check.members(member, other);
            if contexts.contains(&member) {
                check.context(member, other, contexts.contains(&other));
            }
        }
        check.libraries(member);
    }
    for context in contexts {
        if graph.depends_directly(context, "hyper") {
            check.violations.push(format!("{context} → hyper: contexts do not depend on an HTTP server"));
        }
    }
    check.violations
}

impl Check<'_> {
    fn forbid(&mut self, from: &str, to: &str, rule: &str) {
        let path = self.graph.shortest_path(from, to);
        self.violations.extend(path.map(|path| format!("{}: {rule}", path.join(" → "))));
    }

    /// Checks whether a crate of the workspace depends on another one.
    fn members(&mut self, member: &str, other: &str) {
        let allowed = ALLOWED.iter().find(|(name, ..)| *name == member);
        if let Some((_, dependencies, rule)) = allowed
            && !dependencies.contains(&other)
        {
            self.forbid(member, other, rule);
        }
        if member == "xtask" && NOT_FOR_OPERATORS.contains(&other) {
            self.forbid(member, other, "the operator program stays small: this crate is for tests and the lab");
        }
        if other == "client" && member != "cli" {
            self.forbid(member, other, "only cli depends on the generated client");
        }
        if ["chaos", "sandbox", "testkit"].contains(&other) && !["chaos", "lab", "sandbox", "testkit"].contains(&member)
        {
            self.forbid(member, other, "fixtures, the sandbox and fault injection are for tests and the lab");
        }
    }

    /// Checks whether a context depends on another crate of the workspace, which may be a context.
    fn context(&mut self, context: &str, other: &str, is_context: bool) {
        if is_context {
            self.forbid(context, other, "contexts do not depend on each other, but declare ports");
        } else if ["providers", "gateway"].contains(&other) {
            self.forbid(context, other, "contexts do not depend on provider adapters or on HTTP");
        } else if other == "protocol" && context != "convergence" {
            let rule = "contexts write desired state through a port; only the wiring uses the wire types";
            self.forbid(context, other, rule);
        }
    }

    /// Checks the libraries of a crate of the workspace.
    fn libraries(&mut self, member: &str) {
        if !HTTP_CRATES.contains(&member) {
            for server in HTTP_SERVERS {
                self.forbid(member, server, "only gateway and the programs depend on an HTTP server");
            }
        }
        for library in BANNED_LIBRARIES {
            self.forbid(member, library, "this library is banned; see deny.toml");
        }
        if !OPENSSL_CRATES.contains(&member) {
            self.forbid(member, "openssl-sys", "only the authorization server uses OpenSSL, through josekit");
        }
        for library in ["josekit", "openssl"] {
            if self.graph.depends_directly(member, library) && (member, library) != ("oauth", "josekit") {
                let rule = "only oauth depends on josekit, and no crate on OpenSSL";
                self.violations.push(format!("{member} → {library}: {rule}"));
            }
        }
    }
}
