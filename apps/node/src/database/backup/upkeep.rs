//! Periodic work on stored objects: retention, the comparison of records with the store, and checks of digests. One
//! task does all of it, so that no object is deleted while it is compared. If the store fails to delete or to return an
//! object, the work continues with the others.

use std::sync::Arc;
use std::time::Duration;

use daemon::{Backoff, error_chain};
use tokio::time::{Instant, sleep};

use super::Service;
use super::error::{BackupError, Result, failure_text};
use super::records::Dump;

/// The longest time between two repetitions.
const MAX_INTERVAL: Duration = Duration::from_secs(10 * 60);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// The number of backup intervals between two listings of the store. With the default interval, this is a day.
const INVENTORY_INTERVALS: u32 = 24;
/// The number of backup intervals after which the digest of an object is checked again. With the default interval, this
/// is a week.
const CHECK_INTERVALS: u32 = 24 * 7;

/// Repeats the work. The first repetition waits until the node knows which objects the control plane may ask for.
pub(super) async fn run(service: Arc<Service>) {
    service.desired.wait_until_complete().await;
    let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
    let mut next_inventory = Instant::now() + service.interval;
    loop {
        match service.keep_up(&mut next_inventory).await {
            Ok(()) => {
                backoff.reset();
                sleep(service.interval.min(MAX_INTERVAL)).await;
            }
            Err(error) => {
                let error = error_chain(error);
                tracing::warn!(error, "failed to check the stored backups; trying again");
                sleep(backoff.next_delay()).await;
            }
        }
    }
}

impl Service {
    async fn keep_up(&self, next_inventory: &mut Instant) -> Result<()> {
        self.delete_interrupted().await?;
        self.delete_expired().await?;
        if *next_inventory <= Instant::now() {
            let intervals = if self.compare_store().await? { INVENTORY_INTERVALS } else { 1 };
            *next_inventory = Instant::now() + self.interval * intervals;
        }
        self.check_digests().await
    }

    /// Checks the digests of the objects that were not checked for this time.
    async fn check_digests(&self) -> Result<()> {
        let age = (self.interval * CHECK_INTERVALS).as_secs();
        let due = format!(
            "stored AND NOT damaged AND checked_at < now() - interval '{age} seconds' AND key <> ALL ($1)
             ORDER BY checked_at LIMIT 100"
        );
        for dump in self.dumps(&due, &[&self.failed.keys()]).await? {
            let checked = self.verify(&dump.object).await;
            self.metrics.count_check(&checked);
            match checked {
                Ok(()) => self.set_checked(&dump.object.key).await?,
                Err(error @ (BackupError::Missing(_) | BackupError::Corrupt(_))) => {
                    self.record_damage(&dump, &error).await?;
                }
                Err(error) => self.failed.record(&dump.object.key, error),
            }
            // Checking many large objects takes long, so interrupted dumps are deleted in between.
            self.delete_interrupted().await?;
        }
        Ok(())
    }

    pub(super) async fn record_damage(&self, dump: &Dump, error: &BackupError) -> Result<()> {
        tracing::error!(
            project = dump.project,
            key = dump.object.key,
            kind = dump.kind.as_str(),
            %error,
            "a stored backup is damaged"
        );
        let consequence = "This backup is lost. The platform makes a new backup of the present content. Other backups \
                           are not affected";
        self.set_damaged(&dump.object.key, &failure_text(&error.to_string(), consequence)).await
    }
}
