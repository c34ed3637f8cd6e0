//! Writing an answer, as one message or many.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use store::Connection;
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;

use crate::name::WireName;
use crate::repository::{Change, ServedRepository as _};
use crate::wire::{Malformed, Section, Writer, rcode};
use crate::{Rdata, RecordSet};

use super::Shared;
use super::gate::Wanted;
use super::read::{Content, PAGE, Zone, is_full};
use super::reply::Reply;
use super::tcp::Sink;

/// A message is sent once it is this long, so that names in it can still be pointed at.
const FULL: usize = 16 * 1024;
/// How long a large transfer waits for its turn.
const TURN: Duration = Duration::from_secs(20);
/// How long one may take.
const WHOLE: Duration = Duration::from_secs(600);

/// Why an answer ends early.
enum Broken {
    /// Postgres, or what is in it.
    Store(store::Error),
    /// Whoever asked.
    Io(io::Error),
}

impl From<store::Error> for Broken {
    fn from(error: store::Error) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Malformed> for Broken {
    fn from(error: Malformed) -> Self {
        Self::Store(store::Error::inconsistent(error))
    }
}

/// The messages of one answer, as they fill.
struct Messages<'s> {
    shared: &'s Shared,
    reply: Reply,
    sink: &'s mut Sink,
    writer: Writer,
    is_begun: bool,
}

impl Shared {
    /// The one message that answers over UDP.
    pub(super) async fn datagram(&self, zone: &WireName, mut reply: Reply) -> Vec<u8> {
        let content = {
            let _turn = self.lookups.acquire().await.ok();
            self.read(zone, Wanted::Soa).await
        };
        let code = match content {
            Ok(Some(Content::Soa(zone))) => {
                let mut writer = reply.first();
                let (ttl, data) = zone.soa(&self.hosting, zone.served.serial);
                match writer.record(Section::Answer, zone.wire.as_bytes(), Zone::SOA, ttl, &data) {
                    Ok(()) => return reply.finish(writer, self.now()),
                    Err(Malformed) => rcode::SERVFAIL,
                }
            }
            Ok(_) => rcode::NOTAUTH,
            Err(error) => failed(&error),
        };
        reply.tell(code, self.now())
    }

    /// Writes what is wanted of a zone.
    pub(super) async fn transfer(
        &self,
        source: IpAddr,
        zone: &WireName,
        wanted: Wanted,
        reply: Reply,
        sink: &mut Sink,
    ) -> io::Result<()> {
        let content = {
            let _turn = self.lookups.acquire().await.ok();
            self.read(zone, wanted).await
        };
        let code = match content {
            Ok(Some(Content::Large)) => return self.large(source, zone, reply, sink).await,
            Ok(Some(content)) => {
                let mut messages = Messages::new(self, reply, sink);
                return match messages.content(content).await {
                    Ok(()) => Ok(()),
                    Err(broken) => messages.break_off(broken).await,
                };
            }
            Ok(None) => rcode::NOTAUTH,
            Err(error) => failed(&error),
        };
        sink.send(&reply.tell(code, self.now())).await
    }

    /// A zone that is not kept while it is written: its pages are read as it is written, and are of one moment all the same.
    async fn large(&self, source: IpAddr, zone: &WireName, reply: Reply, sink: &mut Sink) -> io::Result<()> {
        let Some(_turn) = self.large_turn().await else {
            tracing::warn!(%source, zone = zone.host(), "a transfer is put off: too many are under way");
            return sink.send(&reply.tell(rcode::SERVFAIL, self.now())).await;
        };
        let mut messages = Messages::new(self, reply, sink);
        let transfer = self.store.snapshot(async |tx: &mut Connection| messages.pages(tx, zone).await);
        let written = match timeout(WHOLE, transfer).await {
            Ok(written) => written,
            Err(late) => Err(Broken::Io(late.into())),
        };
        match written {
            Ok(()) => Ok(()),
            Err(broken) => messages.break_off(broken).await,
        }
    }

    async fn large_turn(&self) -> Option<SemaphorePermit<'_>> {
        timeout(TURN, self.large.acquire()).await.ok()?.ok()
    }
}

/// The code for what Postgres did not answer, whose cause is told to the log alone.
fn failed(error: &store::Error) -> u16 {
    tracing::warn!(%error, cause = ?std::error::Error::source(error), "a zone could not be read");
    rcode::SERVFAIL
}

impl<'s> Messages<'s> {
    fn new(shared: &'s Shared, reply: Reply, sink: &'s mut Sink) -> Self {
        let writer = reply.first();
        Self { shared, reply, sink, writer, is_begun: false }
    }

