//! Receives a mail after DATA.

use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::time::Duration;

use chrono::SecondsFormat;
use futures_util::future::join_all;
use protocol::Recipient;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::data::{DataDecoder, DataError, Decoded};
use super::reply::Reply;
use super::session::{End, Session, Transaction};
use crate::address::Mailbox;
use crate::clock::now;
use crate::header::Header;
use crate::host::HostName;
use crate::limits::{Limits, Timeouts};
use crate::queue::{Envelope, ProjectCopy, Spool};
use crate::recipients::Recipients;
use crate::spf::SpfResult;
use crate::trace::{Protocol, Trace};

/// The reason why the node refuses a mail.
#[derive(Debug)]
enum Refusal {
    TooLarge,
    LargeHeader,
    /// The mail has more `Received` fields than the limit, so it is probably in a loop.
    Loop,
    /// A recipient has no project any more, or the lookup failed.
    Recipient,
    Storage(io::Error),
}

/// A mail whose bytes are still arriving.
struct Incoming<'a> {
    limits: &'a Limits,
    host: &'a HostName,
    /// The number of bytes so far, as the client sent them.
    size: u64,
    /// The bytes so far, until the header is complete; then `None`.
    head: Option<Vec<u8>>,
    header: Option<Header>,
    spool: Result<Spool, Refusal>,
}

impl<'a> Incoming<'a> {
    fn new(limits: &'a Limits, host: &'a HostName, spool: Spool) -> Self {
        Self { limits, host, size: 0, head: Some(Vec::new()), header: None, spool: Ok(spool) }
    }

    /// Adds bytes of the mail. After a refusal, only counts them.
    async fn add(&mut self, bytes: &[u8]) {
        self.size += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if self.size > self.limits.mail_bytes {
            self.spool = Err(Refusal::TooLarge);
        }
        if self.spool.is_err() {
            self.head = None;
            return;
        }
        let Some(head) = &mut self.head else { return self.store(bytes).await };
        let searched = head.len().saturating_sub(3);
        head.extend_from_slice(bytes);
        let end = if head.starts_with(b"\r\n") { Some(0) } else { end_of_header(head, searched) };
        if end.unwrap_or(head.len()) > self.limits.header_bytes {
            self.spool = Err(Refusal::LargeHeader);
        } else if let Some(end) = end {
            self.finish_header(end).await;
        }
    }

    /// Stores the header, and the first bytes of the body that follow it.
    async fn finish_header(&mut self, end: usize) {
        let Some(head) = self.head.take() else { return };
        let (header, rest) = head.split_at(end.min(head.len()));
        let header = Header::read(header, self.host);
        if header.fields > self.limits.header_fields {
            self.spool = Err(Refusal::LargeHeader);
        } else if header.hops > self.limits.hops {
            self.spool = Err(Refusal::Loop);
        }
        self.store(&header.bytes).await;
        self.store(rest).await;
        self.header = Some(header);
    }

    async fn store(&mut self, bytes: &[u8]) {
        if let Ok(spool) = &mut self.spool
            && let Err(error) = spool.write(bytes).await
        {
            self.spool = Err(Refusal::Storage(error));
        }
    }

    /// Completes the reception. Returns the header, and the file that contains the mail.
    async fn finish(mut self) -> Result<(Header, Spool), Refusal> {
        let length = self.head.as_ref().map(Vec::len);
        if let Some(length) = length {
            self.finish_header(length).await;
        }
        let header = self.header.take().unwrap_or_else(|| Header::read(b"", self.host));
        Ok((header, self.spool?))
    }
}

/// Returns the end of the header: the position before the first empty line.
fn end_of_header(head: &[u8], searched: usize) -> Option<usize> {
    let rest = head.get(searched..)?;
    rest.windows(4).position(|window| window == b"\r\n\r\n").map(|position| searched + position + 2)
}

