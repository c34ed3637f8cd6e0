//! Look-ups of recipients at the control plane.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use protocol::Recipient;

use crate::core::Core;
use crate::host::HostName;
use crate::limits::Rate;
use crate::metrics::Metrics;

/// How long the cache keeps the project of a domain. For this time, the node still accepts mail to a revoked address.
const KNOWN_TTL: Duration = Duration::from_secs(10);
/// How long the cache keeps that a domain has no project, or that the mailbox of its project is full.
const UNKNOWN_TTL: Duration = Duration::from_secs(5);
const MAX_CACHED: usize = 10_000;
/// The rate limiter allows the lookups of this period in one burst.
const BURST: Duration = Duration::from_secs(2);

/// Looks up recipients at the control plane. Clones share the cache.
#[derive(Clone)]
pub struct Recipients {
    core: Core,
    metrics: Metrics,
    cache: Arc<Mutex<Cache>>,
}

struct Cache {
    lookups: HashMap<HostName, Lookup>,
    /// The rate of lookups at the control plane.
    rate: Rate,
}

/// A lookup in progress, or its answer. All sessions that need the same domain share it.
type Lookup = Shared<BoxFuture<'static, Answer>>;

#[derive(Clone)]
struct Answer {
    /// `None` if the control plane is unavailable.
    recipient: Option<Recipient>,
    expires_at: Instant,
}

impl Recipients {
    pub fn new(core: Core, metrics: Metrics, lookups_per_second: u32) -> Self {
        let rate = Rate::new(Duration::from_secs(1) / lookups_per_second.max(1), BURST, Instant::now());
        let cache = Arc::new(Mutex::new(Cache { lookups: HashMap::new(), rate }));
        Self { core, metrics, cache }
    }

    /// Returns the project of a domain. Returns `None` if the control plane is unavailable, or if the node exceeds the
    /// rate of lookups.
    pub async fn find(&self, domain: &HostName) -> Option<Recipient> {
        self.lookup(domain)?.await.recipient
    }

    fn lookup(&self, domain: &HostName) -> Option<Lookup> {
        let now = Instant::now();
        let is_valid = |lookup: &Lookup| lookup.peek().is_none_or(|answer| answer.expires_at > now);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lookup) = cache.lookups.get(domain).filter(|lookup| is_valid(lookup)) {
            return Some(lookup.clone());
        }
        if !cache.rate.admit(now) {
            self.metrics.lookup("limited");
            return None;
        }
        if cache.lookups.len() >= MAX_CACHED {
            cache.lookups.retain(|_, lookup| is_valid(lookup));
        }
        let (this, asked) = (self.clone(), domain.clone());
        let lookup = async move { this.ask(&asked).await }.boxed().shared();
        if cache.lookups.len() < MAX_CACHED {
            cache.lookups.insert(domain.clone(), lookup.clone());
        }
        Some(lookup)
    }

    async fn ask(&self, domain: &HostName) -> Answer {
        let recipient = self.core.recipient(domain).await;
        let (outcome, ttl) = match &recipient {
            Ok(Recipient::Project(_)) => ("project", KNOWN_TTL),
            Ok(Recipient::Full) => ("full", UNKNOWN_TTL),
            Ok(Recipient::Unknown) => ("unknown", UNKNOWN_TTL),
            Ok(Recipient::Foreign) => ("foreign", UNKNOWN_TTL),
            Err(_) => ("failed", Duration::ZERO),
        };
        if let Err(error) = &recipient {
            tracing::warn!(error = format!("{error:#}"), "failed to look up a recipient");
        }
        self.metrics.lookup(outcome);
        Answer { recipient: recipient.ok(), expires_at: Instant::now() + ttl }
    }
}
