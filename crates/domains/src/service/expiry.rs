//! Notifies organizations of domains that expire soon.

use kernel::{DomainId, Time};
use store::Connection;

use super::{Domains, Result};
use crate::error::DomainError;
use crate::model::DomainState;
use crate::ports::Notice;
use crate::repository::{DomainRecord, DomainRepository as _};

/// The numbers of days before the expiry at which the organization is notified.
const NOTICE_DAYS: [i32; 4] = [30, 14, 7, 1];

const DAY_SECONDS: i64 = 24 * 3600;

impl Domains {
    /// Notifies organizations of domains that expire in 30, 14, 7 or 1 days, once for each number. Run it every hour.
    ///
    /// # Errors
    /// [`DomainError::Store`].
    pub async fn notify_expiring(&self) -> Result<()> {
        loop {
            let now = self.now();
            let due = self.store.connection().await?.domains_to_notify(now, &NOTICE_DAYS, store::BATCH_SIZE).await?;
            for domain in &due {
                self.notify(*domain).await?;
            }
            if !store::is_full_batch(due.len()) {
                return Ok(());
            }
        }
    }

    async fn notify(&self, domain: DomainId) -> Result<()> {
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                let Some(domain) = tx.domain_lock_by_id(domain).await? else { return Ok(()) };
                let Some((expires_at, days)) = self.due_notice(&domain) else { return Ok(()) };
                let notified =
                    DomainRecord { notified_days: Some(days), notified_expiry: Some(expires_at), ..domain.clone() };
                self.update_locked(tx, &notified).await?;
                let notice = Notice::Expiring { domain: domain.name, expires_at };
                self.ports.organizations.raise(tx, domain.org, notice).await?;
                Ok::<_, DomainError>(())
            })
            .await
    }

    /// Returns the expiry and the number of days of the notification that is due for a locked domain.
    fn due_notice(&self, domain: &DomainRecord) -> Option<(Time, i32)> {
        let expires_at = domain.expires_at.filter(|_| domain.state == DomainState::Active)?;
        let left = expires_at.unix_seconds() - self.now().unix_seconds();
        // If the job missed several notifications, it sends only the last one.
        let days = NOTICE_DAYS.into_iter().rev().find(|days| left <= i64::from(*days) * DAY_SECONDS)?;
        let is_sent =
            domain.notified_expiry == Some(expires_at) && domain.notified_days.is_some_and(|sent| sent <= days);
        (left > 0 && !is_sent).then_some((expires_at, days))
    }
}
