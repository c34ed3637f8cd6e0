//! The limits of connections and mails, and the delays for clients that guess addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use daemon::Rate;
use settings::rate_limit_key;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::queue::QueueLimits;

/// The number of clients above which idle ones are forgotten.
const MAX_IDLE_CLIENTS: usize = 10_000;
/// The rate limiter lets a client send the mails of this period in one burst.
const MAIL_BURST: Duration = Duration::from_secs(60);
/// The number of unknown recipients that a client can use before its replies are delayed.
const FREE_GUESSES: f64 = 5.0;
/// The node is busy while fewer than this part of its connections are free: a fifth.
const FREE_PART: usize = 5;
/// After this time, half of a client's unknown recipients are forgotten.
const GUESS_HALF_LIFE: Duration = Duration::from_secs(600);

/// The limits that apply to clients.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The maximum number of concurrent connections.
    pub connections: usize,
    /// The maximum number of concurrent connections per client.
    pub connections_per_client: usize,
    /// The number of mails per minute from one client, on average.
    pub mails_per_minute: u32,
    /// The maximum number of recipients per mail (RFC 5321 section 4.5.3.1.8 requires at least 100).
    pub recipients: usize,
    /// The maximum number of refused commands per connection.
    pub errors: u32,
    /// The maximum number of commands on a connection since the last accepted mail.
    pub commands: u32,
    /// The maximum size of a mail, as the client sends it.
    pub mail_bytes: u64,
    /// The maximum number of bytes that a client can send after DATA. Those above `mail_bytes` are discarded, so that the
    /// client receives the refusal. A client whose connection ends earlier sends the mail again for days.
    pub data_bytes: u64,
    /// The maximum size of the header.
    pub header_bytes: usize,
    /// The maximum number of header fields.
    pub header_fields: usize,
    /// The maximum number of `Received` fields per mail. Each server adds one, so a mail in a loop exceeds this limit
    /// (RFC 5321 section 6.3 requires at least 100).
    pub hops: usize,
    /// The number of lookups at the control plane per second, on average.
    pub lookups_per_second: u32,
    pub queue: QueueLimits,
    pub timeouts: Timeouts,
}

/// The timeouts of a connection. RFC 5321 section 4.5.3.2 recommends 5 minutes for a command, and 3 minutes for a block
/// of data.
#[derive(Debug, Clone)]
pub struct Timeouts {
    /// For receiving a complete command.
    pub command: Duration,
    /// For a whole command while the node is busy.
    pub busy_command: Duration,
    /// For the next bytes of a mail.
    pub data_block: Duration,
    /// For receiving a complete mail.
    pub data: Duration,
    /// The time after which the minimum transfer rate of a mail applies.
    pub data_grace: Duration,
    /// The minimum transfer rate of a mail, in bytes per second.
    pub data_rate: u64,
    /// For the whole connection.
    pub connection: Duration,
    /// For the TLS handshake.
    pub tls: Duration,
    /// For sending a reply.
    pub write: Duration,
    /// For the SPF check. RFC 7208 section 4.6.4 recommends at least 20 seconds.
    pub spf: Duration,
    /// The maximum delay of the reply to an unknown recipient.
    pub tarpit: Duration,
    /// For the mails that clients are transmitting when the node stops.
    pub stop: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1000,
            connections_per_client: 20,
            mails_per_minute: 600,
            recipients: 100,
            errors: 20,
            commands: 1000,
            mail_bytes: 25 << 20,
            data_bytes: 256 << 20,
            header_bytes: 128 << 10,
            header_fields: 1000,
            hops: 100,
            lookups_per_second: 500,
            queue: QueueLimits { free_bytes: 256 << 20, project_bytes: 256 << 20, refusal: Duration::from_secs(3600) },
            timeouts: Timeouts::default(),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            command: Duration::from_secs(120),
            busy_command: Duration::from_secs(15),
            data_block: Duration::from_secs(120),
            data: Duration::from_secs(15 * 60),
            data_grace: Duration::from_secs(30),
            data_rate: 1024,
            connection: Duration::from_secs(60 * 60),
            tls: Duration::from_secs(30),
            write: Duration::from_secs(60),
            spf: Duration::from_secs(20),
            tarpit: Duration::from_secs(10),
            stop: Duration::from_secs(20),
        }
    }
}

