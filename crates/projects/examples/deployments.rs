//! Lists an organization's projects with the last deployments of each, the live one marked:
//! `SVC_DATABASE_URL=… cargo run -p projects --example deployments -- <org id>`

use std::error::Error;

use kernel::{OrgId, Paging, Secret, World};
use projects::{DeploymentRepository as _, ProjectRepository as _};
use store::{Config, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "one setting, and its error names it well enough")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let org: OrgId = std::env::args().nth(1).ok_or("which organization? give its id")?.parse()?;
    let store = Store::new(&Config::new(Secret::new(url), "deployments"), World::system())?;
    let mut connection = store.connection().await?;

    let mut paging = Paging::default();
    loop {
        // The organization's slug is only passed on, and not shown here.
        let projects = connection.project_list(org, "", None, &paging).await?;
        let Some(last) = projects.last() else { return Ok(()) };
        paging.after = Some(last.id);
        for project in projects {
            println!("{} {}", project.id, project.hostname);
            let few = Paging { limit: 5, after: None };
            for deployment in connection.deployment_list(project.id, &few).await? {
                let live = if deployment.live { "live" } else { "" };
                println!("  {} {} {live}", deployment.version, deployment.digest);
            }
        }
    }
}
