//! Prints the nodes of an installation, as a tool of an operator could:
//! `SVC_DATABASE_URL=… cargo run -p convergence --example nodes`

use std::error::Error;

use convergence::Nodes;
use kernel::{ClockRng, Secret};
use store::{Config, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "the example reads one setting, and its error names it")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let store = Store::new(&Config::new(Secret::new(url), "nodes"), ClockRng::system())?;
    for view in Nodes::new(store).list().await? {
        println!("{} {} {}", view.node.id, view.node.name, view.placements);
    }
    Ok(())
}
