//! Names, records and zone files, against tables, properties and other readers of the same formats.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in a test that is how a failure is reported"
)]

mod canonical;
mod example;
mod generated;
mod judge;
mod names;
mod values;
mod written;
mod zonefiles;

use dns::{InvalidRecord, Rdata, RecordType, ZoneName};

const ZONE: &str = "example.org";

fn zone() -> ZoneName {
    ZoneName::parse(ZONE).unwrap()
}

fn kind(mnemonic: &str) -> RecordType {
    RecordType::from_mnemonic(mnemonic).unwrap()
}

fn parse(mnemonic: &str, text: &str) -> Result<Rdata, InvalidRecord> {
    Rdata::parse(kind(mnemonic), text, &zone())
}
