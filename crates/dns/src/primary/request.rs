//! Checks of a request before the zone lookup.

use std::net::IpAddr;

use crate::name::WireName;
use crate::wire::{Header, Message, Question, Record, Section, TsigError, class, kind, opcode, rcode};

use super::Shared;
use super::reply::Reply;

/// The transport of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
}

/// The kind of a zone query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryKind {
    /// The SOA.
    Soa,
    /// The whole zone (AXFR).
    Axfr,
    /// The changes since a serial (IXFR).
    Ixfr(u32),
}

/// The result of the checks.
pub(super) enum RequestCheck {
    /// The message is not a request and gets no answer. An answer to an answer could start an endless loop.
    Ignored,
    /// The request can be answered without a zone lookup. Contains the answer.
    Answered(Vec<u8>),
    /// A query for this zone.
    Query { zone: WireName, query: QueryKind, reply: Box<Reply> },
}

impl Shared {
    /// Checks the source, the signature and the question of a request.
    pub(super) fn check_request(&self, source: IpAddr, transport: Transport, bytes: &[u8]) -> RequestCheck {
        let Ok(header) = Header::read(bytes) else { return RequestCheck::Ignored };
        if header.is_response() {
            return RequestCheck::Ignored;
        }
        let reject = |reply: Reply, code: u16| RequestCheck::Answered(reply.error(code, self.now()));
        let Ok(message) = Message::read(bytes) else { return reject(Reply::for_header(header), rcode::FORMERR) };
        let mut reply = Reply::for_message(&message);
        if !self.is_secondary(source) {
            return reject(reply, rcode::REFUSED);
        }
        match self.key.check(&message, self.now()) {
            Ok(chain) => reply.sign_with(chain),
            Err(TsigError::Unsigned) => {}
            Err(TsigError::Malformed) => return reject(reply, rcode::FORMERR),
            Err(error) => {
                tracing::warn!(%source, ?error, "rejected a request with an invalid signature");
                let answer = reply.error(rcode::NOTAUTH, self.now());
                return RequestCheck::Answered(error.add_to_answer(&message, answer, self.now()));
            }
        }
        match parse_query(&message, transport, reply.is_signed()) {
            Ok((zone, query)) => RequestCheck::Query { zone, query, reply: Box::new(reply) },
            Err(code) => reject(reply, code),
        }
    }
}

/// Returns the zone and the kind of the query, or a response code.
fn parse_query(message: &Message<'_>, transport: Transport, is_signed: bool) -> Result<(WireName, QueryKind), u16> {
    if message.header.opcode() != opcode::QUERY {
        return Err(rcode::NOTIMP);
    }
    let Question { name, kind, class } = message.question().map_err(|_| rcode::FORMERR)?;
    if message.edns().is_some_and(|version| version > 0) {
        return Err(rcode::BADVERS);
    }
    if *class != class::IN {
        return Err(rcode::REFUSED);
    }
    let query = match (*kind, transport) {
        (kind::SOA, _) => QueryKind::Soa,
        (kind::AXFR, Transport::Udp) => return Err(rcode::FORMERR),
        (kind::AXFR, Transport::Tcp) => QueryKind::Axfr,
        (kind::IXFR, transport) => {
            let since = ixfr_serial(message, name)?;
            // Over UDP, answer with the SOA only. The client then retries over TCP (RFC 1995 section 2).
            if transport == Transport::Udp { QueryKind::Soa } else { QueryKind::Ixfr(since) }
        }
        _ => return Err(rcode::REFUSED),
    };
    if query != QueryKind::Soa && !is_signed {
        return Err(rcode::REFUSED);
    }
    Ok((name.clone(), query))
}

/// Returns the client's serial in an IXFR query (RFC 1995 section 3).
fn ixfr_serial(message: &Message<'_>, zone: &WireName) -> Result<u32, u16> {
    let is_own_soa = |record: &&Record<'_>| record.kind == kind::SOA && record.name == *zone;
    let soa = message.section(Section::Authority).find(is_own_soa).ok_or(rcode::FORMERR)?;
    message.serial(soa).map_err(|_| rcode::FORMERR)
}
