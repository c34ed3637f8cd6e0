//! Sends answers, as one or more messages.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use kernel::error_chain;
use store::Connection;
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;

use crate::Rdata;
use crate::name::WireName;
use crate::repository::{ContentRepository as _, JournalEntry, StoredSet};
use crate::wire::{MalformedMessage, Section, Writer, kind, rcode};

use super::Shared;
use super::read::{AnswerContent, PAGE, Zone};
use super::reply::Reply;
use super::request::QueryKind;
use super::tcp::MessageSink;

/// The length in bytes at which a message is sent. Compression pointers cannot reach names that lie further from the
/// start.
const FLUSH_LENGTH: usize = 16 * 1024;
/// The longest time for which a large transfer waits for a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(20);
/// The timeout of a large transfer.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(600);

/// The reason why an answer ends early.
enum AnswerError {
    /// Postgres failed, or a stored value is invalid.
    Store(store::Error),
    /// The connection to the client failed.
    Io(io::Error),
}

impl From<store::Error> for AnswerError {
    fn from(error: store::Error) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for AnswerError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<MalformedMessage> for AnswerError {
    fn from(error: MalformedMessage) -> Self {
        Self::Store(store::Error::inconsistent(error))
    }
}

/// The messages of one answer. Each message is sent when it is full.
struct AnswerWriter<'s> {
    shared: &'s Shared,
    reply: Reply,
    sink: &'s mut MessageSink,
    writer: Writer,
    has_sent: bool,
}

impl Shared {
    /// Returns the answer over UDP, which is one message.
    pub(super) async fn udp_answer(&self, zone: &WireName, mut reply: Reply) -> Vec<u8> {
        let code = match self.read_content(zone, QueryKind::Soa).await {
            Ok(Some(AnswerContent::Soa(zone))) => {
                let mut writer = reply.first();
                let (ttl, data) = zone.soa(&self.hosting, zone.served.serial);
                match writer.record(Section::Answer, zone.wire.as_bytes(), kind::SOA, ttl, &data) {
                    Ok(()) => return reply.finish(writer, self.now()),
                    Err(MalformedMessage) => rcode::SERVFAIL,
                }
            }
            Ok(_) => rcode::NOTAUTH,
            Err(error) => log_storage_error(&error),
        };
        reply.error(code, self.now())
    }

    /// Sends the answer over TCP.
    pub(super) async fn transfer(
        &self,
        source: IpAddr,
        zone: &WireName,
        query: QueryKind,
        reply: Reply,
        sink: &mut MessageSink,
    ) -> io::Result<()> {
        let code = match self.read_content(zone, query).await {
            Ok(Some(AnswerContent::Large)) => return self.transfer_large(source, zone, reply, sink).await,
            Ok(Some(content)) => {
                let mut messages = AnswerWriter::new(self, reply, sink);
                return match messages.write_content(content).await {
                    Ok(()) => Ok(()),
                    Err(error) => messages.abort(error).await,
                };
            }
            Ok(None) => rcode::NOTAUTH,
            Err(error) => log_storage_error(&error),
        };
        sink.send(&reply.error(code, self.now())).await
    }

    /// Sends a large zone page by page, from one snapshot.
    async fn transfer_large(
        &self,
        source: IpAddr,
        zone: &WireName,
        reply: Reply,
        sink: &mut MessageSink,
    ) -> io::Result<()> {
        let Some(_permit) = self.large_transfer_permit().await else {
            tracing::warn!(%source, zone = zone.to_host(), "rejected a transfer: too many in progress");
            return sink.send(&reply.error(rcode::SERVFAIL, self.now())).await;
        };
        let mut messages = AnswerWriter::new(self, reply, sink);
        let transfer = self.store.snapshot(async |tx: &mut Connection| messages.write_pages(tx, zone).await);
        let result = match timeout(TRANSFER_TIMEOUT, transfer).await {
            Ok(result) => result,
            Err(elapsed) => Err(AnswerError::Io(elapsed.into())),
        };
        match result {
            Ok(()) => Ok(()),
            Err(error) => messages.abort(error).await,
        }
    }

    async fn large_transfer_permit(&self) -> Option<SemaphorePermit<'_>> {
        timeout(PERMIT_TIMEOUT, self.large_transfer_permits.acquire()).await.ok()?.ok()
    }
}

/// Logs a storage error and returns the response code for it.
fn log_storage_error(error: &store::Error) -> u16 {
    tracing::warn!(error = %error_chain(error), "failed to read a zone");
    rcode::SERVFAIL
}

impl<'s> AnswerWriter<'s> {
    fn new(shared: &'s Shared, reply: Reply, sink: &'s mut MessageSink) -> Self {
        let writer = reply.first();
        Self { shared, reply, sink, writer, has_sent: false }
    }

