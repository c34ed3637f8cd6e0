//! Names, records and zone files: tables, properties, and comparison with other parsers.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests panic on failure")]

mod canonical;
mod example;
mod generated;
mod names;
mod parsers;
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
