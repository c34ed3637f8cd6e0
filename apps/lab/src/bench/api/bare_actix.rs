//! Comparison with a bare actix-web server that returns the same bytes.

use std::fs;

use anyhow::Result;
use serde_json::{Value, json};
use xtask::probe;
use xtask::services::Services;
use xtask::workspace;

use super::environment::{CONNECTIONS, Environment};
use crate::bench::machine::IS_RELEASE;
use crate::bench::report::Report;
use crate::bench::server::Server;
use testkit::reserved_address;

const PATHS: [&str; 2] = ["/healthz", "/v1/config"];

/// Headers that actix-web adds to every response.
const ACTIX_HEADERS: [&str; 3] = ["content-length", "date", "transfer-encoding"];

/// Adds two rows per path: the bare server and the control API.
pub async fn compare(services: &mut Services, lab: &Environment<'_>, report: &mut Report) -> Result<()> {
    let server = lab.server(services, "fixed", lab.database("of_fixed").await?, CONNECTIONS).await?;
    let mut responses = Vec::new();
    for path in PATHS {
        responses.push(fetch_response(&server, path).await?);
    }
    let file = lab.folder.join("responses.json");
    fs::write(&file, serde_json::to_vec(&responses)?)?;
    let bare = reserved_address();
    let program = workspace::program_folder(IS_RELEASE)?.join("bare");
    services.start("bare", &program, lab.folder, |it| {
        it.arg(bare.to_string()).arg(&file);
    })?;
    services.supervise(probe::wait_until_ok(bare, "/healthz")).await?;
    report.paragraph("**Bare actix-web.** The bare program returns the same headers and body from memory.")?;
    report.comparison_columns(&[])?;
    for path in PATHS {
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..lab.args.rounds {
            runs[0].push(services.supervise(lab.load(CONNECTIONS).run(&format!("http://{bare}{path}"), &[])).await?);
            runs[1].push(services.supervise(lab.load(CONNECTIONS).run(&server.url(path), &[])).await?);
        }
        report.comparison(&format!("`{path}`"), &[("bare", &runs[0]), ("svc", &runs[1])])?;
    }
    Ok(())
}

/// Fetches the control API's response, in the format of the bare server's file.
async fn fetch_response(server: &Server, path: &str) -> Result<Value> {
    let response = server.client().get(server.url(path)).send().await?.error_for_status()?;
    let headers = response.headers().iter().filter(|(name, _)| !ACTIX_HEADERS.contains(&name.as_str()));
    let headers: Vec<_> =
        headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned())).collect();
    Ok(json!({ "path": path, "headers": headers, "body": response.text().await? }))
}
