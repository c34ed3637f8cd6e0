//! The reference pages in `docs/` that are generated from the code.

use gateway::SignInMethods;

use crate::config::TABLE;

/// Renders a reference page: `openapi`, `errors`, `routes`, `nodes` or `settings`.
#[must_use]
pub fn print(page: &str) -> Option<String> {
    let routes = gateway::v1::routes(SignInMethods { dev: true, code_host: true });
    match page {
        "openapi" => Some(format!("{:#}\n", gateway::document(&routes))),
        "errors" => Some(gateway::errors_markdown(&routes)),
        "routes" => Some(gateway::routes_markdown(&routes, &gateway::internal_routes())),
        "nodes" => Some(format!("{:#}\n", gateway::node_schema(&gateway::internal_routes()))),
        "settings" => Some(settings::markdown("The control plane", TABLE)),
        _ => None,
    }
}
