//! The arithmetic of a bucket (GCRA). Times are in microseconds since 1970.

use actix_web::http::header::RETRY_AFTER;
use actix_web::{HttpMessage as _, HttpRequest};
use kernel::{Code, Time};

use crate::problem::Problem;

/// The time for which a process may use the permits that it took.
pub(super) const LOCAL_PERMIT_TTL_MICROS: i64 = 10_000_000;

/// A request for permits of a bucket in Postgres. Zero permits only read the bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PermitRequest {
    pub(crate) now: i64,
    pub(crate) permits: i64,
    /// The cost of a permit and the size of the bucket, in microseconds.
    pub(crate) cost: i64,
    pub(crate) bucket: i64,
}

/// The permits that Postgres granted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PermitGrant {
    pub(crate) permits: i64,
    pub(crate) reset_at: i64,
}

/// The local permits of a bucket, taken at `taken_at`.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalPermits {
    pub(super) permits: i64,
    pub(super) reset_at: i64,
    pub(super) taken_at: i64,
}

/// The values of the `RateLimit` headers (draft-ietf-httpapi-ratelimit-headers).
#[derive(Debug, Clone)]
pub(crate) struct RateLimitHeaders {
    pub(crate) policy: String,
    pub(crate) state: String,
}

impl PermitRequest {
    /// Creates a request for the permits of one second from a bucket that holds the permits of one minute.
    pub(super) fn new(per_minute: i64, now: i64) -> Self {
        let cost = (60_000_000 / per_minute).max(1);
        Self { now, permits: (per_minute / 60).max(1), cost, bucket: cost * per_minute }
    }

    /// Returns the number of permits that a full bucket holds.
    fn quota(&self) -> i64 {
        self.bucket / self.cost
    }

    /// Returns the number of permits that are left in the bucket. `reset_at` is the time when the bucket is full again.
    pub(super) fn remaining(&self, reset_at: i64) -> i64 {
        ((self.now + self.bucket - reset_at.max(self.now)) / self.cost).max(0)
    }
}

impl LocalPermits {
    /// Creates the state of a bucket without local permits.
    pub(super) fn none(needed: PermitRequest, granted: PermitGrant) -> Self {
        Self { permits: 0, reset_at: granted.reset_at, taken_at: needed.now }
    }

    /// Returns whether the clock went back since the permits were taken: even an empty bucket is full before `reset_at`.
    /// Then Postgres decides.
    pub(super) fn is_ahead(&self, needed: PermitRequest) -> bool {
        self.reset_at > needed.now + needed.bucket
    }

    /// Takes a permit, if one is left.
    pub(super) fn take(&mut self, needed: PermitRequest) -> bool {
        let is_available = self.has_permit(needed);
        self.permits -= i64::from(is_available);
        is_available
    }

    fn has_permit(&self, needed: PermitRequest) -> bool {
        self.permits > 0 && needed.now < self.taken_at + LOCAL_PERMIT_TTL_MICROS && !self.is_ahead(needed)
    }

    /// Returns whether neither this process nor the bucket has a permit left.
    pub(super) fn is_exhausted(&self, needed: PermitRequest) -> bool {
        !self.has_permit(needed) && needed.remaining(self.reset_at) == 0 && !self.is_ahead(needed)
    }

    /// Adds granted permits, and takes one of them. Returns false if none is left, because concurrent requests of the
    /// caller may have received all of them. A request for zero permits already has its permit.
    pub(super) fn accept(&mut self, needed: PermitRequest, granted: PermitGrant) -> bool {
        // Concurrent responses of Postgres arrive in any order, so the later time applies.
        self.reset_at = if self.is_ahead(needed) { granted.reset_at } else { self.reset_at.max(granted.reset_at) };
        if needed.permits == 0 {
            return true;
        }
        if self.taken_at + LOCAL_PERMIT_TTL_MICROS <= needed.now {
            self.permits = 0;
        }
        self.permits += granted.permits;
        self.taken_at = needed.now;
        self.take(needed)
    }

    /// Returns the number of permits that the caller has left, in this process and in the bucket. The bucket can be full
    /// while this process still has permits, but the `RateLimit` header must not exceed the quota.
    pub(super) fn remaining(&self, needed: PermitRequest) -> i64 {
        (needed.remaining(self.reset_at) + self.permits).min(needed.quota())
    }
}

/// Sets the headers of the response.
pub(super) fn set_headers(request: &HttpRequest, name: &str, needed: PermitRequest, local: LocalPermits) {
    let (quota, remaining) = (needed.quota(), local.remaining(needed));
    let full_in = seconds(local.reset_at - needed.now);
    request.extensions_mut().insert(RateLimitHeaders {
        policy: format!("\"{name}\";q={quota};w=60"),
        state: format!("\"{name}\";r={remaining};t={full_in}"),
    });
}

/// Returns the error 429, with the headers of the bucket, and the time after which the bucket has a permit again.
pub(super) fn refuse(request: &HttpRequest, name: &str, needed: PermitRequest, local: LocalPermits) -> Problem {
    set_headers(request, name, needed, LocalPermits { permits: 0, ..local });
    let wait = seconds(local.reset_at + needed.cost - needed.bucket - needed.now).max(1);
    let message = format!("too many requests; retry in {wait} s");
    Problem::new(&Code::RATE_LIMITED, message).with_header(RETRY_AFTER, wait.to_string())
}

/// Converts to whole seconds, rounded up.
fn seconds(micros: i64) -> i64 {
    (micros.max(0) + 999_999) / 1_000_000
}

pub(super) fn micros(time: Time) -> i64 {
    time.unix_millis() * 1000
}
