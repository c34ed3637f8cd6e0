//! Checks a zone file and prints it in canonical format:
//! `cargo run -p dns --example check_zone -- example.org [file]`. Without a file, it reads standard input.
//!
//! Errors are printed as `file:line: message`, with exit status 1. If the file has no SOA, a default SOA is added.

use std::io::Read;
use std::process::ExitCode;

use dns::zonefile::{self, Zonefile};
use dns::{Soa, ZoneName};

fn main() -> ExitCode {
    match check() {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(faults) => {
            eprintln!("{faults}");
            ExitCode::FAILURE
        }
    }
}

fn check() -> Result<String, String> {
    let mut arguments = std::env::args().skip(1);
    let (Some(zone), path, None) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("usage: check_zone <zone> [file]".into());
    };
    let zone = ZoneName::parse(&zone).map_err(|why| format!("{zone}: the name {why}"))?;
    let mut text = String::new();
    let (path, read) = match path {
        Some(path) => {
            let read = std::fs::read_to_string(&path).map(|file| text = file);
            (path, read)
        }
        None => ("-".to_owned(), std::io::stdin().read_to_string(&mut text).map(|_| ())),
    };
    read.map_err(|error| format!("{path}: {error}"))?;
    let file = zonefile::read(&zone, &text).map_err(|faults| {
        let lines = faults.iter().map(|fault| format!("{path}:{}: {}", fault.line, fault.message));
        lines.collect::<Vec<_>>().join("\n")
    })?;
    let Zonefile { sets, soa } = file;
    let soa = soa.unwrap_or_else(|| default_soa(&zone));
    Ok(zonefile::write(&zone, &soa, sets.iter().map(|(_, set)| set)))
}

fn default_soa(zone: &ZoneName) -> Soa {
    Soa {
        primary: format!("ns1.{}", zone.as_str()),
        hostmaster: format!("hostmaster.{}", zone.as_str()),
        serial: 1,
        refresh: 3600,
        retry: 600,
        expire: 1_209_600,
        minimum: 300,
    }
}
