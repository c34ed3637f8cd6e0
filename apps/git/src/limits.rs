//! The limits per client: on requests to the control plane, git processes and SSH connections.
//!
//! Anonymous clients count by their address. An IPv6 address counts as its /64 network, and also as its /48 network,
//! because sites and customers of hosting providers receive that many addresses.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use daemon::Rate;
use semaphores::KeyedSemaphores;
use settings::rate_limit_key;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant as Deadline, timeout_at};

/// The maximum number of git processes that run for clients at the same time. Others wait.
const MAX_PROGRAMS: usize = 64;
/// The maximum number of git processes that run for all anonymous clients together.
const MAX_ANONYMOUS_PROGRAMS: usize = MAX_PROGRAMS / 2;
/// The maximum number of concurrent requests to the control plane for clients. Others wait.
const MAX_ACCESS_REQUESTS: usize = 32;
/// The maximum time for which a client waits for all permits of a git process.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum time for which a client waits for a request to the control plane.
const ACCESS_TIMEOUT: Duration = Duration::from_secs(5);
/// The limit of a /48 network, as a multiple of the limit of an address.
const NETWORK_FACTOR: u8 = 2;
/// The number of addresses above which those that are not over their rate are forgotten.
const MAX_IDLE_ADDRESSES: usize = 10_000;
/// A client can send the requests of this period in one burst.
const BURST: Duration = Duration::from_secs(60);

/// The client for which a git process runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Client {
    User(String),
    /// An anonymous client.
    Address(IpAddr),
}

/// The limits of a client.
#[derive(Debug, Clone, Copy)]
pub struct ClientLimits {
    /// The maximum number of concurrent git processes of a user.
    pub programs_per_user: usize,
    /// The maximum number of concurrent git processes of the anonymous clients of an address.
    pub programs_per_address: usize,
    /// The maximum number of authenticated SSH connections of a user.
    pub connections_per_user: usize,
    /// The number of requests per minute from an address, on average.
    pub requests_per_address: u32,
}

/// The reason why a client gets no permit in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    #[error("you run {0} git commands at the same time, the maximum; try again when one of them has ended")]
    Programs(usize),
    #[error("you have {0} SSH connections, the maximum; close one of them")]
    Connections(usize),
    #[error("too many requests; try again in a minute")]
    Rate,
    #[error("the server runs too many git commands of anonymous clients; use a token, or try again in a moment")]
    Anonymous,
    #[error("the server runs too many git commands; try again in a moment")]
    Server,
}

/// Semaphores of anonymous clients. Each client has one for its address, and one for its /48 network.
#[derive(Debug)]
pub struct AddressSemaphores {
    addresses: KeyedSemaphores<IpAddr>,
    networks: KeyedSemaphores<IpAddr>,
}

impl AddressSemaphores {
    /// `permits` is the number of permits of an address.
    pub fn new(permits: usize) -> Self {
        let networks = KeyedSemaphores::new(permits.saturating_mul(NETWORK_FACTOR.into()));
        Self { addresses: KeyedSemaphores::new(permits), networks }
    }

    /// Returns the semaphores of a client.
    pub fn of(&self, address: IpAddr) -> impl Iterator<Item = Arc<Semaphore>> {
        let network = network(address).map(|network| self.networks.of(network));
        [Some(self.addresses.of(rate_limit_key(address))), network].into_iter().flatten()
    }
}

/// Returns the /48 network of an IPv6 address.
fn network(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V6(v6) => Some(Ipv6Addr::from_bits(v6.to_bits() >> 80 << 80).into()),
        IpAddr::V4(_) => None,
    }
}

/// The rates of the requests of clients, by address and by /48 network.
#[derive(Debug, Default)]
struct AddressRates {
    addresses: HashMap<IpAddr, Rate>,
    networks: HashMap<IpAddr, Rate>,
}

