//! Rate limits that all processes share: a bucket for each caller in Postgres (GCRA), from which a process takes a few
//! permits at a time. Few requests query Postgres, and all processes together never admit more than the limit.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

use actix_web::http::header::RETRY_AFTER;
use actix_web::{HttpMessage as _, HttpRequest};
use diesel::sql_types::{BigInt, Text};
use diesel_async::RunQueryDsl;
use kernel::{Time, TokenHash};
use store::{Prepared, Store};

use crate::config::RateLimits;
use crate::problem::Problem;
use crate::protocol;

/// How long a process may use the permits that it took.
const LOCAL_PERMIT_TTL_MICROS: i64 = 10_000_000;

/// The rate limit that a route counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Limit {
    /// Sign-in endpoints: a low limit for each address.
    SignIn,
    /// Previews of invitations: a low limit for each address, against guessing of tokens.
    Preview,
    /// All other routes: a limit for each credential, or for each address without a valid credential.
    General,
}

/// The caller that a request counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Address(IpAddr),
    Credential(TokenHash),
}

/// The rate limits, and the permits that this process holds.
pub struct Limiters {
    rates: RateLimits,
    local: Mutex<HashMap<(Limit, Key), LocalPermits>>,
}

/// The local permits of a caller, taken at `at`.
#[derive(Debug, Clone, Copy)]
struct LocalPermits {
    permits: i64,
    reset_at: i64,
    taken_at: i64,
}

/// A request for permits from Postgres. Times are in microseconds since 1970.
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

/// The result of a check of the local permits.
pub(crate) enum PermitCheck {
    /// The request took a local permit.
    Taken,
    /// The caller must ask Postgres and pass the grant to [`Limiters::accept_grant`].
    Ask(PermitRequest),
}

/// The values of the `RateLimit` headers (draft-ietf-httpapi-ratelimit-headers).
#[derive(Debug, Clone)]
pub(crate) struct RateLimitHeaders {
    pub(crate) policy: String,
    pub(crate) state: String,
}

/// The end of an `INSERT INTO store.rate_limits AS r (key, reset_at, granted)`: charges the caller's bucket for the granted
/// permits, which may be none. The parameters starting at `first` are the fields of [`PermitRequest`], in order.
pub(crate) fn grant(first: usize) -> String {
    let [now, permits, cost, bucket] = [0, 1, 2, 3].map(|at| format!("${}", first + at));
    // A process with a fast clock may have written a later time than an empty bucket has.
    let reset_at = format!("LEAST(GREATEST(r.reset_at, {now}), {now} + {bucket})");
    let granted = format!("LEAST({permits}, GREATEST(0, ({now} + {bucket} - {reset_at}) / {cost}))");
    format!(
        "ON CONFLICT (key) DO UPDATE SET granted = {granted}, reset_at = {reset_at} + {cost} * {granted} \
         RETURNING granted, reset_at"
    )
}

#[derive(diesel::QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    granted: i64,
    #[diesel(sql_type = BigInt)]
    reset_at: i64,
}

impl Limiters {
    /// Returns the limits, without any local permits.
    #[must_use]
    pub fn new(rates: RateLimits) -> Self {
        Self { rates, local: Mutex::default() }
    }

    /// Removes the expired local permits and the full buckets of idle callers. A background job calls it.
    ///
    /// # Errors
    /// Returns the error of Postgres.
    pub async fn purge_idle(&self, store: &Store) -> store::Result<()> {
        let now = micros(store.clock_rng().now());
        self.local().retain(|_, local| local.taken_at + LOCAL_PERMIT_TTL_MICROS > now || local.reset_at > now);
        let full = "DELETE FROM store.rate_limits WHERE key = ANY (ARRAY( \
            SELECT key FROM store.rate_limits WHERE reset_at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED))";
        loop {
            let full = diesel::sql_query(full).bind::<BigInt, _>(now).bind::<BigInt, _>(store::BATCH_SIZE);
            if !store::is_full_batch(Prepared(full).execute(&mut *store.connection().await?).await?) {
                return Ok(());
            }
        }
    }

    /// Counts a request by its address, and sets the headers of its response.
    pub(crate) async fn count_address(
        &self,
        request: &HttpRequest,
        store: &Store,
        limit: Limit,
        address: IpAddr,
    ) -> Result<(), Problem> {
        let key = Key::Address(address);
        let needed = match self.take_local(request, limit, key, store.clock_rng().now())? {
            PermitCheck::Taken => return Ok(()),
            PermitCheck::Ask(needed) => needed,
        };
        let insert = "INSERT INTO store.rate_limits AS r (key, reset_at, granted) VALUES ($1, $2 + $3 * $4, $3) ";
        let query = diesel::sql_query(format!("{insert}{}", grant(2)))
            .bind::<Text, _>(format!("{} {address}", limit.name()))
            .bind::<BigInt, _>(needed.now)
            .bind::<BigInt, _>(needed.permits)
            .bind::<BigInt, _>(needed.cost)
            .bind::<BigInt, _>(needed.bucket);
        let row: store::Result<Row> =
            Prepared(query).get_result(&mut *store.connection().await?).await.map_err(store::Error::from);
        let granted = match row {
            Ok(Row { granted, reset_at }) => PermitGrant { permits: granted, reset_at },
            Err(error) if error.refuses_writes() => self.grant_locally(limit, key, needed),
            Err(error) => return Err(error.into()),
        };
        self.accept_grant(request, limit, key, needed, granted)
    }