impl Session {
    /// Receives a mail. `Ok` contains the reply. Until the client gets this reply, it does not consider the mail sent.
    pub(super) async fn data(&mut self) -> Result<Reply, End> {
        let Some(transaction) = self.transaction.take() else {
            return Ok(Reply::new(503, "5.5.1", "send MAIL first"));
        };
        if transaction.recipients.is_empty() {
            self.transaction = Some(transaction);
            return Ok(Reply::new(554, "5.5.1", "no valid recipients"));
        }
        self.connection.reply(&Reply::new(354, "", "end the mail with <CRLF>.<CRLF>"));
        let (server, ehlo) = (self.server.clone(), self.ehlo.clone().unwrap_or_default());
        let (client, from) = (self.client, transaction.from.clone());
        // The SPF check runs while the mail arrives. Dropping the set cancels the check.
        let (spf, mut check) = (server.spf.clone(), JoinSet::new());
        check.spawn(async move { spf.check(client, &ehlo, from.as_ref()).await });
        let incoming = Incoming::new(&server.limits, &server.host, server.queue.receive());
        let stored = match self.receive(incoming).await?.finish().await {
            Ok((header, spool)) => {
                let spf = check.join_next().await.and_then(Result::ok).unwrap_or(SpfResult::TempError);
                server.metrics.spf(spf.as_str());
                self.store(&transaction, spf, header, spool).await
            }
            Err(refusal) => Err(refusal),
        };
        Ok(stored.unwrap_or_else(|refusal| self.reply_to(&refusal)))
    }

    /// Receives bytes until the end of the mail.
    async fn receive<'a>(&mut self, mut incoming: Incoming<'a>) -> Result<Incoming<'a>, End> {
        let (mut decoder, mut bytes, started_at) = (DataDecoder::new(), Vec::new(), Instant::now());
        loop {
            let deadline = block_deadline(&self.server.limits.timeouts, started_at, incoming.size);
            self.connection.wait_for_data(deadline.min(self.deadline)).await?;
            let block = self.connection.data();
            bytes.clear();
            match decoder.decode(block, &mut bytes) {
                Ok(decoded) => {
                    let (length, ended) = match decoded {
                        Decoded::More => (block.len(), false),
                        Decoded::End(length) => (length, true),
                    };
                    self.connection.consume(length);
                    incoming.add(&bytes).await;
                    if ended {
                        return Ok(incoming);
                    }
                }
                Err(error) => {
                    self.server.metrics.refused("malformed");
                    let text = match error {
                        DataError::BareCr | DataError::BareLf => "a line must end with CRLF",
                        DataError::Nul => "a mail must not contain NUL",
                    };
                    return self.refuse(Reply::new(554, "5.6.0", text));
                }
            }
            if incoming.size > self.server.limits.data_bytes {
                return self.refuse(self.reply_to(&Refusal::TooLarge));
            }
        }
    }

    /// Stores a mail durably, with one copy per project.
    async fn store(
        &mut self,
        transaction: &Transaction,
        spf: SpfResult,
        header: Header,
        spool: Spool,
    ) -> Result<Reply, Refusal> {
        let received_at = now();
        let trace = Trace {
            host: &self.server.host,
            ehlo: self.ehlo.as_deref().unwrap_or_default(),
            client: self.client,
            protocol: Protocol { utf8: transaction.utf8, ..self.protocol },
            from: transaction.from.as_ref(),
            spf,
            received_at,
        };
        // The projects of the recipients may have changed while the mail arrived, which can take minutes. A project that
        // has lost an address must not receive the mail, and a mail without a project must not be acknowledged.
        let projects = by_project(&self.server.recipients, &transaction.recipients).await?;
        let separator = if header.is_body { "\r\n" } else { "" };
        let copy = |(project, recipients): (String, Vec<Mailbox>)| {
            let id = daemon::new_mail_id();
            let trace = trace.fields(&id, &recipients) + separator;
            ProjectCopy { id, project, to: recipients.iter().map(Mailbox::to_string).collect(), trace }
        };
        let envelope = Envelope {
            from: transaction.from.as_ref().map(Mailbox::to_string).unwrap_or_default(),
            subject: header.subject,
            spf: spf.to_string(),
            received_at: received_at.to_rfc3339_opts(SecondsFormat::Millis, true),
            size: spool.size(),
            copies: projects.into_iter().map(copy).collect(),
        };
        let id = spool.id().simple();
        spool.commit(&envelope).await.map_err(Refusal::Storage)?;
        self.commands = 0;
        self.server.metrics.accepted(envelope.size);
        tracing::info!(
            %id,
            client = %self.client,
            size = envelope.size,
            recipients = transaction.recipients.len(),
            copies = envelope.copies.len(),
            %spf,
            "accepted a mail"
        );
        let queued = match envelope.copies.as_slice() {
            // The project finds the mail in its log by this id.
            [copy] => copy.id.clone(),
            _ => id.to_string(),
        };
        Ok(Reply::new(250, "2.0.0", format!("queued as {queued}")))
    }

    fn reply_to(&self, refusal: &Refusal) -> Reply {
        let metrics = &self.server.metrics;
        match refusal {
            Refusal::TooLarge => {
                metrics.refused("too_large");
                let limit = self.server.limits.mail_bytes;
                Reply::new(552, "5.3.4", format!("the mail is larger than {limit} bytes"))
            }
            Refusal::LargeHeader => {
                metrics.refused("large_header");
                Reply::new(552, "5.3.4", "the header is too large")
            }
            Refusal::Loop => {
                metrics.refused("loop");
                Reply::new(554, "5.4.6", "the mail is in a loop: it has too many Received fields")
            }
            Refusal::Recipient => {
                metrics.refused("recipient");
                Reply::new(451, "4.3.0", "a recipient cannot be confirmed; try again later")
            }
            Refusal::Storage(error) => {
                metrics.refused("storage");
                tracing::error!(%error, "failed to store a mail");
                match error.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                        Reply::new(452, "4.3.1", "the server has no space; try again later")
                    }
                    _ => Reply::new(451, "4.3.0", "the mail cannot be stored; try again later"),
                }
            }
        }
    }
}