/// The reason why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooManyConnections {
    /// The node has too many connections.
    Node,
    /// The client has too many connections.
    Client,
}

/// The clients that have or recently had connections. A client is an IPv4 address or a /64 network of IPv6 addresses.
#[derive(Clone)]
pub struct Clients {
    max_connections: usize,
    max_per_client: usize,
    mail_interval: Duration,
    tarpit: Duration,
    connections: Arc<Semaphore>,
    clients: Arc<Mutex<HashMap<IpAddr, Client>>>,
}

struct Client {
    connections: usize,
    mails: Rate,
    /// The number of unknown recipients at the time `guessed_at`. It decays.
    guesses: f64,
    guessed_at: Instant,
}

/// A connection that counts against its client's limit until it is dropped.
pub struct ClientConnection {
    clients: Clients,
    key: IpAddr,
    /// Replies to local clients are not delayed: they are trusted, or a proxy whose clients would share one number.
    is_local: bool,
    _permit: OwnedSemaphorePermit,
}

impl Clients {
    pub fn new(limits: &Limits) -> Self {
        Self {
            max_connections: limits.connections,
            max_per_client: limits.connections_per_client,
            mail_interval: Duration::from_secs(60) / limits.mails_per_minute.max(1),
            tarpit: limits.timeouts.tarpit,
            connections: Arc::new(Semaphore::new(limits.connections)),
            clients: Arc::default(),
        }
    }

    /// Returns whether most connections are in use.
    pub fn is_busy(&self) -> bool {
        self.connections.available_permits() < self.max_connections / FREE_PART
    }

    /// Returns the limit of a client's connections. It falls while the node is busy, so that a few clients cannot use all
    /// connections.
    fn max_per_client(&self) -> usize {
        if !self.is_busy() {
            return self.max_per_client;
        }
        let free = self.connections.available_permits();
        (self.max_per_client * free / (self.max_connections / FREE_PART)).max(1)
    }

    /// Counts a connection from an address.
    pub fn connect(&self, address: IpAddr) -> Result<ClientConnection, TooManyConnections> {
        let permit = Arc::clone(&self.connections).try_acquire_owned().map_err(|_| TooManyConnections::Node)?;
        let address = address.to_canonical();
        let (key, now, max) = (rate_limit_key(address), Instant::now(), self.max_per_client());
        let mut clients = self.lock();
        if clients.len() >= MAX_IDLE_CLIENTS && !clients.contains_key(&key) {
            clients.retain(|_, client| !client.is_idle(now));
        }
        if clients.len() >= 2 * MAX_IDLE_CLIENTS && !clients.contains_key(&key) {
            clients.retain(|_, client| client.connections > 0);
        }
        let client = clients.entry(key).or_insert_with(|| Client::new(self.mail_interval, now));
        if client.connections >= max {
            return Err(TooManyConnections::Client);
        }
        client.connections += 1;
        Ok(ClientConnection { clients: self.clone(), key, is_local: address.is_loopback(), _permit: permit })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Client>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    const fn new(mail_interval: Duration, now: Instant) -> Self {
        let mails = Rate::new(mail_interval, MAIL_BURST, now);
        Self { connections: 0, mails, guesses: 0.0, guessed_at: now }
    }

    fn guesses(&self, now: Instant) -> f64 {
        let half_lives = now.duration_since(self.guessed_at).as_secs_f64() / GUESS_HALF_LIFE.as_secs_f64();
        self.guesses * (-half_lives).exp2()
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.connections == 0 && self.mails.is_idle(now) && self.guesses(now) < 1.0
    }
}

impl ClientConnection {
    /// Returns whether the client may send another mail, and counts it if so.
    pub fn admit_mail(&self) -> bool {
        let (now, mut clients) = (Instant::now(), self.clients.lock());
        clients.get_mut(&self.key).is_some_and(|client| client.mails.admit(now))
    }

