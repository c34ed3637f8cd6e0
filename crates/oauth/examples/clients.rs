//! Prints the registered apps: `SVC_DATABASE_URL=… cargo run -p oauth --example clients`

use std::error::Error;

use kernel::{ClockRng, Secret};
use oauth::Clients;
use store::{Config, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "a single setting, and the error names it")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let store = Store::new(&Config::new(Secret::new(url), "clients"), ClockRng::system())?;
    for client in Clients::new(store).list().await? {
        println!("{}  {}", client.client_id, client.name);
    }
    Ok(())
}
