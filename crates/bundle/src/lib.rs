//! The bundle: what a deploy uploads, as a gzipped tar of `svc.json`, `worker/` and `assets/`.
//!
//! [`read`] checks and hands out a bundle in one pass, in memory that depends on the [`Limits`] and never on what the
//! archive claims. Three things follow from the single pass, and a caller has to respect them:
//!
//! - **Only an `Ok` vouches for anything.** The visitor sees content before the checksum at the end of the stream is
//!   reached, and `svc.json` may well come last. What a visitor has done is undone when `read` fails.
//! - **A path is a label.** It is checked, but nothing here opens, joins or unpacks it.
//! - **A fault of the input is not a fault of the bundle.** [`Fault::Io`] says that the sender went away;
//!   a sender who closed properly in the middle of an archive gets [`Reason::Truncated`].
//!
//! The reader is stricter than tar: where two extraction tools would disagree about what an archive holds, it refuses
//! the archive. What `tar`, `bsdtar`, Python's `tarfile` and `git archive` write for plain files is accepted, in the
//! ustar, GNU and pax formats.
//!
//! Inward, each module knows one layer: `source` gzip and the limits in bytes, `archive` (with `header` and `pax`) tar,
//! `path` and `names` what an entry may be called, `manifest` (with `json`) what `svc.json` says, `reader` all together.

#![warn(missing_docs)]

mod archive;
mod fault;
mod header;
mod json;
mod manifest;
mod names;
mod path;
mod pax;
mod reader;
mod source;

pub use fault::{Fault, Limit, Reason};
pub use manifest::{MANIFEST_MAX_BYTES, MANIFEST_PATH, Manifest};
pub use path::NAME_MAX_BYTES;
pub use reader::{Contents, File, Limits, read};
