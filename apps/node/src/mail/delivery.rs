//! Deliveries of received mail to the workers of this node.
//!
//! The control plane gives out mail with a lease. The node runs `email()` and reports the result before the lease ends.
//! A mail whose result is not reported is given out again, so that each mail is handled at least once.
//!
//! The mail of one project does not delay that of others: few calls of a project run at the same time, and the node
//! holds a limited number of its mails.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::{MailDelivered, MailDelivery};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::handler::Handlers;
use super::metrics::MailMetrics;
use crate::backoff::Backoff;
use crate::client::{Core, Outcome};
use crate::routes::Routes;

/// The largest number of mails in a response of the control plane.
const MAX_BATCH: u32 = 20;
/// The largest number of mails that the node holds.
const MAX_CLAIMS: usize = 2000;
/// The largest number of mails of one project that the node holds. It ignores further ones, which are given out again
/// after their leases.
const MAX_PROJECT_CLAIMS: usize = 200;
/// The largest number of concurrent calls of `email()` of one project.
const MAX_PROJECT_CALLS: usize = 4;
/// The pause after the node has ignored a mail, in which mails of the project complete, and after an empty response.
const PAUSE: Duration = Duration::from_millis(250);

/// The lease of a mail ([`MailDelivery`]). It begins when the control plane sends the mail.
const LEASE: Duration = Duration::from_secs(5 * 60);
/// `email()` does not start later in the lease, so that its result can be reported in time.
const START_LIMIT: Duration = Duration::from_secs(4 * 60);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// What all deliveries share.
struct Deliveries {
    core: Core,
    handlers: Handlers,
    metrics: MailMetrics,
}

/// The mails of one project that the node holds.
struct ProjectClaims {
    claims: Arc<Semaphore>,
    calls: Semaphore,
}

/// A mail that the node holds.
struct Claim {
    mail: MailDelivery,
    claimed_at: Instant,
    project: Arc<ProjectClaims>,
    _permits: [OwnedSemaphorePermit; 2],
}

/// Delivers received mail while a project of the node has a mail address (`have_email`).
pub async fn deliver(
    core: Core,
    mut have_email: watch::Receiver<bool>,
    routes: watch::Receiver<Arc<Routes>>,
    metrics: MailMetrics,
) {
    let deliveries = Deliveries { handlers: Handlers::new(core.clone(), routes), core, metrics };
    let deliveries = Arc::new(deliveries);
    let claims = Arc::new(Semaphore::new(MAX_CLAIMS));
    let (mut projects, mut running) = (HashMap::new(), JoinSet::new());
    let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
    while have_email.wait_for(|have_email| *have_email).await.is_ok() {
        let Ok(mut free) = Arc::clone(&claims).acquire_many_owned(MAX_BATCH).await else { return };
        let mails = match deliveries.core.claim_mail().await {
            Ok(claimed) => claimed.deliveries,
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "failed to claim received mail; retrying");
                sleep(backoff.next_delay()).await;
                continue;
            }
        };
        backoff.reset();
        let mut is_paused = mails.is_empty();
        for mail in mails {
            match Claim::new(mail, &mut projects, &mut free) {
                Some(claim) => drop(running.spawn(Arc::clone(&deliveries).process(claim))),
                None => {
                    deliveries.metrics.count_delivery("excess");
                    is_paused = true;
                }
            }
        }
        drop(free);
        while let Some(ended) = running.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "the delivery of a mail failed");
            }
        }
        if is_paused {
            sleep(PAUSE).await;
        }
    }
}

impl Claim {
    /// Returns `None` if the node holds too many mails of the project.
    fn new(
        mail: MailDelivery,
        projects: &mut HashMap<String, Arc<ProjectClaims>>,
        free: &mut OwnedSemaphorePermit,
    ) -> Option<Self> {
        if !projects.contains_key(&mail.project) {
            projects.retain(|_, project| Arc::strong_count(project) > 1);
        }
        let project = Arc::clone(projects.entry(mail.project.clone()).or_default());
        let permits = [Arc::clone(&project.claims).try_acquire_owned().ok()?, free.split(1)?];
        Some(Self { mail, claimed_at: Instant::now(), project, _permits: permits })
    }
}

impl Default for ProjectClaims {
    fn default() -> Self {
        Self { claims: Arc::new(Semaphore::new(MAX_PROJECT_CLAIMS)), calls: Semaphore::new(MAX_PROJECT_CALLS) }
    }
}

impl Deliveries {
    /// Runs `email()` for a mail, and reports the result.
    async fn process(self: Arc<Self>, claim: Claim) {
        self.metrics.claimed.inc();
        match self.call(&claim).await {
            Some(delivered) => self.report(&claim, &delivered).await,
            None => self.metrics.count_delivery("expired"),
        }
        self.metrics.claimed.dec();
    }

    /// Calls `email()`. Returns `None` if there was no time for it.
    async fn call(&self, Claim { mail, claimed_at, project, .. }: &Claim) -> Option<MailDelivered> {
        let _call = timeout_at(*claimed_at + START_LIMIT, project.calls.acquire()).await.ok()?.ok()?;
        let result = self.handlers.call(mail).await;
        self.metrics.count_result(&result);
        Some(MailDelivered { attempt: mail.attempt, result })
    }

    /// Reports a result until the control plane accepts it, or the lease ends.
    async fn report(&self, Claim { mail, claimed_at, .. }: &Claim, delivered: &MailDelivered) {
        let (id, project) = (&mail.id, &mail.project);
        let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
        while claimed_at.elapsed() < LEASE {
            match self.core.report_mail(id, delivered).await {
                Ok(Outcome::Accepted(())) => return,
                Ok(Outcome::Rejected) => {
                    tracing::warn!(id, project, "the control plane rejected the result of a received mail");
                    return;
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(id, project, error, "failed to report the result of a received mail; retrying");
                }
            }
            sleep(backoff.next_delay()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_holds_a_limited_number_of_mails_of_each_project() {
        let claims = Arc::new(Semaphore::new(MAX_CLAIMS));
        let mut free = Arc::clone(&claims).try_acquire_many_owned(MAX_BATCH * 20).unwrap();
        let mut projects = HashMap::new();
        let mut claim = |project: &str| {
            let (id, project) = (String::new(), project.to_owned());
            let mail = MailDelivery { id, project, attempt: 1, from: String::new(), to: Vec::new(), size_bytes: 0 };
            Claim::new(mail, &mut projects, &mut free)
        };
        let mut held: Vec<_> = (0..MAX_PROJECT_CLAIMS).map(|_| claim("one").unwrap()).collect();
        assert!(claim("one").is_none());
        let other = claim("other").unwrap();
        held.pop();
        assert!(claim("one").is_some());
        drop(held);
        drop(other);
        assert!(claim("third").is_some());
        assert_eq!(projects.keys().collect::<Vec<_>>(), ["third"]);
        drop(free);
        assert_eq!(claims.available_permits(), MAX_CLAIMS);
    }
}
