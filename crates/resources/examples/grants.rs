//! Prints the resources that a project is granted, as an operator's own tool might:
//! `SVC_DATABASE_URL=… cargo run -p resources --example grants -- prj_…`

use std::error::Error;

use kernel::{ProjectId, Secret, World};
use resources::Resources;
use store::{Config, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "one setting, and its error names it well enough")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let project: ProjectId = std::env::args().nth(1).ok_or("the id of a project is missing")?.parse()?;
    let store = Store::new(&Config::new(Secret::new(url), "grants"), World::system())?;
    for resource in Resources::new(store).granted(project).await?.iter() {
        println!("{resource}");
    }
    Ok(())
}