    /// Takes one of the caller's local permits.
    ///
    /// # Errors
    /// 429, if neither this process nor the caller's bucket has a permit left.
    pub(crate) fn take_local(
        &self,
        request: &HttpRequest,
        limit: Limit,
        key: Key,
        now: Time,
    ) -> Result<PermitCheck, Problem> {
        let (now, needed) = (micros(now), self.permit_request(limit, micros(now)));
        let mut all = self.local();
        if let Some(local) = all.get_mut(&(limit, key)) {
            if local.permits > 0 && now < local.taken_at + LOCAL_PERMIT_TTL_MICROS {
                local.permits -= 1;
                set_rate_limit_headers(request, limit, needed, *local);
                return Ok(PermitCheck::Taken);
            }
            // If the clock went back, `reset_at` is unreliable and Postgres decides.
            if needed.remaining(local.reset_at) == 0 && local.reset_at <= now + needed.bucket {
                let local = LocalPermits { permits: 0, ..*local };
                drop(all);
                set_rate_limit_headers(request, limit, needed, local);
                return Err(rate_limited(needed, local.reset_at));
            }
        }
        Ok(PermitCheck::Ask(needed))
    }

    /// Takes one of the granted permits, and keeps the others.
    ///
    /// # Errors
    /// 429, if no permit was granted and no local permit is left.
    pub(crate) fn accept_grant(
        &self,
        request: &HttpRequest,
        limit: Limit,
        key: Key,
        needed: PermitRequest,
        granted: PermitGrant,
    ) -> Result<(), Problem> {
        let PermitGrant { permits, reset_at } = granted;
        let (local, taken) = {
            let mut all = self.local();
            let local = all.entry((limit, key)).or_insert(LocalPermits { permits: 0, reset_at, taken_at: needed.now });
            if local.taken_at + LOCAL_PERMIT_TTL_MICROS <= needed.now {
                local.permits = 0;
            }
            *local = LocalPermits {
                permits: local.permits + permits,
                reset_at: reset_at.max(local.reset_at),
                taken_at: needed.now,
            };
            // A concurrent request of the caller may have received all permits that were left.
            let taken = local.permits > 0;
            local.permits -= i64::from(taken);
            (*local, taken)
        };
        set_rate_limit_headers(request, limit, needed, local);
        if taken { Ok(()) } else { Err(rate_limited(needed, reset_at)) }
    }

    /// Grants permits without Postgres, so that reads continue while it is read-only.
    pub(crate) fn grant_locally(&self, limit: Limit, key: Key, needed: PermitRequest) -> PermitGrant {
        let reset_at = self.local().get(&(limit, key)).map_or(needed.now, |local| local.reset_at.max(needed.now));
        let permits = needed.permits.min(needed.remaining(reset_at));
        PermitGrant { permits, reset_at: reset_at + permits * needed.cost }
    }

    fn permit_request(&self, limit: Limit, now: i64) -> PermitRequest {
        let per_minute = i64::from(self.per_minute(limit).get());
        let cost = (60_000_000 / per_minute).max(1);
        PermitRequest { now, permits: (per_minute / 60).max(1), cost, bucket: cost * per_minute }
    }

    fn per_minute(&self, limit: Limit) -> NonZeroU32 {
        match limit {
            Limit::SignIn | Limit::Preview => self.rates.sign_in,
            Limit::General => self.rates.credential,
        }
    }

    fn local(&self) -> std::sync::MutexGuard<'_, HashMap<(Limit, Key), LocalPermits>> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Limit {
    fn name(self) -> &'static str {
        match self {
            Self::SignIn => "sign-in",
            Self::Preview => "preview",
            Self::General => "general",
        }
    }
}

impl PermitRequest {
    /// The permits that are left in a bucket, given the time when it is full again.
    fn remaining(&self, reset_at: i64) -> i64 {
        ((self.now + self.bucket - reset_at.max(self.now)) / self.cost).max(0)
    }
}

fn set_rate_limit_headers(request: &HttpRequest, limit: Limit, needed: PermitRequest, local: LocalPermits) {
    let (name, quota) = (limit.name(), needed.bucket / needed.cost);
    let remaining = needed.remaining(local.reset_at) + local.permits;
    let full_in = seconds(local.reset_at - needed.now);
    request.extensions_mut().insert(RateLimitHeaders {
        policy: format!("\"{name}\";q={quota};w=60"),
        state: format!("\"{name}\";r={remaining};t={full_in}"),
    });
}

fn rate_limited(needed: PermitRequest, reset_at: i64) -> Problem {
    let wait = seconds(reset_at + needed.cost - needed.bucket - needed.now).max(1);
    let message = format!("too many requests; retry in {wait} s");
    Problem::new(&protocol::RATE_LIMITED, message).with_header(RETRY_AFTER, wait.to_string())
}

/// Whole seconds, rounded up.
fn seconds(micros: i64) -> i64 {
    (micros.max(0) + 999_999) / 1_000_000
}

fn micros(time: Time) -> i64 {
    time.unix_millis() * 1000
}
