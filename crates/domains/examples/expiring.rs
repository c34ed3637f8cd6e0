//! Prints the domains that expire in the next month: `SVC_DATABASE_URL=… cargo run -p domains --example expiring`

use std::error::Error;

use domains::DomainRepository as _;
use kernel::{ClockRng, Secret};
use store::{Config, Store};

const MONTH_SECONDS: i64 = 31 * 24 * 3600;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "a single setting, and the error names it")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let store = Store::new(&Config::new(Secret::new(url), "expiring"), ClockRng::system())?;
    let end = store.clock_rng().now().plus_seconds(MONTH_SECONDS);
    for domain in store.connection().await?.domains_expiring(end, 1000).await? {
        let expires_at = domain.expires_at.map(|at| at.to_string()).unwrap_or_default();
        println!("{expires_at}  {}  {}", domain.name, domain.org);
    }
    Ok(())
}
