//! Tests of the crate's public API: records, the service and the hidden primary.

mod primary;
mod records;
mod zones;
