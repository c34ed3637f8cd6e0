//! How often one caller may come: a token bucket for each key (GCRA), and the headers that tell of it.

use std::net::IpAddr;
use std::num::NonZeroU32;

use actix_web::http::header::RETRY_AFTER;
use actix_web::{HttpMessage as _, HttpRequest};
use governor::clock::{Clock as _, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{Quota, RateLimiter};
use kernel::TokenHash;

use crate::config::RateLimits;
use crate::problem::Problem;
use crate::protocol;

/// Which limit a route counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Endpoints that sign in: by address, few.
    SignIn,
    /// Everything else: by credential.
    Credential,
}

/// Who is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Address(IpAddr),
    Credential(TokenHash),
}

type Bucket = RateLimiter<Key, DefaultKeyedStateStore<Key>, DefaultClock, StateInformationMiddleware>;

/// The limits of this process.
pub struct Limiters {
    sign_in: (Bucket, u32),
    credential: (Bucket, u32),
}

/// What the `RateLimit` headers of an answer say (draft-ietf-httpapi-ratelimit-headers).
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    pub(crate) policy: String,
    pub(crate) state: String,
}

impl Limiters {
    /// Fresh buckets.
    #[must_use]
    pub fn new(limits: RateLimits) -> Self {
        let bucket = |per_minute: NonZeroU32| {
            (RateLimiter::keyed(Quota::per_minute(per_minute)).with_middleware(), per_minute.get())
        };
        Self { sign_in: bucket(limits.sign_in), credential: bucket(limits.credential) }
    }

    /// Forgets callers whose buckets are full again. To be called now and then.
    pub fn forget_idle(&self) {
        for (bucket, _) in [&self.sign_in, &self.credential] {
            bucket.retain_recent();
            bucket.shrink_to_fit();
        }
    }

    /// Counts a request; its answer will carry the headers.
    pub(crate) fn count(&self, request: &HttpRequest, limit: Limit, key: Key) -> Result<(), Problem> {
        let (name, (bucket, quota)) = match limit {
            Limit::SignIn => ("sign-in", &self.sign_in),
            Limit::Credential => ("credential", &self.credential),
        };
        let counted = bucket.check_key(&key);
        let remaining = counted.as_ref().map_or(0, |state| state.remaining_burst_capacity());
        let full_in = (quota.saturating_sub(remaining) * 60).div_ceil((*quota).max(1));
        request.extensions_mut().insert(Standing {
            policy: format!("\"{name}\";q={quota};w=60"),
            state: format!("\"{name}\";r={remaining};t={full_in}"),
        });
        counted.map(drop).map_err(|until| {
            let wait = until.wait_time_from(DefaultClock::default().now()).as_secs() + 1;
            let message = format!("too many requests; come back in {wait} s");
            Problem::new(&protocol::RATE_LIMITED, message).with_header(RETRY_AFTER, wait.to_string())
        })
    }
}
