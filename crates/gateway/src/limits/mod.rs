//! Rate limits that all processes share. Postgres stores a bucket for each caller (GCRA), from which a process takes a
//! few permits at a time. So few requests query Postgres, and all processes together never admit more requests than the
//! limit.
//!
//! This file counts requests by address and by authenticated client. [`caller`] counts them by credential and by user.

mod bucket;
mod caller;

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{LazyLock, Mutex, PoisonError};

use actix_web::HttpRequest;
use diesel::sql_types::{BigInt, Text};
use diesel_async::RunQueryDsl;
use kernel::{ClientId, ClockRng, TokenHash, UserId};
use store::{PermitParameters, Prepared, Store};

use self::bucket::{LOCAL_PERMIT_TTL_MICROS, LocalPermits, micros, refuse, set_headers};
use self::caller::KnownCredential;
use crate::config::RateLimits;
use crate::problem::Problem;

pub(crate) use self::bucket::{PermitGrant, PermitRequest, RateLimitHeaders};
pub(crate) use self::caller::{CallerGrant, CallerPermits, CallerRequest};

/// The rate limit that a route counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Limit {
    /// Sign-in endpoints: a low limit for each address.
    SignIn,
    /// Previews of invitations: a low limit for each address, against guessing of tokens.
    Preview,
    /// An endpoint below `/oauth`: a limit for each address.
    OAuthAddress(OAuthEndpoint),
    /// An endpoint below `/oauth`: a limit for each confidential client, and for each address of a public client.
    OAuthClient(OAuthEndpoint),
    /// All other routes: a limit for each credential, or for each address without a valid credential.
    General,
    /// All other routes: an additional limit for each user, over all credentials.
    User,
    /// Requests of git clients: a limit for each user.
    Git,
}

/// The endpoints below `/oauth`, which have separate limits (contract section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OAuthEndpoint {
    Token,
    Revoke,
    Device,
}

/// The caller that a request counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Address(IpAddr),
    Client(ClientId),
    PublicClient(ClientId, IpAddr),
    Credential(TokenHash),
    User(UserId),
}

/// The rate limits, and the permits that this process holds.
pub struct Limiters {
    rates: RateLimits,
    clock_rng: ClockRng,
    local: Mutex<Local>,
}

/// The permits that this process holds, and the credentials that it has seen as valid.
#[derive(Default)]
struct Local {
    permits: HashMap<(Limit, Key), LocalPermits>,
    known: HashMap<TokenHash, KnownCredential>,
}

#[derive(diesel::QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    granted: i64,
    #[diesel(sql_type = BigInt)]
    reset_at: i64,
}

static CHARGE: LazyLock<String> =
    LazyLock::new(|| PermitParameters { now: 2, permits: 3, cost: 4, bucket: 5 }.charge("$1", ""));

impl Limiters {
    /// Returns the limits, without any local permits.
    #[must_use]
    pub fn new(rates: RateLimits, clock_rng: ClockRng) -> Self {
        Self { rates, clock_rng, local: Mutex::default() }
    }

    /// Removes the expired local permits, and the credentials that were not used for an hour. A background job calls it.
    pub fn purge_local(&self) {
        let now = self.now();
        let mut local = self.local();
        local.permits.retain(|_, it| it.taken_at + LOCAL_PERMIT_TTL_MICROS > now || it.reset_at > now);
        local.known.retain(|_, it| it.is_recent(now));
    }

    /// Deletes the full buckets of idle callers in Postgres. A background job calls it.
    ///
    /// # Errors
    /// Returns the error of Postgres.
    pub async fn purge_idle(&self, store: &Store) -> store::Result<()> {
        let corrected = store.corrected_now(&mut *store.connection().await?).await?;
        // The buckets of `Store::permits_take` are by the corrected time, the others by the clock of this process.
        let before = micros(self.clock_rng.now().min(corrected));
        let full = "DELETE FROM store.rate_limits WHERE key = ANY (ARRAY( \
            SELECT key FROM store.rate_limits WHERE reset_at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED))";
        loop {
            let full = diesel::sql_query(full).bind::<BigInt, _>(before).bind::<BigInt, _>(store::BATCH_SIZE);
            if !store::is_full_batch(Prepared(full).execute(&mut *store.connection().await?).await?) {
                return Ok(());
            }
        }
    }

    /// Counts a request by its address, and sets the headers of its response.
    ///
    /// # Errors
    /// Returns 429 if the address is above its rate limit.
    pub(crate) async fn count_address(
        &self,
        request: &HttpRequest,
        store: &Store,
        limit: Limit,
        address: IpAddr,
    ) -> Result<(), Problem> {
        self.count(request, store, (limit, Key::Address(address)), &address.to_string()).await
    }

    /// Counts a request against the limit of its client, and sets the headers of the response. A public client has a
    /// limit for each address.
    ///
    /// # Errors
    /// Returns 429 if the client is above its rate limit.
    pub(crate) async fn count_client(
        &self,
        request: &HttpRequest,
        store: &Store,
        endpoint: OAuthEndpoint,
        (client, address): (ClientId, Option<IpAddr>),
    ) -> Result<(), Problem> {
        let (key, text) = match address {
            None => (Key::Client(client), client.to_string()),
            Some(address) => (Key::PublicClient(client, address), format!("{client} {address}")),
        };
        self.count(request, store, (Limit::OAuthClient(endpoint), key), &text).await
    }

    /// Counts a request of a git client by its user.
    ///
    /// # Errors
    /// Returns 429 if the user is above the rate limit.
    pub(crate) async fn count_git(&self, request: &HttpRequest, store: &Store, user: UserId) -> Result<(), Problem> {
        self.count(request, store, (Limit::Git, Key::User(user)), &user.to_string()).await
    }

