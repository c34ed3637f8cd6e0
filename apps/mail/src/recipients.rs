//! Lookups of recipients at the control plane.
//!
//! No answer is reused for a later question, because a revoked or granted address must change its owner immediately.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use daemon::Rate;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use protocol::Recipient;
use tokio::sync::Semaphore;

use crate::core::Core;
use crate::host::HostName;
use crate::metrics::Metrics;

/// After a lookup that found a project, the rate limit does not apply to further lookups of the domain for this time.
/// It is the maximum duration of a mail, whose recipients are looked up before and after its transmission.
const KNOWN_PERIOD: Duration = Duration::from_secs(15 * 60);
const MAX_DOMAINS: usize = 10_000;
/// The maximum number of concurrent requests. The control plane refuses requests above a limit that all nodes share.
const MAX_REQUESTS: usize = 16;
/// The rate limiter allows the lookups of this period in one burst.
const BURST: Duration = Duration::from_secs(2);

/// Looks up recipients at the control plane. Clones share the lookups.
#[derive(Clone)]
pub struct Recipients {
    core: Core,
    metrics: Metrics,
    permits: Arc<Semaphore>,
    lookups: Arc<Mutex<Lookups>>,
}

struct Lookups {
    /// The latest lookup of each domain.
    latest: HashMap<HostName, Lookup>,
    max_domains: usize,
    /// The rate of the lookups of domains that are not known to have a project.
    rate: Rate,
}

/// A lookup of a domain.
#[derive(Clone)]
struct Lookup {
    answer: Shared<BoxFuture<'static, Answer>>,
    /// Whether the request may have been sent. Sessions that ask before that share the answer.
    has_started: Arc<AtomicBool>,
    /// The value of the domain's previous lookup, until this lookup ends.
    known_until: Option<Instant>,
}

#[derive(Clone)]
struct Answer {
    /// `None` if the control plane is unavailable.
    recipient: Option<Recipient>,
    /// The end of the period in which the rate limit does not apply; `None` if the domain has no project. A lookup that
    /// fails does not change it.
    known_until: Option<Instant>,
}

impl Lookup {
    fn known_until(&self) -> Option<Instant> {
        self.answer.peek().map_or(self.known_until, |answer| answer.known_until)
    }

    fn is_known(&self, now: Instant) -> bool {
        self.known_until().is_some_and(|until| until > now)
    }
}

impl Recipients {
    pub fn new(core: Core, metrics: Metrics, lookups_per_second: u32) -> Self {
        let rate = Rate::new(Duration::from_secs(1) / lookups_per_second.max(1), BURST, Instant::now());
        let lookups = Arc::new(Mutex::new(Lookups { latest: HashMap::new(), max_domains: MAX_DOMAINS, rate }));
        Self { core, metrics, permits: Arc::new(Semaphore::new(MAX_REQUESTS)), lookups }
    }

    /// Returns the project of a domain at a time after this call. Returns `None` if the control plane is unavailable, or
    /// if the node exceeds the rate of lookups.
    pub async fn find(&self, domain: &HostName) -> Option<Recipient> {
        self.lookup(domain)?.await.recipient
    }

