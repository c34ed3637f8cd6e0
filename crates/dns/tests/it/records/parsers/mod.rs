//! Other parsers of the same formats, which `cargo xtask test` installs. Prints to stderr which ones are missing.

mod checkers;
mod python;

pub(crate) use checkers::{check_zone, dump_zone};
pub(crate) use python::records;

/// Another parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parser {
    /// BIND's `named-checkzone`.
    Bind,
    /// Python's `dnspython`.
    Dnspython,
    /// Knot's `kzonecheck`.
    Knot,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ParseResult {
    /// The text was accepted. Contains the data in wire format, if the parser returns it.
    Accepted(Option<Vec<u8>>),
    Rejected(String),
    /// The text was not checked, because it does not fit on one line.
    Skipped,
}

impl Parser {
    /// Returns the letter that stands for this parser in the tables of records.
    pub fn letter(self) -> char {
        match self {
            Self::Bind => 'b',
            Self::Dnspython => 'd',
            Self::Knot => 'k',
        }
    }

    /// Returns whether the parser can parse invalid records. Knot 3.2 cannot: after an error, it may stop or loop
    /// forever.
    pub fn tolerates_errors(self) -> bool {
        self != Self::Knot
    }

    /// Parses records, each a type and its data.
    pub fn parse(self, records: &[(&str, &str)]) -> Vec<ParseResult> {
        match self {
            Self::Dnspython => python::parse(records),
            Self::Bind | Self::Knot => checkers::parse(self, records),
        }
    }
}

/// Returns the installed parsers.
pub(crate) fn installed() -> Vec<Parser> {
    let (mut present, mut absent) = (Vec::new(), Vec::new());
    for (parser, is_present, package) in [
        (Parser::Bind, checkers::program(Parser::Bind).is_some(), "bind9-utils"),
        (Parser::Dnspython, python::program().is_some(), "dnspython 2.9 with pip"),
        (Parser::Knot, checkers::program(Parser::Knot).is_some(), "knot-dnssecutils"),
    ] {
        if is_present { present.push(parser) } else { absent.push((parser, package)) }
    }
    for (parser, package) in &absent {
        let line = format!("### NOT CHECKED against {parser:?}: install {package} ###\n");
        // Write directly, because the test harness captures printed output.
        std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
    }
    present
}
