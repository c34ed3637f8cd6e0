//! Written zone files, parsed by this crate and by other parsers.

use dns::{Rdata, RecordSet, RecordType, Soa, zonefile};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::records::generated::{self, name};
use crate::records::parsers::{self, Parser};
use crate::records::zone;
use crate::records::zonefiles::STYLES;

fn soa() -> Soa {
    Soa {
        primary: "ns1.example.net".to_owned(),
        hostmaster: "hostmaster.example.net".to_owned(),
        serial: 7,
        refresh: 3600,
        retry: 600,
        expire: 604_800,
        minimum: 300,
    }
}

/// Returns all records: owner, TTL, type and data.
fn records(sets: &[RecordSet]) -> Vec<(Vec<u8>, u32, String, Vec<u8>)> {
    let zone = zone();
    let each = sets.iter().flat_map(|set| set.records.iter().map(move |record| (set, record)));
    let mut records: Vec<_> = each
        .map(|(set, record)| {
            (set.owner.wire(&zone).into_bytes(), set.ttl, set.kind.to_string(), comparable(set.kind, record))
        })
        .collect();
    records.push((zone.wire().into_bytes(), Soa::TTL, "SOA".to_owned(), soa().rdata().wire().to_vec()));
    records.sort();
    records
}

/// Returns the data without the altitude of a LOC: dnspython uses floating point and sometimes loses a centimetre.
fn comparable(kind: RecordType, record: &Rdata) -> Vec<u8> {
    let length = if kind == RecordType::Loc { 12 } else { record.wire().len() };
    record.wire()[..length].to_vec()
}

fn read(text: &str) -> Vec<RecordSet> {
    let file = zonefile::read(&zone(), text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    file.sets.into_iter().map(|(_, set)| set).collect()
}

#[test]
fn other_parsers_agree_on_common_styles() {
    let without_soa = |mut records: Vec<(Vec<u8>, u32, String, Vec<u8>)>| {
        records.retain(|(_, _, kind, _)| kind != "SOA");
        records
    };
    let own = without_soa(records(&read(STYLES)));
    for parser in parsers::installed() {
        let parsed = match parser {
            Parser::Dnspython => parsers::records(STYLES),
            Parser::Bind => records(&read(&parsers::dump_zone(STYLES))),
            // Knot requires an absolute $ORIGIN.
            Parser::Knot => continue,
        };
        assert_eq!(without_soa(parsed), own, "{parser:?}");
    }
}

#[test]
fn other_parsers_agree_on_written_zones() {
    let mut runner = TestRunner::deterministic();
    let nameserver = zonefile::read(&zone(), "@ 86400 NS ns1.example.net.").unwrap().sets.remove(0).1;
    let installed = parsers::installed();
    for _ in 0..6 {
        let mut sets = generated::sets().new_tree(&mut runner).unwrap().current();
        sets.retain(|set| set.kind != RecordType::Ns || !set.owner.is_apex());
        sets.push(nameserver.clone());
        let text = zonefile::write(&zone(), &soa(), &sets);
        for parser in &installed {
            let result = parsers::check_zone(*parser, &text);
            result.unwrap_or_else(|why| panic!("{parser:?}: {why}\n{text}"));
        }
        if installed.contains(&Parser::Dnspython) {
            let read = parsers::records(&text);
            let written = records(&sets);
            assert_eq!(read.len(), written.len(), "{text}");
            read.iter().zip(&written).for_each(|(read, written)| assert_eq!(read, written, "{text}"));
        }
        if installed.contains(&Parser::Bind) {
            let dumped = parsers::dump_zone(&text);
            assert_eq!(records(&read(&dumped)), records(&sets), "{dumped}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn written_zones_parse_back_equal(sets in generated::sets()) {
        let text = zonefile::write(&zone(), &soa(), &sets);
        let file = zonefile::read(&zone(), &text).unwrap();
        let mut read: Vec<_> = file.sets.into_iter().map(|(_, set)| set).collect();
        read.sort_by_key(|set| (set.owner.clone(), set.kind));
        prop_assert_eq!(read, sets);
        prop_assert_eq!(file.soa, Some(soa()));
        prop_assert_eq!(text.lines().count(), text.matches('\n').count());
    }
}

proptest! {
    #[test]
    fn parsing_any_file_never_panics(text in prop_oneof![
        any::<String>(),
        "([a-z@$ \t\n;\"\\\\()0-9.]{0,9}|\n| A | 192.0.2.1|TXT | IN |[$]ORIGIN |[$]TTL |CNAME | SOA ){0,40}",
        vec_of_lines(),
    ]) {
        let zone = zone();
        match zonefile::read(&zone, &text) {
            Ok(file) => {
                let sets: Vec<_> = file.sets.into_iter().map(|(_, set)| set).collect();
                let again = zonefile::write(&zone, &soa(), &sets);
                let read = zonefile::read(&zone, &again).map(|file| file.sets.len());
                prop_assert_eq!(read, Ok(sets.len()));
            }
            Err(errors) => {
                prop_assert!(!errors.is_empty() && errors.len() <= zonefile::MAX_ERRORS);
                prop_assert!(errors.is_sorted_by_key(|error| error.line));
                let lines = u32::try_from(text.split('\n').count()).unwrap();
                prop_assert!(errors.iter().all(|error| (1..=lines).contains(&error.line)));
            }
        }
    }
}

fn vec_of_lines() -> impl Strategy<Value = String> {
    let line = (name(), "( 60| IN)?", "( A 192.0.2.1| TXT x| CNAME a| NS b| MX 1 (\n)a| A x)")
        .prop_map(|(owner, before, rest)| format!("{owner}{before}{rest}\n"));
    proptest::collection::vec(line, 0..20).prop_map(|lines| lines.concat())
}
