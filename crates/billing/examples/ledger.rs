//! Prints the AI credit of an organization and its newest changes, in microcents:
//! `SVC_DATABASE_URL=… cargo run -p billing --example ledger -- org_…`

use std::error::Error;

use billing::AccountRepository as _;
use kernel::{ClockRng, OrgId, Secret};
use store::{Config, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "a single setting, and the error names it")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let org: OrgId = std::env::args().nth(1).ok_or("the organization ID is missing")?.parse()?;
    let store = Store::new(&Config::new(Secret::new(url), "ledger"), ClockRng::system())?;
    let mut connection = store.connection().await?;
    println!("credit: {}", connection.account_balance(org).await?);
    for row in connection.ledger_list(org, 20, None).await? {
        println!("{}  {}  {}", row.created_at, row.kind, row.amount_micro_cents);
    }
    Ok(())
}
