//! Other readers of the same formats, as `cargo xtask test` obtains them. Where one is not to be had, stderr says so.

mod checkers;
mod python;

pub(crate) use checkers::{checks, dumped};
pub(crate) use python::records;

/// Who judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judge {
    /// BIND's `named-checkzone`.
    Bind,
    /// Python's `dnspython`.
    Dnspython,
    /// Knot's `kzonecheck`.
    Knot,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// With the data on the wire, where the judge tells it.
    Taken(Option<Vec<u8>>),
    Refused(String),
    /// It was not asked: the text does not fit on a line.
    Unsaid,
}

impl Judge {
    /// What the tables call it.
    pub fn letter(self) -> char {
        match self {
            Self::Bind => 'b',
            Self::Dnspython => 'd',
            Self::Knot => 'k',
        }
    }

    /// Whether it can be asked of what is faulty. Knot 3.2 cannot: behind a fault it may stop, or never end.
    pub fn survives_faults(self) -> bool {
        self != Self::Knot
    }

    /// What it says of each record, a type and its data.
    pub fn judge(self, records: &[(&str, &str)]) -> Vec<Verdict> {
        match self {
            Self::Dnspython => python::judge(records),
            Self::Bind | Self::Knot => checkers::judge(self, records),
        }
    }
}

/// The judges that are installed.
pub(crate) fn present() -> Vec<Judge> {
    let (mut present, mut absent) = (Vec::new(), Vec::new());
    for (judge, is_present, package) in [
        (Judge::Bind, checkers::program(Judge::Bind).is_some(), "bind9-utils"),
        (Judge::Dnspython, python::program().is_some(), "dnspython 2.9 with pip"),
        (Judge::Knot, checkers::program(Judge::Knot).is_some(), "knot-dnssecutils"),
    ] {
        if is_present { present.push(judge) } else { absent.push((judge, package)) }
    }
    for (judge, package) in &absent {
        let line = format!("### NOT CHECKED against {judge:?}: install {package} ###\n");
        // Past the harness, which keeps what is printed to itself.
        std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
    }
    present
}