    /// Returns the domain's lookup that has not started. A domain has at most one request in progress.
    fn lookup(&self, domain: &HostName) -> Option<Shared<BoxFuture<'static, Answer>>> {
        let (now, mut lookups) = (Instant::now(), self.lookups());
        let previous = lookups.latest.get(domain).cloned();
        if let Some(next) = previous.as_ref().filter(|it| !it.has_started.load(Ordering::SeqCst)) {
            return Some(next.answer.clone());
        }
        let is_known = previous.as_ref().is_some_and(|it| it.is_known(now));
        if !is_known && !lookups.rate.admit(now) {
            self.metrics.lookup("limited");
            return None;
        }
        let has_started = Arc::new(AtomicBool::new(false));
        let (this, asked, starts) = (self.clone(), domain.clone(), Arc::clone(&has_started));
        let known_until = previous.as_ref().and_then(Lookup::known_until);
        let in_progress = previous.filter(|it| it.answer.peek().is_none()).map(|it| it.answer);
        // The task continues without the session, so that it always releases its permit.
        let task = tokio::spawn(async move {
            let known_until = match in_progress {
                Some(in_progress) => in_progress.await.known_until,
                None => known_until,
            };
            let _permit = this.permits.acquire().await;
            starts.store(true, Ordering::SeqCst);
            this.ask(&asked, known_until).await
        });
        // The task fails only if it panics.
        let answer = task.map(move |answer| answer.unwrap_or(Answer { recipient: None, known_until })).boxed().shared();
        let is_listed = lookups.latest.contains_key(domain);
        if !is_listed && lookups.latest.len() >= lookups.max_domains {
            lookups.latest.retain(|_, lookup| lookup.answer.peek().is_none() || lookup.is_known(now));
        }
        if is_listed || lookups.latest.len() < lookups.max_domains {
            let lookup = Lookup { answer: answer.clone(), has_started, known_until };
            lookups.latest.insert(domain.clone(), lookup);
        }
        Some(answer)
    }

    async fn ask(&self, domain: &HostName, known_until: Option<Instant>) -> Answer {
        let recipient = self.core.recipient(domain).await;
        let outcome = match &recipient {
            Ok(Recipient::Project(_)) => "project",
            Ok(Recipient::Full) => "full",
            Ok(Recipient::Unknown) => "unknown",
            Ok(Recipient::Foreign) => "foreign",
            Err(_) => "failed",
        };
        if let Err(error) = &recipient {
            tracing::warn!(error = format!("{error:#}"), "failed to look up a recipient");
        }
        self.metrics.lookup(outcome);
        let known_until = match recipient {
            Ok(Recipient::Project(_) | Recipient::Full) => Some(Instant::now() + KNOWN_PERIOD),
            Ok(Recipient::Unknown | Recipient::Foreign) => None,
            Err(_) => known_until,
        };
        Answer { recipient: recipient.ok(), known_until }
    }

    fn lookups(&self) -> MutexGuard<'_, Lookups> {
        self.lookups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use actix_web::{App, HttpResponse, HttpServer, web};
    use futures_util::future::join_all;
    use protocol::RecipientRequest;
    use settings::Settings;
    use tokio::time::sleep;

    use super::*;
    use crate::config::{CLAIM, Config, TABLE};

    /// The requests to the control plane.
    #[derive(Default)]
    struct Requests {
        domains: Vec<String>,
        in_progress: usize,
        most_in_progress: usize,
        /// Whether the control plane fails.
        fail: bool,
    }

    /// Starts a control plane at which only `known.example` has a project.
    fn start(lookups_per_second: u32) -> (Recipients, Arc<Mutex<Requests>>) {
        let requests = Arc::new(Mutex::new(Requests::default()));
        let shared = web::Data::from(Arc::clone(&requests));
        let answer = |request: web::Json<RecipientRequest>, requests: web::Data<Mutex<Requests>>| async move {
            let RecipientRequest { domain } = request.into_inner();
            let is_known = domain == "known.example";
            {
                let mut requests = requests.lock().unwrap();
                requests.domains.push(domain);
                requests.in_progress += 1;
                requests.most_in_progress = requests.most_in_progress.max(requests.in_progress);
            }
            sleep(Duration::from_millis(10)).await;
            let mut requests = requests.lock().unwrap();
            requests.in_progress -= 1;
            if requests.fail {
                return HttpResponse::ServiceUnavailable().finish();
            }
            HttpResponse::Ok().json(if is_known { Recipient::Project("prj_1".to_owned()) } else { Recipient::Unknown })
        };
        let app = move || App::new().app_data(shared.clone()).default_service(web::to(answer));
        let server = HttpServer::new(app).workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", server.addrs()[0]);
        tokio::spawn(server.run());
        // Another test can have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let settings = [("SVC_MX_TOKEN", "svc_nod_x"), ("SVC_MX_HOSTNAME", "mx.example"), ("SVC_MX_CORE_URL", &url)];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = Config::new(&Settings::read(TABLE, &CLAIM, settings).unwrap()).unwrap();
        let (core, metrics) = (Core::new(&config).unwrap(), Metrics::new().unwrap());
        (Recipients::new(core, metrics, lookups_per_second), requests)
    }

    fn name(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    #[tokio::test]
    async fn concurrent_questions_share_a_lookup_that_begins_after_them() {
        let (recipients, requests) = start(100);
        let known = name("known.example");
        let count = || requests.lock().unwrap().domains.len();
        let first = recipients.lookup(&known).unwrap();
        while count() == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        // The first lookup has begun. The other questions share the next one.
        let found = join_all((0..10).map(|_| recipients.find(&known))).await;
        assert!(found.iter().all(|it| matches!(it, Some(Recipient::Project(project)) if project == "prj_1")));
        assert!(first.await.recipient.is_some());
        assert_eq!(count(), 2);
        recipients.find(&known).await.unwrap();
        assert_eq!(count(), 3);
    }

    #[tokio::test]
    async fn concurrent_requests_are_limited() {
        let (recipients, requests) = start(100);
        let domains: Vec<_> = (0..50).map(|number| name(&format!("{number}.example"))).collect();
        // A session that ends does not keep its permit.
        for domain in &domains {
            assert!(recipients.find(domain).now_or_never().is_none());
        }
        let found = join_all(domains.iter().map(|domain| recipients.find(domain))).await;
        assert!(found.iter().all(|it| matches!(it, Some(Recipient::Unknown))));
        assert!(requests.lock().unwrap().most_in_progress <= MAX_REQUESTS);
    }

    #[tokio::test]
    async fn questions_about_a_listed_domain_share_a_lookup_if_there_are_too_many_domains() {
        let (recipients, requests) = start(100);
        recipients.lookups().max_domains = 1;
        let known = name("known.example");
        recipients.find(&known).await.unwrap();
        recipients.find(&name("other.example")).await.unwrap();
        join_all((0..10).map(|_| recipients.find(&known))).await;
        assert_eq!(requests.lock().unwrap().domains, ["known.example", "other.example", "known.example"]);
    }

    #[tokio::test]
    async fn rate_limit_does_not_apply_to_known_domains() {
        let (recipients, requests) = start(1);
        let known = name("known.example");
        assert!(recipients.find(&known).await.is_some());
        let mut guesses = (0..1000).map(|number| name(&format!("{number}.example")));
        assert!(guesses.any(|guess| recipients.lookup(&guess).is_none()));
        for fail in [false, true, false] {
            requests.lock().unwrap().fail = fail;
            for _ in 0..10 {
                assert_eq!(recipients.find(&known).await.is_none(), fail);
            }
        }
    }
}
