//! Zone files (RFC 1035 section 5.1): read with errors by line, written canonically.
//!
//! A file comes from anywhere: reading takes time and memory in proportion to it, follows no `$INCLUDE`, and tells
//! everything that is wrong rather than the first. It needs no database.

mod entry;
mod read;
mod sets;
mod write;

pub use read::read;
pub use write::write;

use crate::{RecordSet, Soa};

/// The most faults of one file that are told.
pub const MOST_FAULTS: usize = 100;

/// What is wrong with a line of a zone file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Fault {
    /// Counted from 1: where the entry begins, or where its words cannot be told apart.
    pub line: u32,
    /// A sentence for people, without its end.
    pub message: String,
}

/// What a zone file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zonefile {
    /// In the file's order, each with the line where its first record stands. The SOA is not among them.
    pub sets: Vec<(u32, RecordSet)>,
    /// The file's own, if it has one. What a zone of the platform has follows from the zone, not from this.
    pub soa: Option<Soa>,
}