/// Limits the requests to the control plane: their rate per address, and how many run at the same time. Cheap to clone.
#[derive(Clone)]
pub struct AccessLimit {
    /// The average time between the requests of an address.
    interval: Duration,
    rates: Arc<Mutex<AddressRates>>,
    requests: Arc<Semaphore>,
}

impl AccessLimit {
    /// `per_minute` is the number of requests per minute from an address, on average.
    pub fn new(per_minute: u32) -> Self {
        let requests = Arc::new(Semaphore::new(MAX_ACCESS_REQUESTS));
        Self { interval: Duration::from_secs(60) / per_minute.max(1), rates: Arc::default(), requests }
    }

    /// Counts a request of an address, and waits until it may be sent.
    pub async fn admit(&self, address: IpAddr) -> Result<OwnedSemaphorePermit, Busy> {
        if !self.count(address, Instant::now()) {
            return Err(Busy::Rate);
        }
        wait(Arc::clone(&self.requests), Deadline::now() + ACCESS_TIMEOUT, Busy::Server).await
    }

    /// Returns whether the rates of the address and of its network allow another request, and counts it if so.
    fn count(&self, address: IpAddr, now: Instant) -> bool {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let AddressRates { addresses, networks } = &mut *rates;
        for rates in [&mut *addresses, &mut *networks] {
            if rates.len() > MAX_IDLE_ADDRESSES {
                rates.retain(|_, rate| !rate.is_idle(now));
            }
        }
        let new = |interval| Rate::new(interval, BURST, now);
        let of_address = addresses.entry(rate_limit_key(address)).or_insert_with(|| new(self.interval));
        let of_network = network(address)
            .map(|network| networks.entry(network).or_insert_with(|| new(self.interval / u32::from(NETWORK_FACTOR))));
        let rates: Vec<_> = [Some(of_address), of_network].into_iter().flatten().collect();
        rates.iter().all(|rate| rate.admits(now)) && rates.into_iter().all(|rate| rate.admit(now))
    }
}

async fn wait(semaphore: Arc<Semaphore>, deadline: Deadline, busy: Busy) -> Result<OwnedSemaphorePermit, Busy> {
    timeout_at(deadline, semaphore.acquire_owned()).await.ok().and_then(Result::ok).ok_or(busy)
}

/// Limits the number of running git processes. Cheap to clone.
#[derive(Clone)]
pub struct ProgramLimit {
    limits: ClientLimits,
    all: Arc<Semaphore>,
    anonymous: Arc<Semaphore>,
    users: Arc<KeyedSemaphores<String>>,
    addresses: Arc<AddressSemaphores>,
}

/// The permit of a git process: permits of its client, and one of the node.
#[derive(Debug)]
pub struct ProgramPermit {
    _client: Vec<OwnedSemaphorePermit>,
    node: NodePermit,
}

