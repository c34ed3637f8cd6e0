//! Rate limits that all processes share: token buckets in `store.rate_limits` (GCRA).

use std::sync::LazyLock;
use std::time::Duration;

use diesel::sql_types::{BigInt, Text};
use diesel_async::RunQueryDsl as _;

use crate::{Prepared, Result, Store};

/// The size of a bucket, which refills completely in one period. A period grants fewer than twice this many permits:
/// the full bucket, and the permits that return before the period ends. A quota without permits grants none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub permits: u32,
    pub period: Duration,
}

impl Quota {
    /// Returns the quota that grants at most `limit` permits in any hour, half of them in one burst.
    #[must_use]
    pub fn at_most_per_hour(limit: u32) -> Self {
        Self { permits: limit.div_ceil(2), period: Duration::from_secs(3600) }
    }

    /// Returns the quota that grants at most `limit` permits in any 24 hours, half of them in one burst.
    #[must_use]
    pub fn at_most_per_day(limit: u32) -> Self {
        Self { period: Duration::from_secs(24 * 3600), ..Self::at_most_per_hour(limit) }
    }
}

/// The numbers of the parameters of a statement that takes permits of a bucket.
#[derive(Debug, Clone, Copy)]
pub struct PermitParameters {
    /// The time in microseconds since 1970.
    pub now: usize,
    /// The requested permits. Zero permits only read the bucket.
    pub permits: usize,
    /// The cost of a permit in microseconds.
    pub cost: usize,
    /// The size of the bucket in microseconds.
    pub bucket: usize,
}

static CHARGE: LazyLock<String> =
    LazyLock::new(|| PermitParameters { now: 2, permits: 3, cost: 4, bucket: 5 }.charge("$1", ""));

#[derive(diesel::QueryableByName)]
struct Charged {
    #[diesel(sql_type = BigInt)]
    granted: i64,
    #[diesel(sql_type = BigInt)]
    reset_at: i64,
}

impl PermitParameters {
    /// Returns an `INSERT` that charges a bucket for the granted permits, which may be none. It returns `granted` and
    /// `reset_at`, the time in microseconds at which the bucket is full again. `key` is the SQL expression of the
    /// bucket's key. `from` contains the tables to which `key` refers, if any.
    #[must_use]
    pub fn charge(self, key: &str, from: &str) -> String {
        let Self { now, permits, cost, bucket } = self;
        // An empty bucket is full again after `bucket`. A process with a fast clock may have written a later time, so
        // later times are reduced to this one.
        let reset_at = format!("LEAST(GREATEST(r.reset_at, ${now}), ${now} + ${bucket})");
        let granted = format!("LEAST(${permits}, GREATEST(0, (${now} + ${bucket} - {reset_at}) / ${cost}))");
        format!(
            "INSERT INTO store.rate_limits AS r (key, reset_at, granted) \
             SELECT {key}, ${now} + ${permits} * ${cost}, ${permits} {from} \
             ON CONFLICT (key) DO UPDATE SET granted = {granted}, reset_at = {reset_at} + ${cost} * {granted} \
             RETURNING granted, reset_at"
        )
    }
}

impl Store {
    /// Takes all of these permits from a bucket, or none. If it takes none, returns the time until all of them are
    /// free. Zero permits only check whether one is free. Calls with the same key must use the same quota.
    ///
    /// # Errors
    /// Returns an error if the statement fails.
    pub async fn permits_take(&self, key: &str, quota: Quota, permits: u32) -> Result<Option<Duration>> {
        if quota.permits == 0 {
            return Ok(Some(quota.period));
        }
        let quota_permits = i64::from(quota.permits);
        let cost = (i64::try_from(quota.period.as_micros()).unwrap_or(i64::MAX) / quota_permits).max(1);
        let bucket = cost.saturating_mul(quota_permits);
        let mut connection = self.connection().await?;
        let now = self.corrected_now(&mut connection).await?.unix_millis().saturating_mul(1000);
        // Take one permit that costs as much as all of them, because the statement may otherwise grant only a part.
        let cost = cost.saturating_mul(i64::from(permits.max(1))).min(bucket);
        let charge = diesel::sql_query(CHARGE.as_str())
            .bind::<Text, _>(key)
            .bind::<BigInt, _>(now)
            .bind::<BigInt, _>(i64::from(permits.min(1)))
            .bind::<BigInt, _>(cost)
            .bind::<BigInt, _>(bucket);
        let Charged { granted, reset_at } = Prepared(charge).get_result(&mut *connection).await?;
        let wait = reset_at.saturating_add(cost).saturating_sub(bucket).saturating_sub(now).max(0);
        Ok((granted == 0 && wait > 0).then(|| Duration::from_micros(wait.unsigned_abs())))
    }
}
