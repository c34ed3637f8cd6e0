//! Complete zone files.

#![no_main]

use dns::{Soa, ZoneName, zonefile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let zone = ZoneName::new_unchecked("example.org".to_owned());
    match zonefile::read(&zone, text) {
        Ok(file) => {
            let mut sets: Vec<_> = file.sets.into_iter().map(|(_, set)| set).collect();
            let soa = file.soa.unwrap_or_else(soa);
            let written = zonefile::write(&zone, &soa, &sets);
            let again = zonefile::read(&zone, &written).unwrap_or_else(|errors| panic!("{errors:?}\n{written}"));
            let mut read: Vec<_> = again.sets.into_iter().map(|(_, set)| set).collect();
            let key = |set: &dns::RecordSet| (set.owner.clone(), set.kind);
            sets.sort_by_key(key);
            read.sort_by_key(key);
            assert_eq!((read, again.soa), (sets, Some(soa)), "{written}");
        }
        Err(errors) => {
            assert!(!errors.is_empty() && errors.len() <= zonefile::MAX_ERRORS);
            assert!(errors.is_sorted_by_key(|error| error.line));
        }
    }
});

fn soa() -> Soa {
    let name = || "ns1.example.org".to_owned();
    Soa { primary: name(), hostmaster: name(), serial: 1, refresh: 1, retry: 1, expire: 1, minimum: 1 }
}
