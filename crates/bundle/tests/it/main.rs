//! Bundles, good and bad, through the public interface.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in a test that is how a failure is reported"
)]

mod accepted;
mod build;
mod extended;
mod hostile;
mod limits;
mod manifest;
mod properties;
mod streaming;