/// The node's permit in a [`ProgramPermit`], which can be released before the client's permit.
#[derive(Debug, Clone, Default)]
pub struct NodePermit(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl NodePermit {
    /// Releases the permit of a process that only waits.
    pub fn release(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl ProgramPermit {
    /// Returns the node's permit, which can be released before this permit.
    pub fn node(&self) -> NodePermit {
        self.node.clone()
    }
}

impl Drop for ProgramPermit {
    fn drop(&mut self) {
        self.node.release();
    }
}

impl ProgramLimit {
    pub fn new(limits: ClientLimits) -> Self {
        Self {
            limits,
            all: Arc::new(Semaphore::new(MAX_PROGRAMS)),
            anonymous: Arc::new(Semaphore::new(MAX_ANONYMOUS_PROGRAMS)),
            users: Arc::new(KeyedSemaphores::new(limits.programs_per_user)),
            addresses: Arc::new(AddressSemaphores::new(limits.programs_per_address)),
        }
    }

    /// Waits for the permits of the client, and then for one of the node.
    pub async fn acquire(&self, client: Client) -> Result<ProgramPermit, Busy> {
        let ClientLimits { programs_per_user, programs_per_address, .. } = self.limits;
        let semaphores: Vec<_> = match client {
            Client::User(user) => vec![(self.users.of(user), Busy::Programs(programs_per_user))],
            Client::Address(address) => {
                let own = self.addresses.of(address).map(|own| (own, Busy::Programs(programs_per_address)));
                own.chain([(Arc::clone(&self.anonymous), Busy::Anonymous)]).collect()
            }
        };
        let deadline = Deadline::now() + QUEUE_TIMEOUT;
        let mut client = Vec::with_capacity(semaphores.len());
        for (semaphore, busy) in semaphores {
            client.push(wait(semaphore, deadline, busy).await?);
        }
        let node = wait(Arc::clone(&self.all), deadline, Busy::Server).await?;
        Ok(ProgramPermit { _client: client, node: NodePermit(Arc::new(Mutex::new(Some(node)))) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ClientLimits = ClientLimits {
        programs_per_user: 2,
        programs_per_address: 1,
        connections_per_user: 2,
        requests_per_address: 60,
    };

    #[tokio::test]
    async fn clients_have_separate_limits() {
        let limit = ProgramLimit::new(LIMITS);
        let user = |name: &str| Client::User(name.to_owned());
        let first = limit.acquire(user("ada")).await.unwrap();
        let _second = limit.acquire(user("ada")).await.unwrap();
        let mut third = Box::pin(limit.acquire(user("ada")));
        assert!(futures_util::poll!(&mut third).is_pending());
        let _other = limit.acquire(user("mia")).await.unwrap();
        let anonymous = limit.acquire(Client::Address([192, 0, 2, 1].into())).await.unwrap();
        let mut next = Box::pin(limit.acquire(Client::Address([192, 0, 2, 1].into())));
        assert!(futures_util::poll!(&mut next).is_pending());
        let _neighbour = limit.acquire(Client::Address([192, 0, 2, 2].into())).await.unwrap();
        drop((first, anonymous));
        drop((third.await.unwrap(), next.await.unwrap()));
    }

    #[tokio::test]
    async fn anonymous_clients_leave_programs_for_users() {
        let limit = ProgramLimit::new(LIMITS);
        let in_network = |subnet: u16| Client::Address(Ipv6Addr::new(0x2001, 0xdb8, 1, subnet, 0, 0, 0, 1).into());
        let (_first, _second) =
            (limit.acquire(in_network(1)).await.unwrap(), limit.acquire(in_network(2)).await.unwrap());
        // Two /64 networks have used the permits of their /48 network.
        let mut third = Box::pin(limit.acquire(in_network(3)));
        assert!(futures_util::poll!(&mut third).is_pending());
        let mut held = Vec::new();
        for last in 2..MAX_ANONYMOUS_PROGRAMS {
            let address = [192, 0, 2, u8::try_from(last).unwrap()];
            held.push(limit.acquire(Client::Address(address.into())).await.unwrap());
        }
        let mut anonymous = Box::pin(limit.acquire(Client::Address([198, 51, 100, 1].into())));
        assert!(futures_util::poll!(&mut anonymous).is_pending());
        assert!(limit.acquire(Client::User("ada".to_owned())).await.is_ok());
    }

    #[test]
    fn requests_are_counted_by_address_and_network() {
        let limit = AccessLimit::new(LIMITS.requests_per_address);
        let now = Instant::now();
        let in_network = |subnet: u16| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 1, subnet, 0, 0, 0, 1));
        let admitted = |address: IpAddr, now: Instant| (0..100).take_while(|_| limit.count(address, now)).count();
        assert_eq!([1, 2, 3].map(|subnet| admitted(in_network(subnet), now)), [60, 60, 0]);
        assert_eq!(admitted([192, 0, 2, 1].into(), now), 60);
        // The permits return at the average rate.
        let later = now + Duration::from_secs(10);
        assert_eq!([1, 2].map(|subnet| admitted(in_network(subnet), later)), [10, 10]);
    }
}
