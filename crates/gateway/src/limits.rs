//! How often one caller may come, in all processes together: a bucket for each caller in Postgres (GCRA), from which a
//! process takes a few permits at a time. So a request rarely asks, and what is admitted is never more than the limit.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

use actix_web::http::header::RETRY_AFTER;
use actix_web::{HttpMessage as _, HttpRequest};
use diesel::sql_types::{BigInt, Text};
use diesel_async::RunQueryDsl;
use kernel::{Time, TokenHash};
use store::{Cached, Store};

use crate::config::RateLimits;
use crate::problem::Problem;
use crate::protocol;

/// How long permits that were taken may be kept: whoever does not come back leaves them to the other processes.
const KEPT_MICROS: i64 = 10_000_000;

/// Which limit a route counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Limit {
    /// Endpoints that sign in: by address, few.
    SignIn,
    /// The look at an invitation, whose token somebody might guess at: by address, few.
    Preview,
    /// Everything else: by credential, without a live one by address.
    General,
}

/// Who is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Address(IpAddr),
    Credential(TokenHash),
}

/// The limits, and the permits that this process holds.
pub struct Limiters {
    rates: RateLimits,
    held: Mutex<HashMap<(Limit, Key), Held>>,
}

/// Permits of one caller, as of `at`.
#[derive(Debug, Clone, Copy)]
struct Held {
    permits: i64,
    full_at: i64,
    at: i64,
}

/// What to ask Postgres for. Times in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) now: i64,
    pub(crate) permits: i64,
    /// What a permit costs, and what the whole bucket holds, in microseconds.
    pub(crate) cost: i64,
    pub(crate) bucket: i64,
}

/// What Postgres says to that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Granted {
    pub(crate) permits: i64,
    pub(crate) full_at: i64,
}

/// How a request stands before anybody is asked.
pub(crate) enum Taking {
    /// It has a permit.
    Taken,
    /// Postgres is to be asked, and the answer given to [`Limiters::granted`].
    Ask(Wanted),
}

/// What the `RateLimit` headers of an answer say (draft-ietf-httpapi-ratelimit-headers).
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    pub(crate) policy: String,
    pub(crate) state: String,
}

/// The rest of an `INSERT INTO store.rates AS r (key, full_at, granted)`: moves the caller's bucket on by what is granted,
/// which may be nothing. The parameters from `first` on are those of [`Wanted`], in its order.
pub(crate) fn grant(first: usize) -> String {
    let [now, permits, cost, bucket] = [0, 1, 2, 3].map(|at| format!("${}", first + at));
    // A process whose clock was ahead may have written a time that no bucket of this size can have.
    let full_at = format!("LEAST(GREATEST(r.full_at, {now}), {now} + {bucket})");
    let granted = format!("LEAST({permits}, GREATEST(0, ({now} + {bucket} - {full_at}) / {cost}))");
    format!(
        "ON CONFLICT (key) DO UPDATE SET granted = {granted}, full_at = {full_at} + {cost} * {granted} \
         RETURNING granted, full_at"
    )
}

#[derive(diesel::QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    granted: i64,
    #[diesel(sql_type = BigInt)]
    full_at: i64,
}

impl Limiters {
    /// The limits; nobody has come yet.
    #[must_use]
    pub fn new(rates: RateLimits) -> Self {
        Self { rates, held: Mutex::default() }
    }

