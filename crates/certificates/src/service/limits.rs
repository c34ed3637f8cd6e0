//! The limits of the authorities, and the limits of organizations.

use std::sync::PoisonError;
use std::time::Duration;

use kernel::{OrgId, Time, UserId};
use store::Quota;

use super::Certificates;
use super::run::RunError;
use crate::ports::AuthorityError;
use crate::repository::{AccountRepository as _, NameRecord, OrderRepository as _};

/// The delay of a request that an authority has limited without stating a time: 1 hour.
const RETRY_SECONDS: i64 = 3600;

/// The limits of the delay: at least a minute, at most a day.
const RETRY_LIMITS: (i64, i64) = (60, 24 * 3600);

/// If the orders of this number of owners are limited within this time, the authority probably limits the account.
const LIMITED_OWNERS: usize = 3;
const LIMITED_SECONDS: i64 = 600;

/// The maximum pause after this conclusion, which can be wrong: 10 minutes. `Retry-After` is that of one order, whose
/// limit can be that of a name or a domain.
const MAX_INFERRED_PAUSE_SECONDS: i64 = 600;

/// The maximum random delay after the end of a pause: 1 hour.
const PAUSE_JITTER_SECONDS: i64 = 3600;

/// The orders of all free organizations of a user, or of one pro organization, whose creator may have left it. One user
/// then cannot use up the limits of the authority.
const ORDERS_PER_HOUR: Quota = Quota { permits: 20, period: Duration::from_secs(3600) };
const ORDERS_PER_DAY: Quota = Quota { permits: 100, period: Duration::from_secs(24 * 3600) };

/// The maximum random delay of an order after the organization's limit.
const ORDER_JITTER_SECONDS: i64 = 300;

/// The owner of names. The orders of an owner count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The creator of free organizations.
    Creator(UserId),
    Org(OrgId),
}

/// An owner whose order was limited by an authority.
#[derive(Debug, Clone)]
pub(super) struct LimitedOwner {
    directory: String,
    owner: Owner,
    at: Time,
}

/// Returns the delay for the value of `Retry-After`, in seconds.
pub(super) fn retry_seconds(retry_after: Option<i64>) -> i64 {
    let (min, max) = RETRY_LIMITS;
    retry_after.unwrap_or(RETRY_SECONDS).clamp(min, max)
}

impl Certificates {
    /// Stores the consequence of a failed request for an order: a pause of the authority if it is overloaded, or limits
    /// the orders of several owners.
    pub(super) async fn handle_order_error(
        &self,
        directory: &str,
        name: &NameRecord,
        error: AuthorityError,
    ) -> store::Result<RunError> {
        match &error {
            AuthorityError::RateLimited { retry_after, .. } => {
                let owner = self.owner(name.org).await?;
                if self.record_limited(directory, owner) {
                    let seconds = retry_seconds(*retry_after).min(MAX_INFERRED_PAUSE_SECONDS);
                    self.pause(directory, Some(seconds)).await?;
                }
            }
            AuthorityError::Overloaded { retry_after, .. } => self.pause(directory, *retry_after).await?,
            _ => {}
        }
        Ok(RunError::Authority(error))
    }

    /// Sends no requests to an authority for this time.
    pub(super) async fn pause(&self, directory: &str, retry_after: Option<i64>) -> store::Result<()> {
        let until = self.store.clock_rng().now().plus_seconds(retry_seconds(retry_after));
        self.store.connection().await?.pause_put(directory, until).await
    }

    /// Returns an error while an authority is paused. It contains a time after the end of the pause.
    pub(super) async fn check_pause(&self, directory: &str) -> Result<(), RunError> {
        let now = self.store.clock_rng().now();
        let Some(end) = self.store.connection().await?.pause_find(directory, now).await? else { return Ok(()) };
        let until = end.plus_seconds(self.random(PAUSE_JITTER_SECONDS));
        Err(RunError::Postponed { until, message: "the certificate authority limits the rate of orders".to_owned() })
    }

    /// Takes permits for orders from the quota. Zero permits only check whether one is free. The names of the platform
    /// need none.
    pub(super) async fn take_order_permits(&self, name: &NameRecord, permits: u32) -> Result<(), RunError> {
        if name.project.is_none() {
            return Ok(());
        }
        let (owner, subject) = match self.owner(name.org).await? {
            Owner::Creator(user) => (user.to_string(), "the free organizations of the same creator have reached their"),
            Owner::Org(org) => (org.to_string(), "the organization has reached its"),
        };
        for (period, quota) in [("hour", ORDERS_PER_HOUR), ("day", ORDERS_PER_DAY)] {
            let wait = self.store.permits_take(&format!("certificate-orders-{period} {owner}"), quota, permits).await?;
            if let Some(wait) = wait {
                let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX).max(60);
                let jitter = self.random(ORDER_JITTER_SECONDS);
                let until = self.store.clock_rng().now().plus_seconds(seconds.saturating_add(jitter));
                let message = format!("{subject} limit of certificate orders per {period}");
                return Err(RunError::Postponed { until, message });
            }
        }
        Ok(())
    }

    /// Returns the owner of an organization's names.
    async fn owner(&self, org: OrgId) -> store::Result<Owner> {
        let creator = self.store.connection().await?.free_org_creator(org).await?;
        Ok(creator.map_or(Owner::Org(org), Owner::Creator))
    }

    /// Records that an authority has limited an owner's order. Returns whether it probably limits the account.
    fn record_limited(&self, directory: &str, owner: Owner) -> bool {
        let at = self.store.clock_rng().now();
        let mut limited = self.limited.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = |it: &LimitedOwner| it.owner != owner || it.directory != directory;
        limited.retain(|it| is_other(it) && it.at.plus_seconds(LIMITED_SECONDS) > at);
        limited.push(LimitedOwner { directory: directory.to_owned(), owner, at });
        limited.iter().filter(|it| it.directory == directory).count() >= LIMITED_OWNERS
    }
}
