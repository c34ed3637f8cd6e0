//! Records: their types, and their data on the wire and as text.
//!
//! Each type is a row of fields ([`shape`]). A text is read into the wire, and the wire is what is checked and written
//! again, so a record that came from a zone file, as RFC 3597's hex or from a row meets the same rules.

mod caa;
mod check;
pub(crate) mod field;
mod invalid;
pub(crate) mod lexer;
mod loc;
mod record_type;
mod shape;
mod soa;
mod svcb;

use crate::ZoneName;
use invalid::refuse;
use lexer::Word;

pub use invalid::InvalidRecord;
pub use record_type::RecordType;
pub use soa::Soa;

/// The data of one record on the wire (RFC 1035 section 3.2.1), names in it lowercase and uncompressed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rdata(Vec<u8>);

impl Rdata {
    /// The most octets that a record's data can have: its length has two octets.
    pub const MOST_BYTES: usize = 65_535;

    /// Reads presentation format (RFC 1035 section 5.1), or RFC 3597's. Relative names are completed with the zone.
    ///
    /// # Errors
    /// What a nameserver would refuse, and what is certainly not meant: an IP address for a name, an unquoted `;`.
    pub fn parse(kind: RecordType, text: &str, zone: &ZoneName) -> Result<Self, InvalidRecord> {
        Self::read(kind, &lexer::words(text)?, zone.wire().as_bytes())
    }

    /// Takes what is on the wire already, uncompressed.
    ///
    /// # Errors
    /// When it is not of the type.
    pub fn from_wire(kind: RecordType, mut wire: Vec<u8>) -> Result<Self, InvalidRecord> {
        if wire.len() > Self::MOST_BYTES {
            return refuse(format!("is longer than {} bytes", Self::MOST_BYTES));
        }
        let parts = shape::split(kind, &wire).ok_or_else(|| InvalidRecord(format!("is no data of the type {kind}")))?;
        check::check(kind, &parts)?;
        shape::normalise(kind, &mut wire);
        Ok(Self(wire))
    }

    /// Data that was checked before, such as that of a row.
    #[must_use]
    pub fn stored(wire: Vec<u8>) -> Self {
        Self(wire)
    }

    /// On the wire.
    #[must_use]
    pub fn wire(&self) -> &[u8] {
        &self.0
    }

    /// In canonical presentation format: reading it gives the same again.
    ///
    /// Names are absolute with the final dot, hex is small, strings are quoted and hold visible ASCII alone.
    #[must_use]
    pub fn text(&self, kind: RecordType) -> String {
        shape::text(kind, &self.0).unwrap_or_else(|| unknown(&self.0))
    }

    /// Reads the words of one record. The origin is absolute and on the wire.
    pub(crate) fn read(kind: RecordType, words: &[Word<'_>], origin: &[u8]) -> Result<Self, InvalidRecord> {
        let wire = match words {
            [mark, rest @ ..] if mark.bare() == Some("\\#") => generic(rest)?,
            _ => shape::read(kind, words, origin)?,
        };
        Self::from_wire(kind, wire)
    }
}

/// RFC 3597 section 5: a length, and as many octets in hex.
fn generic(words: &[Word<'_>]) -> Result<Vec<u8>, InvalidRecord> {
    let Some((length, hex)) = words.split_first() else { return refuse("has no length behind \\#") };
    let wire = field::hex(hex)?;
    if field::number::<u16>(*length).map(usize::from) != Some(wire.len()) {
        return refuse(format!("has {} bytes behind \\#, not {}", wire.len(), length.shown()));
    }
    Ok(wire)
}

fn unknown(wire: &[u8]) -> String {
    format!("\\# {} {}", wire.len(), field::hex_text(wire)).trim_end().to_owned()
}
