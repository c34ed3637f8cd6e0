//! Valid and invalid bundles, through the public interface.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test panics")]

mod accepted;
mod extended;
mod hostile;
mod limits;
mod manifest;
mod properties;
mod streaming;
mod support;
