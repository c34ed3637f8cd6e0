//! HTTP-01 challenges of certification authorities (RFC 8555 section 8.3).
//!
//! The node asks the control plane at each request, so every node can answer, and nothing has to be distributed before
//! the authority connects. An authority does not repeat a request that failed. So the node repeats its own request while
//! the authority waits, and a restart of the control plane fails no validation.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use actix_web::http::header::{CACHE_CONTROL, ContentType};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, HttpResponse};
use daemon::Backoff;
use protocol::ChallengeResponse;
use quick_cache::sync::Cache;
use semaphores::KeyedSemaphores;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{sleep, timeout};

use super::metrics::TlsMetrics;
use crate::client::Core;
use crate::page::{page, with_retry_after};

const PATH_PREFIX: &str = "/.well-known/acme-challenge/";
/// The lengths of a token. RFC 8555 section 8.3 requires 128 bits of entropy, which are 22 characters.
const TOKEN_LENGTHS: std::ops::RangeInclusive<usize> = 16..=128;
/// The lookups of the whole node. A server of the control plane runs up to 16 orders concurrently.
const MAX_LOOKUPS: usize = 64;
/// The lookups for hosts without a site at this node. The others are reserved for hosts with a site.
const MAX_UNROUTED_LOOKUPS: usize = 32;
/// An authority validates a challenge from several networks concurrently, such as six.
const MAX_LOOKUPS_PER_HOST: usize = 8;
/// The lookups of one client for one host. A few clients cannot hold all lookups of a host.
const MAX_LOOKUPS_PER_CLIENT: usize = 1;
/// The longest wait for the end of other lookups.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(1);
/// The lookups that one client can cause immediately, and the interval at which it can cause another. An authority
/// connects from several addresses, and validates many hosts from each.
const CLIENT_BURST: u32 = 64;
const CLIENT_INTERVAL: Duration = Duration::from_millis(50);
/// How long an unknown token is remembered. Other tokens of its host are looked up: otherwise anyone could prevent a
/// validation with requests for unknown tokens.
const UNKNOWN_LIFETIME: Duration = Duration::from_secs(1);
/// The number of remembered tokens.
const MAX_UNKNOWN: usize = 1024;
/// The time for all attempts to ask the control plane. The authority waits for the response.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);
const MAX_RETRY_DELAY: Duration = Duration::from_millis(500);
/// How long the control plane is not asked after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// The longest hostname (RFC 1035 section 2.3.4).
const MAX_HOST: usize = 253;

/// Responds to challenges.
pub struct Challenges {
    core: Core,
    metrics: TlsMetrics,
    lookups: Semaphore,
    unrouted_lookups: Semaphore,
    by_host: KeyedSemaphores<String>,
    by_client: KeyedSemaphores<(String, IpAddr)>,
    clients: Mutex<ClientLimiter>,
    /// The tokens and hosts that the control plane did not know, and when it was asked.
    unknown: Cache<(String, String), Instant>,
    failed_at: Mutex<Option<Instant>>,
}

/// The request for a challenge.
#[derive(Debug, Clone, Copy)]
pub struct ChallengeRequest<'a> {
    pub token: &'a str,
    pub host: &'a str,
    /// Whether this node has a site at the host.
    pub is_routed: bool,
    /// The key under which the client is limited.
    pub client: IpAddr,
}

/// A token bucket per client.
#[derive(Default)]
struct ClientLimiter {
    last_purge: Option<Instant>,
    /// When the bucket of a client is full again.
    full_at: HashMap<IpAddr, Instant>,
}

/// The permits of a lookup.
struct Lookup<'a> {
    _node: SemaphorePermit<'a>,
    _unrouted: Option<SemaphorePermit<'a>>,
    _host: OwnedSemaphorePermit,
    _client: OwnedSemaphorePermit,
}

/// Returns the token of a challenge, if a request is for one.
pub fn challenge_token(request: &HttpRequest) -> Option<&str> {
    let token = request.uri().path().strip_prefix(PATH_PREFIX)?;
    let is_token = TOKEN_LENGTHS.contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    (is_token && matches!(*request.method(), Method::GET | Method::HEAD)).then_some(token)
}

impl Challenges {
    pub fn new(core: Core, metrics: TlsMetrics) -> Self {
        Self {
            core,
            metrics,
            lookups: Semaphore::new(MAX_LOOKUPS),
            unrouted_lookups: Semaphore::new(MAX_UNROUTED_LOOKUPS),
            by_host: KeyedSemaphores::new(MAX_LOOKUPS_PER_HOST),
            by_client: KeyedSemaphores::new(MAX_LOOKUPS_PER_CLIENT),
            clients: Mutex::default(),
            unknown: Cache::new(MAX_UNKNOWN),
            failed_at: Mutex::default(),
        }
    }