    /// Counts an unknown recipient. Returns the delay before the reply.
    pub fn count_guess(&self) -> Duration {
        if self.is_local {
            return Duration::ZERO;
        }
        let (now, mut clients) = (Instant::now(), self.clients.lock());
        let Some(client) = clients.get_mut(&self.key) else { return Duration::ZERO };
        client.guesses = client.guesses(now) + 1.0;
        client.guessed_at = now;
        delay(client.guesses).min(self.clients.tarpit)
    }
}

/// Returns the delay before the reply to a client with this number of unknown recipients.
fn delay(guesses: f64) -> Duration {
    Duration::from_millis(500).mul_f64((guesses - FREE_GUESSES).max(0.0))
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        if let Some(client) = self.clients.lock().get_mut(&self.key) {
            client.connections -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(limits: Limits) -> Clients {
        Clients::new(&limits)
    }

    #[test]
    fn connections_are_limited_in_total_and_per_client() {
        let clients = clients(Limits { connections: 4, connections_per_client: 2, ..Limits::default() });
        let connect = |address: &str| clients.connect(address.parse().unwrap());
        let first = connect("2001:db8::1").unwrap();
        let _second = connect("2001:db8::2").unwrap();
        assert_eq!(connect("2001:db8::3").err(), Some(TooManyConnections::Client));
        let _other = connect("2001:db8:0:1::1").unwrap();
        let _third = connect("192.0.2.1").unwrap();
        assert_eq!(connect("192.0.2.2").err(), Some(TooManyConnections::Node));
        drop(first);
        assert!(connect("::ffff:192.0.2.1").is_ok());
    }

    #[test]
    fn a_few_clients_cannot_use_all_connections() {
        let clients = clients(Limits::default());
        let mut held = Vec::new();
        for client in 0..60 {
            while let Ok(connection) = clients.connect([192, 0, 2, client].into()) {
                held.push(connection);
            }
        }
        assert!(clients.is_busy() && held.len() < 1000);
        let others: Vec<_> = (0..5).map(|other| clients.connect([198, 51, 100, other].into())).collect();
        assert!(others.iter().all(Result::is_ok));
        held.truncate(500);
        drop(others);
        assert!(!clients.is_busy());
        let one: Vec<_> = std::iter::from_fn(|| clients.connect([203, 0, 113, 1].into()).ok()).take(100).collect();
        assert_eq!(one.len(), 20);
    }

    #[test]
    fn mails_are_limited_per_client() {
        let clients = clients(Limits { mails_per_minute: 3, ..Limits::default() });
        let one = clients.connect([192, 0, 2, 1].into()).unwrap();
        let other = clients.connect([192, 0, 2, 2].into()).unwrap();
        assert_eq!([(); 5].map(|()| one.admit_mail()), [true, true, true, false, false]);
        assert!(other.admit_mail());
    }

    #[test]
    fn guesses_are_delayed_more_and_more() {
        let clients = clients(Limits::default());
        let client = clients.connect([192, 0, 2, 1].into()).unwrap();
        let delays: Vec<_> = (0..40).map(|_| client.count_guess()).collect();
        assert!(delays[..5].iter().all(Duration::is_zero) && delays.is_sorted());
        assert_eq!(delays.last(), Some(&Duration::from_secs(10)));
        assert_eq!(delay(7.0), Duration::from_secs(1));
        for local in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let client = clients.connect(local.parse().unwrap()).unwrap();
            assert!((0..40).all(|_| client.count_guess().is_zero()), "{local}");
        }
    }

    #[test]
    fn idle_clients_are_forgotten() {
        let clients = clients(Limits::default());
        for number in 0..3 * u32::try_from(MAX_IDLE_CLIENTS).unwrap() {
            drop(clients.connect(IpAddr::V4(number.into())).unwrap());
        }
        assert!(clients.lock().len() <= MAX_IDLE_CLIENTS);
    }
}
