//! Prints the resources granted to a project:
//! `SVC_DATABASE_URL=… cargo run -p resources --example grants -- prj_…`

use std::error::Error;

use kernel::{ClockRng, ProjectId, Secret};
use resources::GrantRepository as _;
use store::{Config, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "a single setting, and the error names it")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let project: ProjectId = std::env::args().nth(1).ok_or("the project ID is missing")?.parse()?;
    let store = Store::new(&Config::new(Secret::new(url), "grants"), ClockRng::system())?;
    for resource in store.connection().await?.grant_list(project).await?.iter() {
        println!("{resource}");
    }
    Ok(())
}
