//! The bundle format of uploads: a gzip-compressed tar of `svc.json`, `worker/` and `assets/`.
//!
//! [`read`] validates a bundle in a single pass and gives each file to a visitor. Memory use depends on the [`Limits`],
//! never on the sizes that the archive declares. Callers must follow three rules:
//!
//! - **Only `Ok` means that the bundle is valid.** The visitor sees content before the reader checks the checksum at
//!   the end of the stream, and `svc.json` may come last. When `read` fails, the caller must undo the visitor's
//!   effects.
//! - **A path is a label.** The reader validates paths, but never opens, joins or unpacks them.
//! - **A failed input is not an invalid bundle.** [`BundleError::Io`] means that the connection to the sender
//!   failed. An upload that ends normally in the middle of an archive gives [`Reason::Truncated`].
//!
//! The reader is stricter than tar: it rejects archives that extraction tools interpret differently. It accepts the
//! ustar, GNU and pax archives of plain files that `tar`, `bsdtar`, Python's `tarfile` and `git archive` write.
//!
//! Each module implements one layer: `source` gzip and the byte limits, `archive` (with `header` and `pax`) tar, `path`
//! and `names` the rules for names, `manifest` (with `json`) `svc.json`, and `reader` the bundle as a whole. With the
//! feature `pack`, the module `pack` writes bundles.

#![warn(missing_docs)]

mod archive;
mod error;
mod header;
mod json;
mod manifest;
mod names;
#[cfg(feature = "pack")]
pub mod pack;
mod path;
mod pax;
mod reader;
mod source;

pub use error::{BundleError, Limit, Reason};
pub use manifest::{MANIFEST_PATH, MAX_MANIFEST_BYTES, Manifest};
pub use path::MAX_NAME_BYTES;
pub use reader::{Contents, File, Limits, MAX_FILE_NAMES_BYTES, read};