    /// Forgets callers who have not come for a while, here and, where their buckets are full again, in Postgres. To be
    /// called now and then.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn forget_idle(&self, store: &Store) -> store::Result<()> {
        let now = micros(store.world().now());
        self.held().retain(|_, held| held.at + KEPT_MICROS > now || held.full_at > now);
        let full = "DELETE FROM store.rates WHERE key = ANY (ARRAY( \
            SELECT key FROM store.rates WHERE full_at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED))";
        loop {
            let full = diesel::sql_query(full).bind::<BigInt, _>(now).bind::<BigInt, _>(store::BATCH);
            if !store::is_full(Cached(full).execute(&mut *store.connection().await?).await?) {
                return Ok(());
            }
        }
    }

    /// Counts a request by itself; its answer will carry the headers.
    pub(crate) async fn count(
        &self,
        request: &HttpRequest,
        store: &Store,
        limit: Limit,
        address: IpAddr,
    ) -> Result<(), Problem> {
        let key = Key::Address(address);
        let wanted = match self.take(request, limit, key, store.world().now())? {
            Taking::Taken => return Ok(()),
            Taking::Ask(wanted) => wanted,
        };
        let insert = "INSERT INTO store.rates AS r (key, full_at, granted) VALUES ($1, $2 + $3 * $4, $3) ";
        let query = diesel::sql_query(format!("{insert}{}", grant(2)))
            .bind::<Text, _>(format!("{} {address}", limit.name()))
            .bind::<BigInt, _>(wanted.now)
            .bind::<BigInt, _>(wanted.permits)
            .bind::<BigInt, _>(wanted.cost)
            .bind::<BigInt, _>(wanted.bucket);
        let row: store::Result<Row> =
            Cached(query).get_result(&mut *store.connection().await?).await.map_err(store::Error::from);
        let granted = match row {
            Ok(Row { granted, full_at }) => Granted { permits: granted, full_at },
            Err(error) if error.refuses_writes() => self.alone(limit, key, wanted),
            Err(error) => return Err(error.into()),
        };
        self.granted(request, limit, key, wanted, granted)
    }

    /// Takes one of the permits that this process holds for the caller.
    ///
    /// # Errors
    /// 429, when the caller is known to have none left anywhere.
    pub(crate) fn take(&self, request: &HttpRequest, limit: Limit, key: Key, now: Time) -> Result<Taking, Problem> {
        let (now, wanted) = (micros(now), self.wanted(limit, micros(now)));
        let mut all = self.held();
        if let Some(held) = all.get_mut(&(limit, key)) {
            if held.permits > 0 && now < held.at + KEPT_MICROS {
                held.permits -= 1;
                stand(request, limit, wanted, *held);
                return Ok(Taking::Taken);
            }
            // Not when the clock went back: then nobody knows, and Postgres is asked.
            if wanted.left(held.full_at) == 0 && held.full_at <= now + wanted.bucket {
                let held = Held { permits: 0, ..*held };
                drop(all);
                stand(request, limit, wanted, held);
                return Err(refusal(wanted, held.full_at));
            }
        }
        Ok(Taking::Ask(wanted))
    }

    /// Takes a permit out of those that were granted, and keeps the others.
    ///
    /// # Errors
    /// 429, when none was granted and none is left of those before.
    pub(crate) fn granted(
        &self,
        request: &HttpRequest,
        limit: Limit,
        key: Key,
        wanted: Wanted,
        granted: Granted,
    ) -> Result<(), Problem> {
        let Granted { permits, full_at } = granted;
        let (held, taken) = {
            let mut all = self.held();
            let held = all.entry((limit, key)).or_insert(Held { permits: 0, full_at, at: wanted.now });
            if held.at + KEPT_MICROS <= wanted.now {
                held.permits = 0;
            }
            *held = Held { permits: held.permits + permits, full_at: full_at.max(held.full_at), at: wanted.now };
            // Of many who asked at once, the first may have been granted all that there was.
            let taken = held.permits > 0;
            held.permits -= i64::from(taken);
            (*held, taken)
        };
        stand(request, limit, wanted, held);
        if taken { Ok(()) } else { Err(refusal(wanted, full_at)) }
    }

    /// What this process grants by itself, while Postgres takes no writes: reads go on.
    pub(crate) fn alone(&self, limit: Limit, key: Key, wanted: Wanted) -> Granted {
        let full_at = self.held().get(&(limit, key)).map_or(wanted.now, |held| held.full_at.max(wanted.now));
        let permits = wanted.permits.min(wanted.left(full_at));
        Granted { permits, full_at: full_at + permits * wanted.cost }
    }

    fn wanted(&self, limit: Limit, now: i64) -> Wanted {
        let per_minute = i64::from(self.per_minute(limit).get());
        let cost = (60_000_000 / per_minute).max(1);
        Wanted { now, permits: (per_minute / 60).max(1), cost, bucket: cost * per_minute }
    }

    fn per_minute(&self, limit: Limit) -> NonZeroU32 {
        match limit {
            Limit::SignIn | Limit::Preview => self.rates.sign_in,
            Limit::General => self.rates.credential,
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<(Limit, Key), Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Wanted {
    /// The permits that are left in a bucket which is full again at this time.
    fn left(&self, full_at: i64) -> i64 {
        ((self.now + self.bucket - full_at.max(self.now)) / self.cost).max(0)
    }
}

fn stand(request: &HttpRequest, limit: Limit, wanted: Wanted, held: Held) {
    let (name, quota) = (limit.name(), wanted.bucket / wanted.cost);
    let remaining = wanted.left(held.full_at) + held.permits;
    let full_in = seconds(held.full_at - wanted.now);
    request.extensions_mut().insert(Standing {
        policy: format!("\"{name}\";q={quota};w=60"),
        state: format!("\"{name}\";r={remaining};t={full_in}"),
    });
}

fn refusal(wanted: Wanted, full_at: i64) -> Problem {
    let wait = seconds(full_at + wanted.cost - wanted.bucket - wanted.now).max(1);
    let message = format!("too many requests; come back in {wait} s");
    Problem::new(&protocol::RATE_LIMITED, message).with_header(RETRY_AFTER, wait.to_string())
}

/// Whole seconds, rounded up.
fn seconds(micros: i64) -> i64 {
    (micros.max(0) + 999_999) / 1_000_000
}

fn micros(time: Time) -> i64 {
    time.unix_millis() * 1000
}
