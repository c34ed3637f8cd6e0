//! Delivers notices of zone changes from the outbox to secondaries (RFC 1996).
//!
//! A NOTIFY is only a hint to query the serial, so an additional one is harmless. A secondary that misses a NOTIFY
//! queries the serial after the zone's refresh interval. Therefore the service stops its attempts after about this
//! time.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use kernel::ClockRng;
use store::outbox::{DeliveryError, Message as OutboxMessage, OutboxHandler};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep, timeout};

use crate::name::WireName;
use crate::notify::{Notice, TOPIC};
use crate::wire::{Message, TsigKey, Writer, kind, opcode, question, rcode};

use super::PrimaryConfig;

/// The timeout of an acknowledgement. Each delivery sends at most two messages.
const ACK_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause after a secondary did not answer. Until it has passed, no delivery waits for this secondary, so that the
/// notifications of other secondaries are not delayed.
const SKIP_PERIOD: Duration = Duration::from_secs(10);
/// The time that secondaries have to load a new catalog before they receive a NOTIFY of the zone whose group the
/// catalog changes. A signer that transfers the zone before it loads the catalog keeps the zone's old group.
const CATALOG_LOAD_TIME: Duration = Duration::from_secs(1);
/// The number of attempts after which a refusal counts as delivered. The secondary does not have the zone yet, and will
/// get it from the catalog.
const MAX_REFUSED_ATTEMPTS: i32 = 3;
/// The number of attempts to notify a secondary. They take about an hour, which is a zone's refresh interval.
const MAX_ATTEMPTS: i32 = 18;

/// The outbox handler for notices.
pub struct Notifier {
    key: TsigKey,
    secondaries: Vec<SocketAddr>,
    catalog: WireName,
    /// The source address of notices, which secondaries may check.
    local_address: IpAddr,
    clock_rng: ClockRng,
    /// The unresponsive secondaries. Deliveries do not wait for them until the given time.
    unresponsive: Mutex<HashMap<SocketAddr, Instant>>,
}

/// The reason why a secondary did not acknowledge a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NotifyError {
    /// No answer.
    NoAnswer,
    /// An answer with this response code.
    Refused(u16),
    Unreachable(String),
}

impl Notifier {
    /// Creates a notifier for the secondaries of this primary. Returns `None` if the catalog name is invalid.
    #[must_use]
    pub fn new(config: &PrimaryConfig, clock_rng: ClockRng) -> Option<Self> {
        let catalog = WireName::from_host(config.catalog.as_str())?;
        let (key, secondaries) = (config.key.clone(), config.secondaries.clone());
        Some(Self {
            key,
            secondaries,
            catalog,
            local_address: config.listen.ip(),
            clock_rng,
            unresponsive: Mutex::default(),
        })
    }

    /// Notifies all secondaries concurrently.
    async fn notify_all(&self, zone: &WireName) -> Vec<(SocketAddr, Result<(), NotifyError>)> {
        join_all(self.secondaries.iter().map(async |secondary| (*secondary, self.notify(*secondary, zone).await))).await
    }

    async fn notify(&self, secondary: SocketAddr, zone: &WireName) -> Result<(), NotifyError> {
        let is_unresponsive = self.lock_unresponsive().get(&secondary).is_some_and(|until| *until > Instant::now());
        let result = self.exchange(secondary, zone, is_unresponsive).await;
        match &result {
            Err(NotifyError::NoAnswer | NotifyError::Unreachable(_)) if is_unresponsive => {}
            Err(NotifyError::NoAnswer | NotifyError::Unreachable(_)) => {
                self.lock_unresponsive().insert(secondary, Instant::now() + SKIP_PERIOD);
            }
            Ok(()) | Err(NotifyError::Refused(_)) => drop(self.lock_unresponsive().remove(&secondary)),
        }
        result
    }

