//! `dnspython`, from the system's Python or from a virtual environment next to the tests.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use super::ParseResult;
use crate::records::ZONE;

/// Reads lines of `[type, data]`. Writes the wire format in hex, or the error.
const RECORDS: &str = r#"
import dns.name, dns.rdata, json, sys
origin = dns.name.from_text(sys.argv[1])
for line in sys.stdin:
    kind, text = json.loads(line)
    try:
        data = dns.rdata.from_text("IN", kind, text, origin=origin, relativize=False)
        print(json.dumps([data.to_wire(origin=origin).hex(), ""]))
    except Exception as why:
        print(json.dumps([None, repr(why)]))
"#;

/// Reads a zone file. Writes every record as `owner ttl type wire`.
const ZONEFILE: &str = r#"
import dns.zone, sys
zone = dns.zone.from_text(sys.stdin.buffer.read().decode(), origin=sys.argv[1], relativize=False, check_origin=False)
for name, node in zone.nodes.items():
    for rdataset in node:
        for data in rdataset:
            kind = dns.rdatatype.to_text(rdataset.rdtype)
            wire = data.to_wire()[:12] if kind == "LOC" else data.to_wire()
            print(name.to_digestable().hex(), rdataset.ttl, kind, wire.hex())
"#;

/// Returns a Python with dnspython.
pub(super) fn program() -> Option<&'static PathBuf> {
    static PROGRAM: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let system = PathBuf::from("python3");
        if has_dnspython(&system) {
            return Some(system);
        }
        let environment = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dnspython");
        let own = environment.join("bin/python");
        if !has_dnspython(&own) {
            succeeds(Command::new(system).args(["-m", "venv"]).arg(environment));
            succeeds(Command::new(&own).args(["-m", "pip", "install", "--quiet", "dnspython>=2.9,<3"]));
        }
        has_dnspython(&own).then_some(own)
    });
    PROGRAM.as_ref()
}

pub(super) fn parse(records: &[(&str, &str)]) -> Vec<ParseResult> {
    let lines: String = records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n").collect();
    let output = run(RECORDS, &lines);
    let results = output.lines().map(|line| match serde_json::from_str(line).unwrap() {
        (Some(hex), _) => ParseResult::Accepted(Some(octets(hex))),
        (None::<&str>, why) => ParseResult::Rejected(why),
    });
    results.collect()
}

/// Returns the sorted records of a zone file: owner, TTL, type and data, for LOC without the altitude.
pub(crate) fn records(text: &str) -> Vec<(Vec<u8>, u32, String, Vec<u8>)> {
    let output = run(ZONEFILE, text);
    let records = output.lines().map(|line| {
        let mut words = line.split(' ');
        let mut next = || words.next().unwrap();
        (octets(next()), next().parse().unwrap(), next().to_owned(), octets(next()))
    });
    let mut records: Vec<_> = records.collect();
    records.sort();
    records
}

fn run(script: &str, input: &str) -> String {
    let mut command = Command::new(program().unwrap());
    command.args(["-c", script, ZONE]).env("PYTHONIOENCODING", "utf-8");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input.as_bytes()).unwrap());
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{}\n{input}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Versions before 2.9 write non-ASCII octets of a URI as UTF-8, and do not check the lengths of digests.
fn has_dnspython(python: &PathBuf) -> bool {
    let version = "import dns.version as it; assert (it.MAJOR, it.MINOR) >= (2, 9)";
    succeeds(Command::new(python).args(["-c", version]))
}

fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn octets(hex: &str) -> Vec<u8> {
    let octet = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(octet).collect()
}
