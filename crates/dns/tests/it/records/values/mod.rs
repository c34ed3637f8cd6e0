//! What is taken and what is refused, and where other readers see it differently.

mod bindings;
mod data;
mod names;
mod value;

use crate::records::judge::{self, Verdict};
use crate::records::{canonical, kind, parse};
use value::Value;

fn values() -> impl Iterator<Item = &'static Value> {
    [names::VALUES, data::VALUES, bindings::VALUES].into_iter().flatten()
}

#[test]
fn what_nameservers_refuse_is_refused() {
    assert!(values().count() > 250);
    for Value { mnemonic, text, is_taken, .. } in values() {
        match (is_taken, parse(mnemonic, text)) {
            (true, Err(why)) => panic!("{mnemonic} {text}: the record {why}"),
            (false, Ok(record)) => panic!("{mnemonic} {text}: taken as {}", record.text(kind(mnemonic))),
            (true, Ok(record)) => {
                let canonical = record.text(kind(mnemonic));
                assert_eq!(parse(mnemonic, &canonical), Ok(record), "{mnemonic} {text}: {canonical}");
            }
            (false, Err(why)) => assert!(why.0.starts_with("has ") || why.0.starts_with("is "), "{}", why.0),
        }
    }
}

/// The tables as they stand, with the judges that may decide otherwise, and what every record reads back as.
fn judged() -> Vec<(&'static str, String, bool, &'static str)> {
    let mut all = Vec::new();
    for &Value { mnemonic, text, is_taken, others, .. } in values() {
        all.push((mnemonic, text.to_owned(), is_taken, others));
        all.extend(parse(mnemonic, text).map(|record| (mnemonic, record.text(kind(mnemonic)), true, "")).ok());
    }
    all.extend(canonical::PAIRS.iter().map(|(mnemonic, _, text)| (*mnemonic, (*text).to_owned(), true, "")));
    all
}

#[test]
fn other_readers_decide_alike() {
    let judged = judged();
    let mut wrong = Vec::new();
    for judge in judge::present() {
        let is_good = |is_taken: bool, others: &str| is_taken && !others.contains(judge.letter());
        let asked =
            judged.iter().filter(|(.., is_taken, others)| judge.survives_faults() || is_good(*is_taken, others));
        let asked: Vec<_> = asked.collect();
        let records: Vec<_> = asked.iter().map(|(mnemonic, text, ..)| (*mnemonic, text.as_str())).collect();
        for ((mnemonic, text, is_taken, others), verdict) in asked.into_iter().zip(judge.judge(&records)) {
            let is_alike = match (&verdict, is_taken) {
                (Verdict::Unsaid, _) => true,
                // Names are compared without regard to case, and this does not tell names from the rest.
                (Verdict::Taken(Some(wire)), true) => parse(mnemonic, text).unwrap().wire().eq_ignore_ascii_case(wire),
                (Verdict::Taken(_), taken) => *taken,
                (Verdict::Refused(_), taken) => !*taken,
            };
            if !is_alike && !others.contains(judge.letter()) {
                wrong.push(format!("{judge:?}: {mnemonic} {text}: {verdict:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "others decide otherwise:\n{}", wrong.join("\n"));
}
