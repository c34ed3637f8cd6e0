//! What is made of a request before any zone is looked for.

use std::net::IpAddr;

use crate::name::WireName;
use crate::wire::{Header, Message, Mistrust, Question, Record, Section, class, kind, opcode, rcode};

use super::Shared;
use super::reply::Reply;

/// How a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
}

/// What is wanted of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Its SOA.
    Soa,
    /// All of it.
    Whole,
    /// What changed since a serial.
    Since(u32),
}

/// What becomes of a request.
pub(super) enum Verdict {
    /// It is no request. Answering it could begin a conversation without end.
    Ignored,
    /// It is answered with this.
    Answered(Vec<u8>),
    /// It is about this zone.
    About { zone: WireName, wanted: Wanted, reply: Box<Reply> },
}

impl Shared {
    /// Judges a request.
    pub(super) fn judge(&self, source: IpAddr, transport: Transport, bytes: &[u8]) -> Verdict {
        let Ok(header) = Header::read(bytes) else { return Verdict::Ignored };
        if header.is_response() {
            return Verdict::Ignored;
        }
        let told = |reply: Reply, code: u16| Verdict::Answered(reply.tell(code, self.now()));
        let Ok(message) = Message::read(bytes) else { return told(Reply::bare(header), rcode::FORMERR) };
        let mut reply = Reply::to(&message);
        if !self.knows(source) {
            return told(reply, rcode::REFUSED);
        }
        match self.key.check(&message, self.now()) {
            Ok(chain) => reply.sign_with(chain),
            Err(Mistrust::Unsigned) => {}
            Err(Mistrust::Malformed) => return told(reply, rcode::FORMERR),
            Err(mistrust) => {
                tracing::warn!(%source, ?mistrust, "a request's signature is not believed");
                let answer = reply.tell(rcode::NOTAUTH, self.now());
                return Verdict::Answered(mistrust.tell(&message, answer, self.now()));
            }
        }
        match asked(&message, transport, reply.is_signed()) {
            Ok((zone, wanted)) => Verdict::About { zone, wanted, reply: Box::new(reply) },
            Err(code) => told(reply, code),
        }
    }
}

/// What is asked for, or the code that says why it is not given.
fn asked(message: &Message<'_>, transport: Transport, is_signed: bool) -> Result<(WireName, Wanted), u16> {
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
    let wanted = match (*kind, transport) {
        (kind::SOA, _) => Wanted::Soa,
        (kind::AXFR, Transport::Udp) => return Err(rcode::FORMERR),
        (kind::AXFR, Transport::Tcp) => Wanted::Whole,
        (kind::IXFR, transport) => {
            let since = since(message, name)?;
            // What does not fit in a datagram is fetched over TCP (RFC 1995 section 2).
            if transport == Transport::Udp { Wanted::Soa } else { Wanted::Since(since) }
        }
        _ => return Err(rcode::REFUSED),
    };
    if wanted != Wanted::Soa && !is_signed {
        return Err(rcode::REFUSED);
    }
    Ok((name.clone(), wanted))
}

/// The serial that whoever asks for changes has (RFC 1995 section 3).
fn since(message: &Message<'_>, zone: &WireName) -> Result<u32, u16> {
    let own = |record: &&Record<'_>| record.kind == kind::SOA && record.name == *zone;
    let soa = message.section(Section::Authority).find(own).ok_or(rcode::FORMERR)?;
    message.serial(soa).map_err(|_| rcode::FORMERR)
}
