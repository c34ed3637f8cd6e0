//! Lists an organization's projects with their latest deployments, and marks the live one:
//! `SVC_DATABASE_URL=… cargo run -p projects --example deployments -- <org id>`

use std::error::Error;

use kernel::{ClockRng, OrgId, Paging, Secret};
use projects::{DeploymentRepository as _, ProjectRepository as _};
use store::{Config, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "a single setting, and the error names it")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let org: OrgId = std::env::args().nth(1).ok_or("the organization ID is missing")?.parse()?;
    let store = Store::new(&Config::new(Secret::new(url), "deployments"), ClockRng::system())?;
    let connection = store.connection().await?;

    let mut paging = Paging::default();
    loop {
        // The output does not contain the slug.
        let projects = connection.project_list(org, "", None, &paging).await?;
        let Some(last) = projects.last() else { return Ok(()) };
        paging.after = Some(last.id);
        for project in projects {
            println!("{} {}", project.id, project.hostname);
            let latest = Paging { limit: 5, after: None };
            for deployment in connection.deployment_list(project.id, &latest).await? {
                let live = if deployment.live { "live" } else { "" };
                println!("  {} {} {live}", deployment.version, deployment.digest);
            }
        }
    }
}
