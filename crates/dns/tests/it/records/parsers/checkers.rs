//! The programs of nameservers that check zone files. Both report all invalid lines.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use super::{ParseResult, Parser};
use crate::records::ZONE;

/// The minimal content of a zone.
const HEAD: &str = "$TTL 300\n@ SOA ns1 host 1 3600 600 86400 300\n@ NS ns1\nns1 A 192.0.2.1\n";

/// Returns the directory with the Debian packages that `cargo xtask test` unpacks.
fn package_root() -> Option<PathBuf> {
    std::env::var_os("SVC_TEST_NAMESERVERS").map(PathBuf::from)
}

pub(super) fn program(parser: Parser) -> Option<PathBuf> {
    let name = if parser == Parser::Bind { "named-checkzone" } else { "kzonecheck" };
    let own = package_root().into_iter().flat_map(|root| ["usr/bin", "usr/sbin"].map(|folder| root.join(folder)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.chain(std::env::split_paths(&path)).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Checks a zone file. Returns the output.
pub(crate) fn check_zone(parser: Parser, text: &str) -> Result<String, String> {
    match parser {
        // Do not check host names, and do not look up the addresses of nameservers.
        Parser::Bind => run(parser, &["-k", "ignore", "-i", "none", "-r", "ignore", ZONE], text),
        // Knot also looks up the addresses of nameservers. Only errors of the zone loader matter.
        Parser::Knot => run(parser, &["-v", "-o", ZONE], text)
            .or_else(|output| if output.contains("zone loader") { Err(output) } else { Ok(output) }),
        Parser::Dnspython => Ok(String::new()),
    }
}

/// Returns the zone file as BIND writes it.
pub(crate) fn dump_zone(text: &str) -> String {
    run(Parser::Bind, &["-q", "-D", "-k", "ignore", "-i", "none", "-r", "ignore", ZONE], text).unwrap()
}

fn run(parser: Parser, arguments: &[&str], text: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(program(parser).unwrap());
    if let Some(root) = package_root() {
        let libraries = root.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
        command.env("LD_LIBRARY_PATH", libraries);
    }
    let output = command.args(arguments).arg(&file).output().unwrap();
    let text = [output.stdout, output.stderr].map(|stream| String::from_utf8_lossy(&stream).into_owned()).concat();
    if output.status.success() { Ok(text) } else { Err(text) }
}

pub(super) fn parse(parser: Parser, records: &[(&str, &str)]) -> Vec<ParseResult> {
    // After an unclosed quotation mark or an escaped line end, the programs may count lines differently.
    let is_closed =
        |record: &(&str, &str)| record.1.matches('"').count().is_multiple_of(2) && !record.1.ends_with('\\');
    let chunks = records.chunk_by(|one, next| is_closed(one) && is_closed(next));
    chunks.flat_map(|records| parse_chunk(parser, records)).collect()
}

fn parse_chunk(parser: Parser, records: &[(&str, &str)]) -> Vec<ParseResult> {
    let mut text = HEAD.to_owned();
    for (at, (kind, data)) in records.iter().enumerate() {
        // Errors at the end of a line are reported for the next line.
        let line = if fits(kind, data) { format!("v{at} {kind} {data}\n\n") } else { "\n\n".to_owned() };
        text.push_str(&line);
    }
    let output = check_zone(parser, &text).unwrap_or_else(|output| output);
    let mut rejected: HashMap<usize, String> = HashMap::new();
    for (line, why) in output.lines().filter_map(|line| rejected_line(parser, line)) {
        let at = line
            .checked_sub(HEAD.lines().count() + 1)
            .unwrap_or_else(|| panic!("the header lines are rejected: {why}"));
        rejected.insert(at / 2, why);
    }
    let results = records.iter().enumerate().map(|(at, (kind, data))| match rejected.remove(&at) {
        _ if !fits(kind, data) => ParseResult::Skipped,
        Some(why) => ParseResult::Rejected(why),
        None => ParseResult::Accepted(None),
    });
    results.collect()
}

/// Returns whether the record fits on one line and may be at a name below the apex, which excludes the SOA.
fn fits(kind: &str, data: &str) -> bool {
    kind != "SOA" && !data.chars().any(|c| c.is_control() && c != '\t')
}

/// Returns the rejected line and the error: `dns_rdata_fromtext: zone:7: near …` or `… file 'zone', line 6 (…)`.
fn rejected_line(parser: Parser, output: &str) -> Option<(usize, String)> {
    let line = match parser {
        Parser::Bind => {
            let rest =
                output.strip_prefix("dns_rdata_fromtext: ").or_else(|| output.strip_prefix("dns_master_load: "))?;
            rest.split(':').nth(1)?
        }
        _ => output.split_once("', line ")?.1.split(' ').next()?,
    };
    Some((line.parse().ok()?, output.to_owned()))
}
