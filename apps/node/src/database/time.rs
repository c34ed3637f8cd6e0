//! Plausibility of the clocks of the node and of its Postgres. Deletions pause while a clock is not plausible.

use tokio_postgres::Client;

use crate::clock::{self, ReferenceClock};

/// Returns whether both clocks agree with that of the control plane.
///
/// # Errors
/// Returns an error if Postgres fails.
pub async fn is_plausible(client: &Client, reference: &ReferenceClock) -> Result<bool, tokio_postgres::Error> {
    let postgres = client.query_one("SELECT clock_timestamp()", &[]).await?.try_get(0)?;
    Ok(reference.agrees_with(clock::now()) && reference.agrees_with(postgres))
}
