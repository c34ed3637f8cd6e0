//! Prints the number of certificates that expire within 30 days:
//! `SVC_DATABASE_URL=… cargo run -p certificates --example expiring_certificates`

use std::error::Error;

use certificates::CertificateRepository as _;
use kernel::{ClockRng, Secret};
use store::{Config, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "a single setting, and the error names it")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let store = Store::new(&Config::new(Secret::new(url), "expiring_certificates"), ClockRng::system())?;
    let before = store.clock_rng().now().plus_seconds(30 * 24 * 3600);
    println!("{}", store.connection().await?.certificate_count_expiring(before).await?);
    Ok(())
}
