//! The limits of connections and mails, and of clients that guess addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use settings::rate_limit_key;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of clients above which idle ones are forgotten.
const MAX_IDLE_CLIENTS: usize = 10_000;
/// A client can send the mails of this time at once.
const MAIL_BURST: Duration = Duration::from_secs(60);
/// The number of unknown recipients after which the replies to a client are delayed.
const FREE_GUESSES: f64 = 5.0;
/// After this time, half of a client's unknown recipients are forgotten.
const GUESS_HALF_LIFE: Duration = Duration::from_secs(600);

/// The limits of clients.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The connections at the same time.
    pub connections: usize,
    /// The connections of a client at the same time.
    pub connections_per_client: usize,
    /// The mails of a client in a minute, on average.
    pub mails_per_minute: u32,
    /// The recipients of a mail (RFC 5321 section 4.5.3.1.8 requires 100).
    pub recipients: usize,
    /// The refused commands of a connection.
    pub errors: u32,
    /// The commands of a connection after the last accepted mail.
    pub commands: u32,
    /// The size of a mail, as the client sends it.
    pub mail_bytes: u64,
    /// The size of the header.
    pub header_bytes: usize,
    /// The lines of the header, without continuations.
    pub header_fields: usize,
    /// The `Received` fields of a mail. Each server adds one, so a mail in a loop exceeds this limit (RFC 5321 section
    /// 6.3 requires at least 100).
    pub hops: usize,
    /// The look-ups of recipients at the control plane in a second, on average.
    pub lookups_per_second: u32,
    /// The space on its file system that the queue leaves free.
    pub free_bytes: u64,
    pub timeouts: Timeouts,
}

/// The timeouts of a connection. RFC 5321 section 4.5.3.2 recommends 5 minutes for a command, and 3 minutes for a block
/// of a mail.
#[derive(Debug, Clone)]
pub struct Timeouts {
    /// For a whole command.
    pub command: Duration,
    /// For the next bytes of a mail.
    pub data_block: Duration,
    /// For a whole mail.
    pub data: Duration,
    /// The time after which the minimum rate of a mail applies.
    pub data_grace: Duration,
    /// The minimum rate of a mail, in bytes per second.
    pub data_rate: u64,
    /// For a whole connection.
    pub connection: Duration,
    /// For the TLS handshake.
    pub tls: Duration,
    /// For sending a reply.
    pub write: Duration,
    /// For SPF. RFC 7208 section 4.6.4 recommends at least 20 seconds.
    pub spf: Duration,
    /// The longest delay of the reply to an unknown recipient.
    pub tarpit: Duration,
    /// For mails in transmission when the node stops.
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
            header_bytes: 128 << 10,
            header_fields: 1000,
            hops: 100,
            lookups_per_second: 500,
            free_bytes: 256 << 20,
            timeouts: Timeouts::default(),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            command: Duration::from_secs(120),
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

/// A connection above a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooManyConnections {
    /// The node has too many.
    Node,
    /// The client has too many.
    Client,
}

/// A rate limiter (GCRA).
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// The time between events, on average.
    interval: Duration,
    /// The events of this time can occur at once.
    burst: Duration,
    /// The earliest time at which the admitted events no longer exceed the average rate.
    paid_at: Instant,
}

impl Rate {
    pub const fn new(interval: Duration, burst: Duration, now: Instant) -> Self {
        Self { interval, burst, paid_at: now }
    }

    /// Counts an event, if it is within the rate.
    pub fn admit(&mut self, now: Instant) -> bool {
        let paid_at = self.paid_at.max(now) + self.interval;
        let admitted = paid_at.duration_since(now) <= self.burst;
        if admitted {
            self.paid_at = paid_at;
        }
        admitted
    }
}

/// The clients that have or recently had connections. A client is an IPv4 address or a /64 network of IPv6 addresses.
#[derive(Clone)]
pub struct Clients {
    max_per_client: usize,
    mail_interval: Duration,
    tarpit: Duration,
    connections: Arc<Semaphore>,
    clients: Arc<Mutex<HashMap<IpAddr, Client>>>,
}