    async fn exchange(&self, secondary: SocketAddr, zone: &WireName, is_unresponsive: bool) -> Result<(), NotifyError> {
        let unreachable = |error: io::Error| NotifyError::Unreachable(error.to_string());
        let id = u16::from_be_bytes(self.clock_rng.bytes());
        let mut writer = Writer::request(id, opcode::NOTIFY, true);
        writer.question(&question(zone, kind::SOA));
        let (message, chain) = self.key.sign(writer.finish(), self.now());
        let socket = UdpSocket::bind((self.source_address(secondary), 0)).await.map_err(unreachable)?;
        socket.connect(secondary).await.map_err(unreachable)?;
        if is_unresponsive {
            socket.send(&message).await.map_err(unreachable)?;
            return Err(NotifyError::NoAnswer);
        }
        for _ in 0..2 {
            socket.send(&message).await.map_err(unreachable)?;
            let answered = timeout(ACK_TIMEOUT, async {
                let mut buffer = [0; 1024];
                loop {
                    let length = socket.recv(&mut buffer).await?;
                    let Ok(answer) = Message::read(buffer.get(..length).unwrap_or_default()) else { continue };
                    if is_answer(&answer, id, zone) && self.accepts_signature(&answer, &chain) {
                        return Ok(answer.header.rcode());
                    }
                }
            });
            match answered.await {
                Ok(Ok(rcode::NOERROR)) => return Ok(()),
                Ok(Ok(code)) => return Err(NotifyError::Refused(code)),
                Ok(Err(error)) => return Err(unreachable(error)),
                Err(_) => {}
            }
        }
        Err(NotifyError::NoAnswer)
    }

    /// Checks the signature of an answer. Also accepts unsigned errors, because some servers do not sign them. A forged
    /// error can only prevent the second attempt.
    fn accepts_signature(&self, answer: &Message<'_>, chain: &crate::wire::TsigChain) -> bool {
        let is_signed = answer.records.iter().any(|record| record.kind == kind::TSIG);
        !is_signed
            || answer.header.rcode() != rcode::NOERROR
            || self.key.check_answer(answer, self.now(), chain).is_ok()
    }

    fn source_address(&self, secondary: SocketAddr) -> IpAddr {
        match (self.local_address.is_ipv4() == secondary.is_ipv4(), secondary.is_ipv4()) {
            (true, _) => self.local_address,
            (false, true) => Ipv4Addr::UNSPECIFIED.into(),
            (false, false) => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    fn now(&self) -> u64 {
        self.clock_rng.now().unix_seconds().unsigned_abs()
    }

    fn lock_unresponsive(&self) -> std::sync::MutexGuard<'_, HashMap<SocketAddr, Instant>> {
        self.unresponsive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_answer(answer: &Message<'_>, id: u16, zone: &WireName) -> bool {
    let has_zone = answer.question().map_or(answer.questions.is_empty(), |question| question.name == *zone);
    answer.header.id == id && answer.header.is_response() && answer.header.opcode() == opcode::NOTIFY && has_zone
}

#[async_trait]
impl OutboxHandler for Notifier {
    fn topic(&self) -> &'static str {
        TOPIC
    }

    fn max_concurrency(&self) -> usize {
        32
    }

    async fn deliver(&self, message: &OutboxMessage) -> Result<(), DeliveryError> {
        let Notice { zone, after_catalog } = message.parse()?;
        let zone = match zone {
            Some(zone) => {
                WireName::from_host(&zone).ok_or_else(|| DeliveryError::Permanent("not a zone name".to_owned()))?
            }
            None => self.catalog.clone(),
        };
        let mut results = Vec::new();
        if after_catalog {
            results.extend(self.notify_all(&self.catalog).await);
            sleep(CATALOG_LOAD_TIME).await;
        }
        results.extend(self.notify_all(&zone).await);
        let mut failures = Vec::new();
        for (secondary, result) in results {
            match result {
                Err(NotifyError::Refused(code)) if message.attempts >= MAX_REFUSED_ATTEMPTS => {
                    tracing::info!(%secondary, zone = zone.to_host(), code, "a secondary refused a NOTIFY");
                }
                Err(error) if message.attempts >= MAX_ATTEMPTS => {
                    tracing::warn!(%secondary, zone = zone.to_host(), ?error, "gave up notifying a secondary");
                }
                Err(error) => failures.push(format!("{secondary}: {error}")),
                Ok(()) => {}
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(DeliveryError::Transient(failures.join("; "))) }
    }
}

impl std::fmt::Display for NotifyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoAnswer => f.write_str("no answer"),
            Self::Refused(code) => write!(f, "response code {code}"),
            Self::Unreachable(error) => f.write_str(error),
        }
    }
}

impl std::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notifier").field("secondaries", &self.secondaries).finish_non_exhaustive()
    }
}
