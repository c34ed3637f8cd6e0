//! Announces the node's Postgres to the control plane, at the start and as often as the node relists.

use std::time::Duration;

use protocol::NodeInfo;
use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::client::Core;
use crate::follow::RELIST_INTERVAL;

const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Announces until the task is stopped.
pub async fn announce(core: Core, info: NodeInfo) {
    let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
    loop {
        match core.announce(&info).await {
            Ok(()) => {
                backoff.reset();
                sleep(RELIST_INTERVAL).await;
            }
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "failed to announce the node; retrying");
                sleep(backoff.next_delay()).await;
            }
        }
    }
}
