//! Zone files (RFC 1035 section 5.1): a parser with errors by line, and a canonical writer.
//!
//! Files are untrusted. The parser needs time proportional to the size of the file, and memory proportional to the size
//! of its records, which [`read_within`] limits. It rejects `$INCLUDE`. It reports all errors, not only the first. The
//! module needs no database.

mod entry;
mod read;
mod sets;
mod write;

pub use read::{decode, read, read_within};
pub use write::write;
pub(crate) use write::{directives, write_sets};

use crate::{RecordSet, Soa};

/// The maximum number of reported errors of one file.
pub const MAX_ERRORS: usize = 100;

/// An error in a line of a zone file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LineError {
    /// The line number, from 1. It is the first line of the entry, or the line of a syntax error.
    pub line: u32,
    /// The error as one sentence, without a full stop.
    pub message: String,
}

/// The content of a zone file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zonefile {
    /// The rrsets in file order, each with the line of its first record. The SOA is not one of them.
    pub sets: Vec<(u32, RecordSet)>,
    /// The SOA of the file, if present. Hosted zones do not use it.
    pub soa: Option<Soa>,
}
