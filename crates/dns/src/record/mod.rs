//! Record types, and record data in wire format and as text.
//!
//! Each type is a list of fields ([`layout`]). Text is parsed to wire format, and checks and formatting work on the
//! wire format. So records from zone files, RFC 3597 hex and Postgres follow the same rules.

mod caa;
mod check;
pub(crate) mod field;
mod invalid;
mod layout;
pub(crate) mod lexer;
mod loc;
mod record_type;
mod soa;
mod svcb;

use crate::ZoneName;
use invalid::reject;
use lexer::Word;

pub use invalid::InvalidRecord;
pub use record_type::RecordType;
pub use soa::Soa;

/// The data of one record in wire format (RFC 1035 section 3.2.1). Names are lowercase and uncompressed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rdata(Vec<u8>);

impl Rdata {
    /// The maximum length of the data: its length field has two octets.
    pub const MAX_BYTES: usize = 65_535;

    /// Parses presentation format (RFC 1035 section 5.1) or generic format (RFC 3597). Names can be relative to `zone`.
    ///
    /// # Errors
    /// Returns an error for data that nameservers reject, and for obvious mistakes: an IP address instead of a name, or
    /// an unquoted `;`.
    pub fn parse(kind: RecordType, text: &str, zone: &ZoneName) -> Result<Self, InvalidRecord> {
        Self::parse_words(kind, &lexer::words(text)?, zone.wire().as_bytes())
    }

    /// Checks and normalizes data in uncompressed wire format.
    ///
    /// # Errors
    /// Returns an error for data that is not valid for the type.
    pub fn from_wire(kind: RecordType, mut wire: Vec<u8>) -> Result<Self, InvalidRecord> {
        if wire.len() > Self::MAX_BYTES {
            return reject(format!("is longer than {} bytes", Self::MAX_BYTES));
        }
        let parts =
            layout::split(kind, &wire).ok_or_else(|| InvalidRecord(format!("is not valid data of the type {kind}")))?;
        check::check(kind, &parts)?;
        layout::normalize(kind, &mut wire);
        Ok(Self(wire))
    }

    /// Wraps valid data, such as data from Postgres.
    #[must_use]
    pub fn new_unchecked(wire: Vec<u8>) -> Self {
        Self(wire)
    }

    /// Returns the data in wire format.
    #[must_use]
    pub fn wire(&self) -> &[u8] {
        &self.0
    }

    /// Formats the data in canonical presentation format, which parses to the same data.
    ///
    /// Names are absolute with the final dot, hex is lowercase, and strings are quoted and contain only visible ASCII.
    #[must_use]
    pub fn text(&self, kind: RecordType) -> String {
        layout::text(kind, &self.0).unwrap_or_else(|| generic_text(&self.0))
    }

    /// Parses the words of one record. `origin` is an absolute name in wire format.
    pub(crate) fn parse_words(kind: RecordType, words: &[Word<'_>], origin: &[u8]) -> Result<Self, InvalidRecord> {
        let wire = match words {
            [mark, rest @ ..] if mark.bare() == Some("\\#") => parse_generic(rest)?,
            _ => layout::read(kind, words, origin)?,
        };
        Self::from_wire(kind, wire)
    }
}

/// Parses generic format (RFC 3597 section 5): a length, and that many octets in hex.
fn parse_generic(words: &[Word<'_>]) -> Result<Vec<u8>, InvalidRecord> {
    let Some((length, hex)) = words.split_first() else { return reject("has no length after \\#") };
    let wire = field::hex(hex)?;
    if field::number::<u16>(*length).map(usize::from) != Some(wire.len()) {
        return reject(format!("has {} bytes after \\#, not {}", wire.len(), length.truncated()));
    }
    Ok(wire)
}

fn generic_text(wire: &[u8]) -> String {
    format!("\\# {} {}", wire.len(), kernel::hex(wire)).trim_end().to_owned()
}
