//! The example is run as people run it.

use std::path::PathBuf;
use std::process::{Command, Output};

/// Cargo puts examples beside the folder that holds the tests.
fn built(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples").join(example)
}

/// What `check_zone` says of this file, which it is given by its path and as its input.
fn checked(zone: &str, text: &str) -> [Output; 2] {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(built("check_zone"));
    command.arg(zone).current_dir(&folder);
    let of_input = command.stdin(std::fs::File::open(&file).unwrap()).output().unwrap();
    [command.arg("zone").output().unwrap(), of_input]
}

#[test]
fn the_example_checks_zone_files() {
    let good = "@ SOA ns1 host 7 2h 1h 2w 5m\n NS ns1\nwww CNAME ns1\nns1 A 192.0.2.1\n";
    let written = "$ORIGIN example.org.\n$TTL 300\n\
        @\t3600\tIN\tSOA\tns1.example.org. host.example.org. 7 7200 3600 1209600 300\n\
        @\t300\tIN\tNS\tns1.example.org.\n\
        ns1\t300\tIN\tA\t192.0.2.1\n\
        www\t300\tIN\tCNAME\tns1.example.org.\n";
    for said in checked("Example.org.", good) {
        assert_eq!((said.status.code(), String::from_utf8(said.stdout).unwrap().as_str()), (Some(0), written));
    }
    let bad = "a A x\n\nb MX\n";
    for (said, path) in checked("example.org", bad).into_iter().zip(["zone", "-"]) {
        let faults =
            format!("{path}:1: the A record is no IPv4 address: x\n{path}:3: the MX record has no preference\n");
        assert_eq!((said.status.code(), String::from_utf8(said.stderr).unwrap()), (Some(1), faults));
        assert!(said.stdout.is_empty());
    }
    for said in checked("org", good) {
        let why = "org: the name must have at least two labels, such as example.org\n";
        assert_eq!((said.status.code(), String::from_utf8(said.stderr).unwrap().as_str()), (Some(1), why));
    }
}
