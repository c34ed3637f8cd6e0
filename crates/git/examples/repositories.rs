//! Prints the repositories of a project: `SVC_DATABASE_URL=… cargo run -p git --example repositories -- <project id>`

use std::error::Error;

use git::RepoRepository as _;
use kernel::{ClockRng, Paging, ProjectId, Secret};
use store::{Config, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "a single setting, and the error names it")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let project: ProjectId = std::env::args().nth(1).ok_or("the project ID is missing")?.parse()?;
    let store = Store::new(&Config::new(Secret::new(url), "repositories"), ClockRng::system())?;
    let paging = Paging { limit: 200, after: None };
    for repo in store.connection().await?.repo_list(project, &paging).await? {
        println!("{}  {}  {}", repo.name, repo.visibility, repo.default_branch);
    }
    Ok(())
}