struct Client {
    connections: usize,
    mails: Rate,
    /// The unknown recipients, which decay, at a time.
    guesses: f64,
    guessed_at: Instant,
}

/// A counted connection of a client.
pub struct ClientConnection {
    clients: Clients,
    key: IpAddr,
    _permit: OwnedSemaphorePermit,
}

impl Clients {
    pub fn new(limits: &Limits) -> Self {
        Self {
            max_per_client: limits.connections_per_client,
            mail_interval: Duration::from_secs(60) / limits.mails_per_minute.max(1),
            tarpit: limits.timeouts.tarpit,
            connections: Arc::new(Semaphore::new(limits.connections)),
            clients: Arc::default(),
        }
    }

    /// Counts a connection from an address.
    pub fn connect(&self, address: IpAddr) -> Result<ClientConnection, TooManyConnections> {
        let permit = Arc::clone(&self.connections).try_acquire_owned().map_err(|_| TooManyConnections::Node)?;
        let (key, now) = (rate_limit_key(address.to_canonical()), Instant::now());
        let mut clients = self.lock();
        if clients.len() >= MAX_IDLE_CLIENTS && !clients.contains_key(&key) {
            clients.retain(|_, client| !client.is_idle(now));
        }
        if clients.len() >= 2 * MAX_IDLE_CLIENTS && !clients.contains_key(&key) {
            clients.retain(|_, client| client.connections > 0);
        }
        let client = clients.entry(key).or_insert_with(|| Client::new(self.mail_interval, now));
        if client.connections >= self.max_per_client {
            return Err(TooManyConnections::Client);
        }
        client.connections += 1;
        Ok(ClientConnection { clients: self.clone(), key, _permit: permit })
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
        self.connections == 0 && self.mails.paid_at <= now && self.guesses(now) < 1.0
    }
}

impl ClientConnection {
    /// Counts a mail. Returns false if the client sent too many mails.
    pub fn admit_mail(&self) -> bool {
        let (now, mut clients) = (Instant::now(), self.clients.lock());
        clients.get_mut(&self.key).is_some_and(|client| client.mails.admit(now))
    }

    /// Counts an unknown recipient. Returns the delay of the reply.
    pub fn count_guess(&self) -> Duration {
        let (now, mut clients) = (Instant::now(), self.clients.lock());
        let Some(client) = clients.get_mut(&self.key) else { return Duration::ZERO };
        client.guesses = client.guesses(now) + 1.0;
        client.guessed_at = now;
        delay(client.guesses).min(self.clients.tarpit)
    }
}

/// Returns the delay of the reply to a client with this number of unknown recipients.
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
    fn mails_are_limited_per_client() {
        let clients = clients(Limits { mails_per_minute: 3, ..Limits::default() });
        let one = clients.connect([192, 0, 2, 1].into()).unwrap();
        let other = clients.connect([192, 0, 2, 2].into()).unwrap();
        assert_eq!([(); 5].map(|()| one.admit_mail()), [true, true, true, false, false]);
        assert!(other.admit_mail());
    }

    #[test]
    fn rate_recovers() {
        let mut now = Instant::now();
        let mut rate = Rate::new(Duration::from_secs(20), Duration::from_secs(60), now);
        assert_eq!([(); 4].map(|()| rate.admit(now)), [true, true, true, false]);
        now += Duration::from_secs(21);
        assert_eq!([(); 2].map(|()| rate.admit(now)), [true, false]);
    }

    #[test]
    fn guesses_are_delayed_more_and_more() {
        let clients = clients(Limits::default());
        let client = clients.connect([192, 0, 2, 1].into()).unwrap();
        let delays: Vec<_> = (0..40).map(|_| client.count_guess()).collect();
        assert!(delays[..5].iter().all(Duration::is_zero) && delays.is_sorted());
        assert_eq!(delays.last(), Some(&Duration::from_secs(10)));
        assert_eq!(delay(7.0), Duration::from_secs(1));
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
