//! Announcement of the node's Postgres to the control plane: at the start, and then once in each relist interval.

use std::time::Duration;

use daemon::Backoff;
use protocol::NodeInfo;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::exclusive::Ownership;
use crate::client::Core;
use crate::follow::RELIST_INTERVAL;

const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// How long the first announcement waits for Postgres, which may still be starting.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Announces until the task is stopped. A Postgres that another node manages is not announced.
pub async fn announce(core: Core, info: NodeInfo, ownership: Option<watch::Receiver<Ownership>>) {
    let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
    let mut ownership = ownership.unwrap_or_else(|| watch::channel(Ownership::Held).1);
    // If the ownership is still unknown after this timeout, the node announces its Postgres anyway, because the control
    // plane assigns projects with a database only to nodes that have announced a Postgres.
    let _ = timeout(TIMEOUT, ownership.wait_for(|ownership| *ownership != Ownership::Unknown)).await;
    loop {
        let is_other = *ownership.borrow_and_update() == Ownership::Other;
        let announced = NodeInfo { database: info.database.clone().filter(|_| !is_other) };
        let delay = match core.announce(&announced).await {
            Ok(()) => {
                backoff.reset();
                RELIST_INTERVAL
            }
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "failed to announce the node; retrying");
                backoff.next_delay()
            }
        };
        tokio::select! {
            () = sleep(delay) => {}
            Ok(()) = ownership.changed() => {}
        }
    }
}
