//! Limits on concurrent exchanges with providers, which visitors cause before they are known.

use std::net::IpAddr;
use std::time::Duration;

use protocol::AuthProviderKind;
use semaphores::KeyedSemaphores;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// The largest number of concurrent exchanges with one provider, so that a slow provider does not delay another.
const MAX_PER_PROVIDER: usize = 128;
/// The largest number of concurrent exchanges of one project, so that its visitors do not exclude those of others.
const MAX_PER_PROJECT: usize = 32;
/// The largest number of concurrent exchanges of one client address in one project, so that a visitor does not exclude
/// the others.
const MAX_PER_CLIENT: usize = 8;
/// The longest wait of a client address for its own exchanges.
const MAX_WAIT: Duration = Duration::from_secs(4);

/// The permits for exchanges.
pub struct ExchangePermits {
    providers: KeyedSemaphores<AuthProviderKind>,
    projects: KeyedSemaphores<String>,
    clients: KeyedSemaphores<(String, IpAddr)>,
}

/// The permit for a sign-in, until it is dropped.
pub struct ExchangePermit {
    /// The permit of the provider, which the caller drops after the exchange.
    pub provider: OwnedSemaphorePermit,
    /// The permits of the project and of the client address.
    _visitor: [OwnedSemaphorePermit; 2],
}

impl ExchangePermits {
    pub fn new() -> Self {
        Self {
            providers: KeyedSemaphores::new(MAX_PER_PROVIDER),
            projects: KeyedSemaphores::new(MAX_PER_PROJECT),
            clients: KeyedSemaphores::new(MAX_PER_CLIENT),
        }
    }

    /// Returns a permit; `None` if too many exchanges are in progress. Waits while the client address, of which `client`
    /// is the key of the limits, has too many: such a wait delays no other client.
    pub async fn acquire(&self, provider: AuthProviderKind, project: &str, client: IpAddr) -> Option<ExchangePermit> {
        let client = self.clients.of((project.to_owned(), client)).acquire_owned();
        let client = timeout(MAX_WAIT, client).await.ok()?.ok()?;
        let project = self.projects.of(project.to_owned()).try_acquire_owned().ok()?;
        let provider = self.providers.of(provider).try_acquire_owned().ok()?;
        Some(ExchangePermit { provider, _visitor: [project, client] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: usize) -> IpAddr {
        IpAddr::from([10, 0, 0, u8::try_from(number).unwrap()])
    }

    async fn acquire_all(
        permits: &ExchangePermits,
        mut next: impl FnMut(usize) -> (String, IpAddr),
    ) -> Vec<ExchangePermit> {
        let mut held = Vec::new();
        loop {
            let (project, client) = next(held.len());
            match permits.acquire(AuthProviderKind::Codehost, &project, client).await {
                Some(permit) => held.push(permit),
                None => return held,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_visitor_leaves_permits_for_others_of_the_project() {
        let (permits, provider) = (ExchangePermits::new(), AuthProviderKind::Codehost);
        let held = acquire_all(&permits, |_| ("prj_1".to_owned(), client(1))).await;
        assert_eq!(held.len(), MAX_PER_CLIENT);
        assert!(permits.acquire(provider, "prj_1", client(2)).await.is_some());
        assert!(permits.acquire(provider, "prj_2", client(1)).await.is_some());
        // The next exchange of the visitor begins when another one has ended.
        let (next, ()) = tokio::join!(permits.acquire(provider, "prj_1", client(1)), async { drop(held) });
        assert!(next.is_some());
        drop(next);
        assert!(permits.acquire(provider, "prj_1", client(3)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_project_leaves_permits_for_others() {
        let (permits, provider) = (ExchangePermits::new(), AuthProviderKind::Codehost);
        let held = acquire_all(&permits, |number| ("prj_1".to_owned(), client(number))).await;
        assert_eq!(held.len(), MAX_PER_PROJECT);
        let others = acquire_all(&permits, |number| (format!("other {number}"), client(1))).await;
        assert_eq!(others.len(), MAX_PER_PROVIDER - MAX_PER_PROJECT);
        assert!(permits.acquire(AuthProviderKind::Messenger, "prj_2", client(1)).await.is_some());
        assert!(permits.acquire(provider, "prj_2", client(1)).await.is_none());
        // After their exchanges, the sign-ins of a project count only in the project.
        let held: Vec<_> = held.into_iter().map(|ExchangePermit { _visitor, .. }| _visitor).collect();
        assert!(permits.acquire(provider, "prj_1", client(99)).await.is_none());
        assert!(permits.acquire(provider, "prj_2", client(1)).await.is_some());
        drop((held, others));
        assert!(permits.acquire(provider, "prj_1", client(1)).await.is_some());
        assert!(permits.acquire(provider, "prj_3", client(1)).await.is_some());
    }
}
