//! The limits of authenticated callers. Each credential has a bucket, and all credentials of a user share another
//! bucket.
//!
//! The statement that authenticates the caller also takes the permits of both buckets, so neither costs a round trip.

use std::net::IpAddr;

use actix_web::HttpRequest;
use kernel::{Token, TokenHash, UserId};

use super::bucket::{LocalPermits, PermitGrant, PermitRequest, refuse, set_headers};
use super::{Key, Limit, Limiters, Local};
use crate::problem::Problem;

/// The time for which a process remembers a valid credential after its last request: one hour.
const KNOWN_CREDENTIAL_TTL_MICROS: i64 = 3_600_000_000;

/// The limits of a caller, in the order of [`CallerRequest`] and [`CallerGrant`].
const LIMITS: [Limit; 2] = [Limit::General, Limit::User];

/// The permits to take from a caller's two buckets: first that of the credential, then that of the user. Zero permits
/// mean that the request already took a local permit.
pub(crate) type CallerRequest = [PermitRequest; 2];

/// The permits that Postgres granted from a caller's two buckets, in the same order.
pub(crate) type CallerGrant = [PermitGrant; 2];

/// A credential that was valid.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownCredential {
    user: UserId,
    seen_at: i64,
}

/// The result of a check of a caller's local permits.
pub(crate) enum CallerPermits {
    /// The request took a local permit of each bucket.
    Taken,
    /// The statement that authenticates the caller must take these permits. Pass the grant to
    /// [`Limiters::accept_as_caller`].
    Ask(CallerRequest),
}

impl KnownCredential {
    pub(super) fn is_recent(&self, now: i64) -> bool {
        self.seen_at + KNOWN_CREDENTIAL_TTL_MICROS > now
    }
}

impl Limiters {
    /// Remembers a new credential as valid, so that the rate limit of its address does not block its first request.
    /// [`Self::accept_as_caller`] remembers all other credentials when it authenticates a request.
    pub(crate) fn remember(&self, credential: &Token, user: UserId) {
        let known = KnownCredential { user, seen_at: self.now() };
        self.local().known.insert(credential.hash(), known);
    }

    /// Forgets a credential that is not valid.
    pub(crate) fn forget(&self, credential: TokenHash) {
        self.local().known.remove(&credential);
    }

    /// Takes a local permit of the credential's bucket and one of the user's bucket.
    ///
    /// # Errors
    /// Returns 429 if a bucket has no permit left. Also returns 429 if the address is above its rate limit and this
    /// process has not seen the credential as valid, so that guessed credentials cause no statements.
    pub(crate) fn take_as_caller(
        &self,
        request: &HttpRequest,
        credential: TokenHash,
        address: IpAddr,
    ) -> Result<CallerPermits, Problem> {
        let now = self.now();
        let mut needed = LIMITS.map(|limit| self.permit_request(limit, now));
        let mut local = self.local();
        let Some(known) = local.known.get_mut(&credential) else {
            let bucket = (Limit::General, Key::Address(address));
            local.ensure_not_exhausted(request, bucket, needed[0])?;
            // This process may already hold permits of the user, so take only the one permit that this request needs.
            needed[1].permits = 1;
            return Ok(CallerPermits::Ask(needed));
        };
        known.seen_at = now;
        let buckets = buckets(credential, known.user);
        for (bucket, needed) in buckets.into_iter().zip(needed) {
            local.ensure_not_exhausted(request, bucket, needed)?;
        }
        for (bucket, needed) in buckets.iter().zip(&mut needed) {
            if local.permits.get_mut(bucket).is_some_and(|permits| permits.take(*needed)) {
                needed.permits = 0;
            }
        }
        if needed.iter().any(|needed| needed.permits > 0) {
            return Ok(CallerPermits::Ask(needed));
        }
        local.set_headers(request, buckets, needed);
        Ok(CallerPermits::Taken)
    }

    /// Takes one of the granted permits of each bucket, keeps the others, and remembers the credential as valid.
    ///
    /// # Errors
    /// Returns 429 if no permit of a bucket was granted and no local one is left.
    pub(crate) fn accept_as_caller(
        &self,
        request: &HttpRequest,
        (credential, user): (TokenHash, UserId),
        needed: CallerRequest,
        granted: CallerGrant,
    ) -> Result<(), Problem> {
        let (buckets, mut local) = (buckets(credential, user), self.local());
        local.known.insert(credential, KnownCredential { user, seen_at: needed[0].now });
        let mut taken = Vec::with_capacity(buckets.len());
        let mut refused = None;
        for ((bucket, needed), granted) in buckets.into_iter().zip(needed).zip(granted) {
            let permits = local.permits.entry(bucket).or_insert_with(|| LocalPermits::none(needed, granted));
            if permits.accept(needed, granted) {
                taken.push(bucket);
            } else {
                refused = refused.or(Some((bucket, needed, *permits)));
            }
        }
        let Some((bucket, needed, permits)) = refused else {
            local.set_headers(request, buckets, needed);
            return Ok(());
        };
        // A rejected request returns the permit of the other bucket.
        for bucket in taken {
            local.permits.entry(bucket).and_modify(|permits| permits.permits += 1);
        }
        Err(refuse(request, bucket.0.name(), needed, permits))
    }

    /// Grants permits without Postgres, so that reads continue to work while Postgres is read-only.
    pub(crate) fn grant_caller_locally(
        &self,
        credential: TokenHash,
        user: UserId,
        needed: CallerRequest,
    ) -> CallerGrant {
        let [of_credential, of_user] = buckets(credential, user);
        [self.grant_locally(of_credential, needed[0]), self.grant_locally(of_user, needed[1])]
    }
}

impl Local {
    /// Rejects the request if neither this process nor the bucket has a permit left.
    pub(super) fn ensure_not_exhausted(
        &self,
        request: &HttpRequest,
        bucket: (Limit, Key),
        needed: PermitRequest,
    ) -> Result<(), Problem> {
        match self.permits.get(&bucket) {
            Some(permits) if permits.is_exhausted(needed) => Err(refuse(request, bucket.0.name(), needed, *permits)),
            _ => Ok(()),
        }
    }

    /// Sets the headers to the state of the bucket with the fewest permits.
    fn set_headers(&self, request: &HttpRequest, buckets: [(Limit, Key); 2], needed: CallerRequest) {
        let states = buckets.iter().zip(needed).filter_map(|(bucket, needed)| {
            let permits = self.permits.get(bucket)?;
            Some((bucket.0, needed, *permits))
        });
        if let Some((limit, needed, permits)) = states.min_by_key(|(_, needed, permits)| permits.remaining(*needed)) {
            set_headers(request, limit.name(), needed, permits);
        }
    }
}

/// Returns the buckets of a caller, in the order of [`CallerRequest`].
fn buckets(credential: TokenHash, user: UserId) -> [(Limit, Key); 2] {
    [(Limit::General, Key::Credential(credential)), (Limit::User, Key::User(user))]
}