    async fn count(
        &self,
        request: &HttpRequest,
        store: &Store,
        bucket: (Limit, Key),
        key: &str,
    ) -> Result<(), Problem> {
        let limit = bucket.0;
        let needed = self.permit_request(limit, self.now());
        if self.take_local(request, bucket, needed)? {
            return Ok(());
        }
        let query = diesel::sql_query(CHARGE.as_str())
            .bind::<Text, _>(format!("{} {key}", limit.name()))
            .bind::<BigInt, _>(needed.now)
            .bind::<BigInt, _>(needed.permits)
            .bind::<BigInt, _>(needed.cost)
            .bind::<BigInt, _>(needed.bucket);
        let row: store::Result<Row> =
            Prepared(query).get_result(&mut *store.connection().await?).await.map_err(store::Error::from);
        let granted = match row {
            Ok(Row { granted, reset_at }) => PermitGrant { permits: granted, reset_at },
            Err(error) if error.refuses_writes() => self.grant_locally(bucket, needed),
            Err(error) => return Err(error.into()),
        };
        self.accept_grant(request, bucket, needed, granted)
    }

    /// Takes a local permit of the bucket. Returns false if Postgres must grant more.
    ///
    /// # Errors
    /// Returns 429 if neither this process nor the bucket has a permit left.
    fn take_local(&self, request: &HttpRequest, bucket: (Limit, Key), needed: PermitRequest) -> Result<bool, Problem> {
        let mut local = self.local();
        if let Some(permits) = local.permits.get_mut(&bucket)
            && permits.take(needed)
        {
            set_headers(request, bucket.0.name(), needed, *permits);
            return Ok(true);
        }
        local.ensure_not_exhausted(request, bucket, needed)?;
        Ok(false)
    }

    /// Takes one of the granted permits, and keeps the others.
    ///
    /// # Errors
    /// Returns 429 if no permit was granted and no local permit is left.
    fn accept_grant(
        &self,
        request: &HttpRequest,
        bucket: (Limit, Key),
        needed: PermitRequest,
        granted: PermitGrant,
    ) -> Result<(), Problem> {
        let mut local = self.local();
        let permits = local.permits.entry(bucket).or_insert_with(|| LocalPermits::none(needed, granted));
        if !permits.accept(needed, granted) {
            return Err(refuse(request, bucket.0.name(), needed, *permits));
        }
        set_headers(request, bucket.0.name(), needed, *permits);
        Ok(())
    }

    /// Grants permits without Postgres, so that reads continue to work while Postgres is read-only.
    fn grant_locally(&self, bucket: (Limit, Key), needed: PermitRequest) -> PermitGrant {
        let local = self.local().permits.get(&bucket).copied().filter(|local| !local.is_ahead(needed));
        let reset_at = local.map_or(needed.now, |local| local.reset_at.max(needed.now));
        let permits = needed.permits.min(needed.remaining(reset_at));
        PermitGrant { permits, reset_at: reset_at + permits * needed.cost }
    }

    fn permit_request(&self, limit: Limit, now: i64) -> PermitRequest {
        PermitRequest::new(i64::from(self.per_minute(limit).get()), now)
    }

    fn per_minute(&self, limit: Limit) -> NonZeroU32 {
        match limit {
            Limit::SignIn | Limit::Preview => self.rates.sign_in,
            Limit::OAuthAddress(_) => self.rates.oauth_address,
            Limit::OAuthClient(_) => self.rates.oauth_client,
            Limit::General => self.rates.credential,
            Limit::User => self.rates.user(),
            Limit::Git => self.rates.git,
        }
    }

    fn now(&self) -> i64 {
        micros(self.clock_rng.now())
    }

    fn local(&self) -> std::sync::MutexGuard<'_, Local> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Limit {
    fn name(self) -> &'static str {
        match self {
            Self::SignIn => "sign-in",
            Self::Preview => "preview",
            Self::OAuthAddress(OAuthEndpoint::Token) => "oauth-token",
            Self::OAuthAddress(OAuthEndpoint::Revoke) => "oauth-revoke",
            Self::OAuthAddress(OAuthEndpoint::Device) => "oauth-device",
            Self::OAuthClient(OAuthEndpoint::Token) => "oauth-token-client",
            Self::OAuthClient(OAuthEndpoint::Revoke) => "oauth-revoke-client",
            Self::OAuthClient(OAuthEndpoint::Device) => "oauth-device-client",
            Self::General => "general",
            Self::User => "user",
            Self::Git => "git",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use kernel::{Token, TokenKind};
    use testkit::TestClock;

    use super::*;

    #[test]
    fn memory_of_idle_callers_is_purged() {
        let clock = TestClock::default();
        let clock_rng = clock.clock_rng();
        let limiters = Limiters::new(RateLimits::default(), clock_rng.clone());
        limiters.remember(&Token::mint(TokenKind::Access, &clock_rng), clock_rng.id());
        let bucket = (Limit::General, Key::Address(Ipv4Addr::LOCALHOST.into()));
        let needed = limiters.permit_request(Limit::General, limiters.now());
        let granted = limiters.grant_locally(bucket, needed);
        limiters.local().permits.insert(bucket, LocalPermits::none(needed, granted));
        for (seconds, left) in [(0, (1, 1)), (60, (0, 1)), (3600, (0, 0))] {
            clock.advance(seconds);
            limiters.purge_local();
            let local = limiters.local();
            assert_eq!((local.permits.len(), local.known.len()), left);
        }
    }
}
