//! Prints what a node is to serve, as the node itself would be told:
//! `SVC_DATABASE_URL=… cargo run -p convergence --example desired -- <node id>`

use std::error::Error;
use std::time::Duration;

use convergence::Convergence;
use kernel::{Secret, World};
use store::{Config, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "one setting, and its error names it well enough")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let node = std::env::args().nth(1).ok_or("which node? give its id")?.parse()?;
    let store = Store::new(&Config::new(Secret::new(url), "desired"), World::system())?;

    let desired = Convergence::new(store).desired(node, 0, Duration::ZERO).await?;
    println!("revision {}", desired.revision);
    for placed in desired.sites {
        match placed.site {
            Some(site) => println!("{} {} {} {}", placed.project, site.version, site.bundle, site.hostnames.join(" ")),
            None => println!("{} no longer", placed.project),
        }
    }
    Ok(())
}
