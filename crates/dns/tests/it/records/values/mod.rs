//! Valid and invalid records, and differences to other parsers.

mod bindings;
mod data;
mod names;
mod value;

use crate::records::parsers::{self, ParseResult};
use crate::records::{canonical, kind, parse};
use value::Value;

fn values() -> impl Iterator<Item = &'static Value> {
    [names::VALUES, data::VALUES, bindings::VALUES].into_iter().flatten()
}

#[test]
fn invalid_records_are_rejected() {
    assert!(values().count() > 250);
    for Value { mnemonic, text, is_valid, .. } in values() {
        match (is_valid, parse(mnemonic, text)) {
            (true, Err(why)) => panic!("{mnemonic} {text}: the record {why}"),
            (false, Ok(record)) => panic!("{mnemonic} {text}: accepted as {}", record.text(kind(mnemonic))),
            (true, Ok(record)) => {
                let canonical = record.text(kind(mnemonic));
                assert_eq!(parse(mnemonic, &canonical), Ok(record), "{mnemonic} {text}: {canonical}");
            }
            (false, Err(why)) => assert!(why.0.starts_with("has ") || why.0.starts_with("is "), "{}", why.0),
        }
    }
}

/// Returns all rows with the parsers that may disagree, and the canonical text of every valid record.
fn rows() -> Vec<(&'static str, String, bool, &'static str)> {
    let mut all = Vec::new();
    for &Value { mnemonic, text, is_valid, disagreeing, .. } in values() {
        all.push((mnemonic, text.to_owned(), is_valid, disagreeing));
        all.extend(parse(mnemonic, text).map(|record| (mnemonic, record.text(kind(mnemonic)), true, "")).ok());
    }
    all.extend(canonical::PAIRS.iter().map(|(mnemonic, _, text)| (*mnemonic, (*text).to_owned(), true, "")));
    all
}

#[test]
fn other_parsers_agree() {
    let rows = rows();
    let mut differences = Vec::new();
    for parser in parsers::installed() {
        let is_agreed = |is_valid: bool, disagreeing: &str| is_valid && !disagreeing.contains(parser.letter());
        let checked = rows
            .iter()
            .filter(|(.., is_valid, disagreeing)| parser.tolerates_errors() || is_agreed(*is_valid, disagreeing));
        let checked: Vec<_> = checked.collect();
        let records: Vec<_> = checked.iter().map(|(mnemonic, text, ..)| (*mnemonic, text.as_str())).collect();
        for ((mnemonic, text, is_valid, disagreeing), result) in checked.into_iter().zip(parser.parse(&records)) {
            let agrees = match (&result, is_valid) {
                (ParseResult::Skipped, _) => true,
                // Compare all octets case-insensitively, because the test does not know which octets belong to names.
                (ParseResult::Accepted(Some(wire)), true) => {
                    parse(mnemonic, text).unwrap().wire().eq_ignore_ascii_case(wire)
                }
                (ParseResult::Accepted(_), is_valid) => *is_valid,
                (ParseResult::Rejected(_), is_valid) => !*is_valid,
            };
            if !agrees && !disagreeing.contains(parser.letter()) {
                differences.push(format!("{parser:?}: {mnemonic} {text}: {result:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "other parsers disagree:\n{}", differences.join("\n"));
}