    async fn content(&mut self, content: Content) -> Result<(), Broken> {
        match content {
            Content::Soa(zone) => self.soa(&zone, zone.served.serial).await?,
            Content::Changes(zone, changes) => self.changes(&zone, &changes).await?,
            Content::Whole(zone, sets) => {
                self.soa(&zone, zone.served.serial).await?;
                self.sets(&zone, &sets).await?;
                self.soa(&zone, zone.served.serial).await?;
            }
            // Somebody else's.
            Content::Large => {}
        }
        self.flush().await
    }

    async fn pages(&mut self, tx: &mut Connection, name: &WireName) -> Result<(), Broken> {
        let zone = self.shared.zone(tx, name).await?;
        // It was there a moment ago.
        let zone = zone.ok_or_else(|| store::Error::Unavailable("the zone was deleted".into()))?;
        self.soa(&zone, zone.served.serial).await?;
        let mut after: Option<RecordSet> = None;
        loop {
            let place = after.as_ref().map(|last| (last.owner.as_str(), last.kind.as_str()));
            let mut page = tx.served_page(zone.served.id, place, PAGE).await?;
            self.sets(&zone, &page).await?;
            if !is_full(&page) {
                break;
            }
            after = page.pop();
        }
        self.soa(&zone, zone.served.serial).await?;
        self.flush().await
    }

    /// The steps from one serial to the next (RFC 1995 section 4): what goes, then what comes, each behind its SOA.
    async fn changes(&mut self, zone: &Zone, changes: &[Change]) -> Result<(), Broken> {
        self.soa(zone, zone.served.serial).await?;
        for step in changes.chunk_by(|one, next| one.to_serial == next.to_serial) {
            let Some(first) = step.first() else { continue };
            self.soa(zone, first.from_serial).await?;
            for change in step {
                self.records(zone, change, &change.old, &change.new).await?;
            }
            self.soa(zone, first.to_serial).await?;
            for change in step {
                self.records(zone, change, &change.new, &change.old).await?;
            }
        }
        self.soa(zone, zone.served.serial).await
    }

    /// The records of one side that the other has not. Another time to live makes all of them others.
    async fn records(
        &mut self,
        zone: &Zone,
        Change { owner, kind, .. }: &Change,
        these: &Option<(u32, Vec<Rdata>)>,
        those: &Option<(u32, Vec<Rdata>)>,
    ) -> Result<(), Broken> {
        let Some((ttl, records)) = these else { return Ok(()) };
        let kept = those.as_ref().filter(|(other, _)| other == ttl).map(|(_, records)| records);
        let name = owner.wire(&zone.name);
        for record in records.iter().filter(|record| kept.is_none_or(|kept| !kept.contains(record))) {
            self.record(name.as_bytes(), kind.code(), *ttl, record.wire()).await?;
        }
        Ok(())
    }

    async fn sets(&mut self, zone: &Zone, sets: &[RecordSet]) -> Result<(), Broken> {
        for set in sets {
            let name = set.owner.wire(&zone.name);
            for record in &set.records {
                self.record(name.as_bytes(), set.kind.code(), set.ttl, record.wire()).await?;
            }
        }
        Ok(())
    }

    async fn soa(&mut self, zone: &Zone, serial: u32) -> Result<(), Broken> {
        let (ttl, data) = zone.soa(&self.shared.hosting, serial);
        self.record(zone.wire.as_bytes(), Zone::SOA, ttl, &data).await
    }

    async fn record(&mut self, name: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Result<(), Broken> {
        if self.writer.len() + data.len() > FULL && !self.writer.is_empty(Section::Answer) {
            self.flush().await?;
        }
        Ok(self.writer.record(Section::Answer, name, kind, ttl, data)?)
    }

    async fn flush(&mut self) -> Result<(), Broken> {
        let full = std::mem::replace(&mut self.writer, self.reply.further());
        let message = self.reply.finish(full, self.shared.now());
        self.is_begun = true;
        Ok(self.sink.send(&message).await?)
    }

    /// Before anything was sent there is a code to say; afterwards nothing but to hang up.
    async fn break_off(self, broken: Broken) -> io::Result<()> {
        match broken {
            Broken::Io(error) => Err(error),
            Broken::Store(error) => {
                let code = failed(&error);
                if self.is_begun {
                    return Err(io::Error::other("a transfer was broken off"));
                }
                self.sink.send(&self.reply.tell(code, self.shared.now())).await
            }
        }
    }
}
