//! Telling secondaries that a zone has changed (RFC 1996): what delivers the outbox's notices.
//!
//! A notice is a hint. Who misses it looks by itself when the zone's refresh is over, and who takes it asks for the
//! serial; so a notice too many is harmless, and one that nobody takes is given up after about that time.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use kernel::{Time, World};
use store::Connection;
use store::outbox::{Deliver, Message as Letter, Undelivered};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep, timeout};

use crate::name::WireName;
use crate::notify::{Notice, TOPIC};
use crate::wire::{Message, TsigKey, Writer, about, kind, opcode, rcode};

use super::PrimaryConfig;

/// How long an acknowledgement is waited for, each of two times.
const WAIT: Duration = Duration::from_secs(1);
/// For how long a secondary that did not answer is not waited for, so that it does not hold up what others are told.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a secondary is given to take in a new catalog, before it is told of the zone whose group that changes: a
/// signer that transfers the zone earlier leaves it as it was.
const TAKING_IN: Duration = Duration::from_secs(1);
/// A secondary that says so often that it does not know a zone learns of it from the catalog, or never.
const REFUSALS: i32 = 3;
/// So many attempts take about an hour: as long as a zone's refresh.
const SILENCES: i32 = 18;

/// Delivers notices.
pub struct Notifier {
    key: TsigKey,
    secondaries: Vec<SocketAddr>,
    catalog: WireName,
    /// Where notices come from, as secondaries may check.
    from: IpAddr,
    world: World,
    /// Until when which secondary is not waited for.
    silent: Mutex<HashMap<SocketAddr, Instant>>,
}

/// Why a secondary does not count as told.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Untold {
    /// It did not answer.
    Silent,
    /// It answered this code.
    Refused(u16),
    Unreachable(String),
}

impl Notifier {
    /// For the secondaries of this primary; none when the catalog's name is no domain name.
    #[must_use]
    pub fn new(config: &PrimaryConfig, world: World) -> Option<Self> {
        let catalog = WireName::of_host(config.catalog.as_str())?;
        let (key, secondaries) = (config.key.clone(), config.secondaries.clone());
        Some(Self { key, secondaries, catalog, from: config.listen.ip(), world, silent: Mutex::default() })
    }

    /// Tells every secondary at once.
    async fn tell_all(&self, zone: &WireName) -> Vec<(SocketAddr, Result<(), Untold>)> {
        join_all(self.secondaries.iter().map(async |secondary| (*secondary, self.tell(*secondary, zone).await))).await
    }

    async fn tell(&self, secondary: SocketAddr, zone: &WireName) -> Result<(), Untold> {
        let is_silent = self.silences().get(&secondary).is_some_and(|until| *until > Instant::now());
        let told = self.exchange(secondary, zone, is_silent).await;
        match &told {
            Err(Untold::Silent | Untold::Unreachable(_)) if is_silent => {}
            Err(Untold::Silent | Untold::Unreachable(_)) => {
                self.silences().insert(secondary, Instant::now() + SILENCE);
            }
            Ok(()) | Err(Untold::Refused(_)) => drop(self.silences().remove(&secondary)),
        }
        told
    }

    async fn exchange(&self, secondary: SocketAddr, zone: &WireName, is_silent: bool) -> Result<(), Untold> {
        let unreachable = |error: io::Error| Untold::Unreachable(error.to_string());
        let id = u16::from_be_bytes(self.world.bytes());
        let mut writer = Writer::request(id, opcode::NOTIFY, true);
        writer.question(&about(zone, kind::SOA));
        let (message, chain) = self.key.sign(writer.finish(), self.now());
        let socket = UdpSocket::bind((self.source(secondary), 0)).await.map_err(unreachable)?;
        socket.connect(secondary).await.map_err(unreachable)?;
        if is_silent {
            socket.send(&message).await.map_err(unreachable)?;
            return Err(Untold::Silent);
        }
        for _ in 0..2 {
            socket.send(&message).await.map_err(unreachable)?;
            let answered = timeout(WAIT, async {
                let mut buffer = [0; 1024];
                loop {
                    let length = socket.recv(&mut buffer).await?;
                    let Ok(answer) = Message::read(buffer.get(..length).unwrap_or_default()) else { continue };
                    if answers(&answer, id, zone) && self.believes(&answer, &chain) {
                        return Ok(answer.header.rcode());
                    }
                }
            });
            match answered.await {
                Ok(Ok(rcode::NOERROR)) => return Ok(()),
                Ok(Ok(code)) => return Err(Untold::Refused(code)),
                Ok(Err(error)) => return Err(unreachable(error)),
                Err(_) => {}
            }
        }
        Err(Untold::Silent)
    }

    /// Some servers do not sign that they refuse. What a forged one could spare them is the second attempt.
    fn believes(&self, answer: &Message<'_>, chain: &crate::wire::Chain) -> bool {
        let is_signed = answer.records.iter().any(|record| record.kind == kind::TSIG);
        !is_signed
            || answer.header.rcode() != rcode::NOERROR
            || self.key.check_answer(answer, self.now(), chain).is_ok()
    }

    fn source(&self, secondary: SocketAddr) -> IpAddr {
        match (self.from.is_ipv4() == secondary.is_ipv4(), secondary.is_ipv4()) {
            (true, _) => self.from,
            (false, true) => Ipv4Addr::UNSPECIFIED.into(),
            (false, false) => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    fn now(&self) -> u64 {
        self.world.now().unix_seconds().unsigned_abs()
    }

    fn silences(&self) -> std::sync::MutexGuard<'_, HashMap<SocketAddr, Instant>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answers(answer: &Message<'_>, id: u16, zone: &WireName) -> bool {
    let is_of_zone = answer.question().map_or(answer.questions.is_empty(), |question| question.name == *zone);
    answer.header.id == id && answer.header.is_response() && answer.header.opcode() == opcode::NOTIFY && is_of_zone
}

#[async_trait]
impl Deliver for Notifier {
    fn topic(&self) -> &'static str {
        TOPIC
    }

    fn at_once(&self) -> usize {
        32
    }

    async fn deliver(&self, letter: &Letter) -> Result<(), Undelivered> {
        let Notice { zone, after_catalog } = letter.parse()?;
        let zone = match zone {
            Some(zone) => WireName::of_host(&zone).ok_or_else(|| Undelivered::Never("no zone's name".to_owned()))?,
            None => self.catalog.clone(),
        };
        if after_catalog {
            // Who was not told now has its own notice of the catalog.
            self.tell_all(&self.catalog).await;
            sleep(TAKING_IN).await;
        }
        let mut untold = Vec::new();
        for (secondary, told) in self.tell_all(&zone).await {
            match told {
                Err(Untold::Refused(code)) if letter.attempts >= REFUSALS => {
                    tracing::info!(%secondary, zone = zone.host(), code, "a secondary does not take a notice");
                }
                Err(why) if letter.attempts >= SILENCES => {
                    tracing::warn!(%secondary, zone = zone.host(), ?why, "a secondary is told nothing any more");
                }
                Err(why) => untold.push(format!("{secondary}: {why}")),
                Ok(()) => {}
            }
        }
        if untold.is_empty() { Ok(()) } else { Err(Undelivered::Later(untold.join("; "))) }
    }

    async fn delivered(&self, _: &mut Connection, _: &Letter, _: Time) -> store::Result<()> {
        Ok(())
    }
}

impl std::fmt::Display for Untold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Silent => f.write_str("no answer"),
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
