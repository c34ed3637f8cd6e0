//! Beside a bare actix-web program that answers the same bytes.

use std::fs;

use anyhow::Result;
use serde_json::{Value, json};
use xtask::probe;
use xtask::services::Services;
use xtask::workspace;

use super::Lab;
use crate::bench::machine::free_address;
use crate::bench::report::{BESIDE, Report};
use crate::bench::server::Server;

const PATHS: [&str; 2] = ["/healthz", "/v1/config"];

/// What actix-web writes by itself.
const OWN_HEADERS: [&str; 3] = ["content-length", "date", "transfer-encoding"];

/// Prints a row for each path, and one of the bare program's before it.
pub async fn compare(services: &mut Services, lab: &Lab<'_>, report: &mut Report) -> Result<()> {
    let server = lab.server(services, "fixed", lab.database("of_fixed").await?).await?;
    let mut answers = Vec::new();
    for path in PATHS {
        answers.push(answer(&server, path).await?);
    }
    let file = lab.folder.join("answers.json");
    fs::write(&file, serde_json::to_vec(&answers)?)?;
    let bare = free_address()?;
    let program = workspace::binaries(true)?.join("bare");
    services.start("bare", &program, lab.folder, |it| {
        it.arg(bare.to_string()).arg(&file);
    })?;
    services.during(probe::until_ok(bare, "/healthz")).await?;
    report.section(
        "Beside bare actix-web",
        "The bare program answers the same headers and the same body, from memory. `SVC_LOG=warn`, as everywhere here.",
    )?;
    report.columns(BESIDE)?;
    for path in PATHS {
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..lab.args.rounds {
            runs[0].push(services.during(lab.load().run(&format!("http://{bare}{path}"), &[])).await?);
            runs[1].push(services.during(lab.load().run(&server.url(path), &[])).await?);
        }
        report.beside(&format!("`{path}`"), [("bare", &runs[0]), ("ours", &runs[1])])?;
    }
    Ok(())
}

/// What the server answers, as the bare program is to.
async fn answer(server: &Server, path: &str) -> Result<Value> {
    let answer = server.client().get(server.url(path)).send().await?.error_for_status()?;
    let headers = answer.headers().iter().filter(|(name, _)| !OWN_HEADERS.contains(&name.as_str()));
    let headers: Vec<_> =
        headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned())).collect();
    Ok(json!({ "path": path, "headers": headers, "body": answer.text().await? }))
}