/// Returns the deadline for the next bytes. It enforces the minimum transfer rate, given the number of received bytes.
fn block_deadline(timeouts: &Timeouts, started_at: Instant, received: u64) -> Instant {
    let paid = Duration::from_secs(received / timeouts.data_rate.max(1));
    let total = timeouts.data.min(timeouts.data_grace + paid);
    (Instant::now() + timeouts.data_block).min(started_at + total)
}

/// Looks up the projects of the recipients, and groups the recipients by project.
async fn by_project(lookup: &Recipients, recipients: &[Mailbox]) -> Result<Vec<(String, Vec<Mailbox>)>, Refusal> {
    let domains: HashSet<&HostName> = recipients.iter().filter_map(|mailbox| mailbox.domain.name()).collect();
    let found = join_all(domains.into_iter().map(async |domain| (domain, lookup.find(domain).await))).await;
    let found: HashMap<&HostName, Option<Recipient>> = found.into_iter().collect();
    let mut projects: Vec<(String, Vec<Mailbox>)> = Vec::new();
    for mailbox in recipients {
        let owner = mailbox.domain.name().and_then(|domain| found.get(domain)?.as_ref());
        let Some(Recipient::Project(project)) = owner else { return Err(Refusal::Recipient) };
        match projects.iter_mut().find(|(known, _)| known == project) {
            Some((_, recipients)) => recipients.push(mailbox.clone()),
            None => projects.push((project.clone(), vec![mailbox.clone()])),
        }
    }
    Ok(projects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_mails_have_a_deadline() {
        let timeouts = Timeouts {
            data_block: Duration::from_secs(10),
            data: Duration::from_secs(60),
            data_grace: Duration::from_secs(5),
            data_rate: 100,
            ..Timeouts::default()
        };
        let now = Instant::now();
        let seconds = |received| block_deadline(&timeouts, now, received).duration_since(now).as_secs();
        assert_eq!([seconds(0), seconds(300)], [5, 8]);
        assert!(seconds(1_000_000) >= 10);
        let started_at = now - Duration::from_secs(55);
        assert_eq!(block_deadline(&timeouts, started_at, 1_000_000).duration_since(now).as_secs(), 5);
    }

    #[test]
    fn header_ends_at_the_first_empty_line() {
        assert_eq!(end_of_header(b"a: b\r\n\r\nc\r\n\r\n", 0), Some(6));
        assert_eq!(end_of_header(b"a: b\r\n \r\nc\r\n", 0), None);
    }
}
