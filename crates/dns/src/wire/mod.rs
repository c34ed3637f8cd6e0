//! DNS messages (RFC 1035 section 4), limited to the messages between nameservers.
//!
//! Transfers need features that general codecs lack: sending records byte for byte as stored, and signatures over each
//! of many messages (RFC 8945 section 5.3.1). Parsing never panics: the result for any input is a message or
//! [`MalformedMessage`].

mod key;
mod message;
mod reader;
mod tsig;
mod writer;

pub use key::{Algorithm, InvalidTsigKey, TsigKey};
pub use message::{Header, MalformedMessage, Message, Question, Record, Section};
pub(crate) use reader::Reader;
pub use tsig::{TsigChain, TsigError};
pub(crate) use writer::{Writer, question};

/// Type numbers in messages (IANA, "Resource Record (RR) TYPEs").
pub(crate) mod kind {
    pub(crate) const SOA: u16 = 6;
    pub(crate) const OPT: u16 = 41;
    pub(crate) const DNSKEY: u16 = 48;
    pub(crate) const CDS: u16 = 59;
    pub(crate) const TSIG: u16 = 250;
    pub(crate) const IXFR: u16 = 251;
    pub(crate) const AXFR: u16 = 252;
}

/// Classes (RFC 1035 section 3.2.4).
pub(crate) mod class {
    pub(crate) const IN: u16 = 1;
    pub(crate) const ANY: u16 = 255;
}

/// Response codes (IANA, "DNS RCODEs"). BADVERS requires EDNS.
pub(crate) mod rcode {
    pub(crate) const NOERROR: u16 = 0;
    pub(crate) const FORMERR: u16 = 1;
    pub(crate) const SERVFAIL: u16 = 2;
    pub(crate) const NOTIMP: u16 = 4;
    pub(crate) const REFUSED: u16 = 5;
    pub(crate) const NOTAUTH: u16 = 9;
    pub(crate) const BADVERS: u16 = 16;
}

/// Kinds of requests (IANA, "DNS OpCodes").
pub(crate) mod opcode {
    pub(crate) const QUERY: u8 = 0;
    pub(crate) const NOTIFY: u8 = 4;
}

/// The maximum length of a message: TCP has a two-byte length field (RFC 1035 section 4.2.2).
pub(crate) const MAX_MESSAGE_LENGTH: usize = 65_535;