    async fn write_content(&mut self, content: AnswerContent) -> Result<(), AnswerError> {
        match content {
            AnswerContent::Soa(zone) => self.write_soa(&zone, zone.served.serial).await?,
            AnswerContent::Changes(zone, changes) => self.write_changes(&zone, &changes).await?,
            AnswerContent::Whole(zone, sets) => {
                self.write_soa(&zone, zone.served.serial).await?;
                self.write_sets(&zone, &sets).await?;
                self.write_soa(&zone, zone.served.serial).await?;
            }
            // `Shared::transfer_large` sends the content of a large zone.
            AnswerContent::Large => {}
        }
        self.flush().await
    }

    async fn write_pages(&mut self, tx: &mut Connection, name: &WireName) -> Result<(), AnswerError> {
        let zone = self.shared.find_zone(tx, name).await?;
        // The zone existed at the first read of its content, so it was deleted before this snapshot.
        let zone = zone.ok_or_else(|| store::Error::Unavailable("the zone was deleted".into()))?;
        self.write_soa(&zone, zone.served.serial).await?;
        let mut after = None;
        loop {
            let served = (zone.served.id, zone.served.rrset_count);
            let page = tx.rrset_page(served, after.as_ref(), PAGE).await?;
            self.write_sets(&zone, &page.sets).await?;
            let Some(next) = page.next else { break };
            after = Some(next);
        }
        self.write_soa(&zone, zone.served.serial).await?;
        self.flush().await
    }

    /// Writes the difference sequences (RFC 1995 section 4): first the deleted and then the added records, each part
    /// after its SOA.
    async fn write_changes(&mut self, zone: &Zone, changes: &[JournalEntry]) -> Result<(), AnswerError> {
        self.write_soa(zone, zone.served.serial).await?;
        for update in changes.chunk_by(|one, next| one.to_serial == next.to_serial) {
            let Some(first) = update.first() else { continue };
            self.write_soa(zone, first.from_serial).await?;
            for change in update {
                self.write_missing_records(zone, change, &change.old, &change.new).await?;
            }
            self.write_soa(zone, first.to_serial).await?;
            for change in update {
                self.write_missing_records(zone, change, &change.new, &change.old).await?;
            }
        }
        self.write_soa(zone, zone.served.serial).await
    }

    /// Sends the records that only `side` contains. If the TTLs of both sides differ, all records count as different.
    async fn write_missing_records(
        &mut self,
        zone: &Zone,
        JournalEntry { owner, kind, .. }: &JournalEntry,
        side: &Option<(u32, Vec<Rdata>)>,
        other_side: &Option<(u32, Vec<Rdata>)>,
    ) -> Result<(), AnswerError> {
        let Some((ttl, records)) = side else { return Ok(()) };
        let common = other_side.as_ref().filter(|(other, _)| other == ttl).map(|(_, records)| records);
        let name = owner.wire(&zone.name);
        for record in records.iter().filter(|record| common.is_none_or(|common| !common.contains(record))) {
            self.write_record(name.as_bytes(), kind.code(), *ttl, record.wire()).await?;
        }
        Ok(())
    }

    async fn write_sets(&mut self, zone: &Zone, sets: &[StoredSet]) -> Result<(), AnswerError> {
        for StoredSet { set, .. } in sets {
            let name = set.owner.wire(&zone.name);
            for record in &set.records {
                self.write_record(name.as_bytes(), set.kind.code(), set.ttl, record.wire()).await?;
            }
        }
        Ok(())
    }

    async fn write_soa(&mut self, zone: &Zone, serial: u32) -> Result<(), AnswerError> {
        let (ttl, data) = zone.soa(&self.shared.hosting, serial);
        self.write_record(zone.wire.as_bytes(), kind::SOA, ttl, &data).await
    }

    async fn write_record(&mut self, name: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Result<(), AnswerError> {
        if self.writer.len() + data.len() > FLUSH_LENGTH && !self.writer.is_empty(Section::Answer) {
            self.flush().await?;
        }
        Ok(self.writer.record(Section::Answer, name, kind, ttl, data)?)
    }

    async fn flush(&mut self) -> Result<(), AnswerError> {
        let full = std::mem::replace(&mut self.writer, self.reply.next());
        let message = self.reply.finish(full, self.shared.now());
        self.has_sent = true;
        Ok(self.sink.send(&message).await?)
    }

    /// Sends a response code if nothing was sent yet. Otherwise closes the connection.
    async fn abort(self, error: AnswerError) -> io::Result<()> {
        match error {
            AnswerError::Io(cause) => Err(cause),
            AnswerError::Store(cause) => {
                let code = log_storage_error(&cause);
                if self.has_sent {
                    return Err(io::Error::other("the transfer was aborted"));
                }
                self.sink.send(&self.reply.error(code, self.shared.now())).await
            }
        }
    }
}
