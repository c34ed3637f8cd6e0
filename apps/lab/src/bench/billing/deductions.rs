//! Measures AI calls per second. For each call, a node sends two requests: one to admit the call, and one to settle it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection as _};
use kernel::{OrgId, ProjectId};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use testkit::random_id;

use super::{Args, repeat};
use crate::bench::platform::Platform;
use crate::bench::report::Report;
use crate::bench::server::{self, success_json};

/// The credit of each organization: 100,000 dollars.
const CREDIT: i64 = 10_000_000_000_000;

/// A simulated node that calls the control plane.
struct Node {
    client: Client,
    base: String,
    token: String,
    projects: Vec<String>,
    next: AtomicUsize,
}

impl Node {
    /// Admits and settles a call of the next project.
    async fn call(&self) -> Result<()> {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.projects.len();
        let (id, project) = (random_id().to_string(), self.projects.get(next).context("no project")?);
        let call = json!({ "id": id, "project": project, "model": "small", "inputTokens": 10 });
        let admission = success_json(self.post("calls", &call).await?).await?;
        ensure!(admission.get("admitted").is_some(), "not admitted: {admission}");
        let usage = json!({ "inputTokens": 10, "outputTokens": 100, "estimated": false });
        let settled = self.post("settlements", &json!({ "ended": [{ "id": id, "usage": usage }], "open": [] })).await?;
        ensure!(settled.status().as_u16() == 204, "a settlement returned {}", settled.status());
        Ok(())
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Response> {
        let request = self.client.post(format!("{}/internal/v1/ai/{path}", self.base)).bearer_auth(&self.token);
        Ok(request.json(body).send().await?)
    }
}

/// Adds a row for one account, and a row for many.
pub async fn measure(
    report: &mut Report,
    platform: &Platform,
    folder: &Path,
    database: &mut AsyncPgConnection,
    args: &Args,
) -> Result<()> {
    report.paragraph(&format!(
        "**Calls.** A simulated node sends two requests for each call: one admits it, the other settles it. {} \
         clients, {} s.",
        args.clients, args.seconds
    ))?;
    report.columns(&["accounts", "per second", "p50 ms", "p99 ms"])?;
    let token = fs::read_to_string(folder.join("node.token"))?.trim().to_owned();
    let projects = create_projects(database, args.accounts.max(1)).await?;
    for accounts in [1, projects.len()] {
        let node = Arc::new(Node {
            client: server::client()?,
            base: platform.internal_url(),
            token: token.clone(),
            projects: projects.iter().take(accounts).cloned().collect(),
            next: AtomicUsize::new(0),
        });
        let run = repeat(args, move || {
            let node = Arc::clone(&node);
            async move { node.call().await }
        });
        let [rate, p50, p99] = run.await?.cells();
        report.row(&[&accounts.to_string(), &rate, &p50, &p99])?;
    }
    Ok(())
}

/// Creates organizations with credit, and a project of each at the only node. Returns the ids of the projects.
async fn create_projects(database: &mut AsyncPgConnection, count: usize) -> Result<Vec<String>> {
    let mut projects = Vec::new();
    for number in 0..count {
        let (org, project) = (random_id(), random_id());
        let statements = format!(
            "INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at) \
                 VALUES ('{org}', 'bench-{number}', 'bench', 'free', false, now()); \
             INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at) \
                 VALUES ('{project}', '{org}', 'bench', 'public', 0, now()); \
             INSERT INTO convergence.placements (project_id, node_id, state, epoch, created_at) \
                 SELECT '{project}', id, 'active', 1, now() FROM convergence.nodes; \
             INSERT INTO resources.grants VALUES ('{project}', 'ai', now()); {}",
            credit(&OrgId::from_uuid(org))
        );
        database.batch_execute(&statements).await?;
        projects.push(ProjectId::from_uuid(project).to_string());
    }
    Ok(projects)
}

/// Returns the statements that give credit to an organization.
pub fn credit(org: &OrgId) -> String {
    let org = org.as_uuid();
    format!(
        "INSERT INTO billing.accounts VALUES ('{org}', {CREDIT}, 1, now()); \
         INSERT INTO billing.ledger (org_id, ledger_id, kind, amount_micro_cents, balance_micro_cents, created_at) \
             VALUES ('{org}', 1, 'adjust', {CREDIT}, {CREDIT}, now());"
    )
}
