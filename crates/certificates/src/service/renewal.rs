//! The time of renewals.

use kernel::Time;

use super::Certificates;
use crate::repository::{CertificateRecord, CertificateRepository as _, NameRecord, NameRepository as _};

/// The interval of requests for renewal information (RFC 9773 section 4.3.2): 6 hours.
const CHECK_SECONDS: i64 = 6 * 3600;

impl Certificates {
    /// Returns the time of the renewal: two thirds of the lifetime after its begin, and a random part of up to a
    /// thirtieth, so that certificates that were issued together are not renewed together.
    pub(super) fn renewal_time(&self, not_before: Time, not_after: Time) -> Time {
        let lifetime = not_after.unix_seconds() - not_before.unix_seconds();
        not_before.plus_seconds(lifetime * 2 / 3 + self.random(lifetime / 30))
    }

    /// Returns the time of the run after an issue. It is at least 6 hours later, so that an authority cannot cause a
    /// loop of renewals.
    pub(super) fn due_time_after_issue(&self, renew_at: Time, renewal_id: Option<&String>) -> Time {
        self.due_time(renew_at, renewal_id).max(self.store.clock_rng().now().plus_seconds(CHECK_SECONDS))
    }

    /// Returns the time at which a name with a certificate is due: at its renewal, or earlier for the renewal
    /// information of the authority.
    fn due_time(&self, renew_at: Time, renewal_id: Option<&String>) -> Time {
        let now = self.store.clock_rng().now();
        match renewal_id {
            Some(_) => renew_at.min(now.plus_seconds(CHECK_SECONDS + self.random(CHECK_SECONDS / 10))),
            None => renew_at,
        }
    }

    /// Returns whether the certificate of a name is due for renewal. If it is not, follows the renewal information of
    /// the authority (RFC 9773), and schedules the next run.
    pub(super) async fn is_renewal_due(&self, name: &NameRecord) -> store::Result<bool> {
        let now = self.store.clock_rng().now();
        let Some(certificate) = self.store.connection().await?.certificate_find_by_name(&name.name).await? else {
            return Ok(true);
        };
        let Some(renew_at) = name.renew_at.filter(|renew_at| *renew_at > now) else { return Ok(true) };
        let renew_at = self.suggested_time(&certificate).await.map_or(renew_at, |(start, end)| {
            if (start..=end).contains(&renew_at) {
                renew_at
            } else {
                start.plus_seconds(self.random((end.unix_seconds() - start.unix_seconds()).max(0)))
            }
        });
        // The authority cannot postpone the renewal into the last sixth of the lifetime.
        let lifetime = certificate.not_after.unix_seconds() - certificate.not_before.unix_seconds();
        let renew_at = renew_at.min(certificate.not_after.plus_seconds(-lifetime / 6));
        if renew_at <= now {
            return Ok(true);
        }
        let due_at = self.due_time(renew_at, certificate.renewal_id.as_ref());
        self.store.connection().await?.name_set_renewal(&name.name, name.run, renew_at, due_at).await?;
        Ok(false)
    }

    /// Returns the time range that the authority suggests. `None` if it suggests none, or does not respond.
    async fn suggested_time(&self, certificate: &CertificateRecord) -> Option<(Time, Time)> {
        let authority = self.authority(&certificate.directory)?;
        match authority.renewal_window(certificate.renewal_id.as_ref()?).await {
            Ok(window) => window.map(|window| (window.start, window.end)),
            Err(error) => {
                tracing::debug!(name = certificate.name, %error, "failed to get renewal information");
                None
            }
        }
    }
}
