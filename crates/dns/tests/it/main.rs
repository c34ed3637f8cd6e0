//! Zones as a user of this crate alone uses them: records, the service, the hidden primary.

mod primary;
mod records;
mod zones;
