//! Names and record data, as text and in wire format.

#![no_main]

use dns::{OwnerName, Rdata, RecordType, ZoneName};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    let kind = RecordType::ALL[usize::from(*first) % RecordType::ALL.len()];
    let zone = ZoneName::new_unchecked("example.org".to_owned());
    let _ = Rdata::new_unchecked(rest.to_vec()).text(kind);
    if let Ok(record) = Rdata::from_wire(kind, rest.to_vec()) {
        check_round_trip(kind, &record, &zone);
    }
    if let Ok(owner) = OwnerName::from_wire(rest, &zone) {
        assert_eq!(OwnerName::parse(&owner.absolute(&zone), &zone), Ok(owner));
    }
    let Ok(text) = str::from_utf8(rest) else { return };
    if let Ok(record) = Rdata::parse(kind, text, &zone) {
        check_round_trip(kind, &record, &zone);
    }
    if let Ok(owner) = OwnerName::parse(text, &zone) {
        assert_eq!(OwnerName::parse(&owner.absolute(&zone), &zone).as_ref(), Ok(&owner));
        assert_eq!(OwnerName::from_wire(owner.wire(&zone).as_bytes(), &zone), Ok(owner));
    }
    if let Ok(name) = ZoneName::parse(text) {
        assert_eq!(ZoneName::parse(name.as_str()), Ok(name));
    }
});

/// The record round-trips through text and wire format, and the text stays on one line.
fn check_round_trip(kind: RecordType, record: &Rdata, zone: &ZoneName) {
    let text = record.text(kind);
    assert!(text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "{text}");
    assert_eq!(Rdata::parse(kind, &text, zone).as_ref(), Ok(record), "{text}");
    assert_eq!(Rdata::from_wire(kind, record.wire().to_vec()).as_ref(), Ok(record));
}