    /// Returns the response to a challenge. Returns `None` if the control plane does not know the token or is not
    /// available: the project at the host may answer challenges itself.
    pub async fn respond(&self, request: ChallengeRequest<'_>) -> Option<HttpResponse> {
        let ChallengeRequest { token, host, .. } = request;
        if host.len() > MAX_HOST {
            return None;
        }
        let key = (token.to_owned(), host.to_owned());
        if self.unknown.get(&key).is_some_and(is_remembered) || self.has_failed() {
            return None;
        }
        let Some(_lookup) = self.start(request).await else {
            self.metrics.count_challenge("busy");
            let response =
                page(StatusCode::SERVICE_UNAVAILABLE, "This server has too many concurrent requests. Try again.");
            return Some(with_retry_after(response, Duration::ZERO));
        };
        match self.look_up(token, host).await {
            Ok(Some(challenge)) => {
                self.metrics.count_challenge("answered");
                let mut response = HttpResponse::Ok();
                response.insert_header(ContentType::octet_stream()).insert_header((CACHE_CONTROL, "no-store"));
                Some(response.body(challenge.key_authorization))
            }
            Ok(None) => {
                self.metrics.count_challenge("unknown");
                self.unknown.insert(key, Instant::now());
                None
            }
            Err(error) => {
                self.metrics.count_challenge("failed");
                tracing::warn!(error = format!("{error:#}"), "failed to look up a challenge");
                *lock(&self.failed_at) = Some(Instant::now());
                None
            }
        }
    }

    /// Asks the control plane until it responds.
    async fn look_up(&self, token: &str, host: &str) -> anyhow::Result<Option<ChallengeResponse>> {
        let deadline = Instant::now() + LOOKUP_TIMEOUT;
        let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let result = self.core.challenge(token, host, left).await;
            let delay = backoff.next_delay();
            if result.is_ok() || Instant::now() + delay >= deadline {
                return result;
            }
            sleep(delay).await;
        }
    }

    /// Waits for the permits of a lookup. Returns `None` if the wait takes too long, or the client is above its rate.
    async fn start(&self, request: ChallengeRequest<'_>) -> Option<Lookup<'_>> {
        let ChallengeRequest { host, is_routed, client, .. } = request;
        if !lock(&self.clients).take(client, Instant::now()) {
            return None;
        }
        let acquire = async {
            // In this order, a request holds no permit that other hosts need while it waits for its own host.
            let client = self.by_client.of((host.to_owned(), client)).acquire_owned().await.ok()?;
            let host = self.by_host.of(host.to_owned()).acquire_owned().await.ok()?;
            let unrouted = if is_routed { None } else { Some(self.unrouted_lookups.acquire().await.ok()?) };
            let node = self.lookups.acquire().await.ok()?;
            Some(Lookup { _node: node, _unrouted: unrouted, _host: host, _client: client })
        };
        timeout(PERMIT_TIMEOUT, acquire).await.ok().flatten()
    }

    /// Returns whether a lookup failed a moment ago.
    fn has_failed(&self) -> bool {
        lock(&self.failed_at).is_some_and(|at| at.elapsed() < FAILURE_PAUSE)
    }
}

impl ClientLimiter {
    /// Takes a token of a client. Returns whether there was one.
    fn take(&mut self, client: IpAddr, now: Instant) -> bool {
        if self.last_purge.is_none_or(|last| now - last >= CLIENT_INTERVAL * CLIENT_BURST) {
            self.full_at.retain(|_, full_at| *full_at > now);
            self.last_purge = Some(now);
        }
        let full_at = self.full_at.get(&client).map_or(now, |full_at| now.max(*full_at)) + CLIENT_INTERVAL;
        let has_token = full_at - now <= CLIENT_INTERVAL * CLIENT_BURST;
        if has_token {
            self.full_at.insert(client, full_at);
        }
        has_token
    }
}

fn is_remembered(asked_at: Instant) -> bool {
    asked_at.elapsed() < UNKNOWN_LIFETIME
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn tokens_are_limited_per_client() {
        let (mut clients, now) = (ClientLimiter::default(), Instant::now());
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        for _ in 0..CLIENT_BURST {
            assert!(clients.take(one, now));
        }
        assert!(!clients.take(one, now) && clients.take(two, now));
        let later = now + CLIENT_INTERVAL;
        assert!(clients.take(one, later) && !clients.take(one, later));
        assert!(clients.take(two, now + CLIENT_INTERVAL * CLIENT_BURST * 3));
        assert_eq!(clients.full_at.len(), 1);
    }

    #[test]
    fn token_is_read_only_from_a_well_formed_request() {
        let token = "a".repeat(22);
        let of = |method, path: &str| {
            let request = TestRequest::with_uri(path).method(method).to_http_request();
            challenge_token(&request).map(str::to_owned)
        };
        assert_eq!(of(Method::GET, &format!("{PATH_PREFIX}{token}?x=y")), Some(token.clone()));
        assert_eq!(of(Method::HEAD, &format!("{PATH_PREFIX}A-_9aaaaaaaaaaaaaaa")).unwrap(), "A-_9aaaaaaaaaaaaaaa");
        assert_eq!(of(Method::POST, &format!("{PATH_PREFIX}{token}")), None);
        for other in ["short", "aaaaaaaaaaaaaaaa/b", "aaaaaaaaaaaaaaaa%2e", "..aaaaaaaaaaaaaaaa", &"a".repeat(129)] {
            assert_eq!(of(Method::GET, &format!("{PATH_PREFIX}{other}")), None, "{other}");
        }
        assert_eq!(of(Method::GET, &format!("/x{PATH_PREFIX}{token}")), None);
    }
}
