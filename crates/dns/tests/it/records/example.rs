//! Runs the example program.

use std::path::PathBuf;
use std::process::{Command, Output};

/// Returns the path of an example: Cargo puts examples next to the folder with the tests.
fn example_path(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples").join(example)
}

/// Runs `check_zone` on this file, passed as a path and on standard input.
fn check_zone(zone: &str, text: &str) -> [Output; 2] {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(example_path("check_zone"));
    command.arg(zone).current_dir(&folder);
    let from_input = command.stdin(std::fs::File::open(&file).unwrap()).output().unwrap();
    [command.arg("zone").output().unwrap(), from_input]
}

#[test]
fn check_zone_example_prints_the_zone_or_its_errors() {
    let good = "@ SOA ns1 host 7 2h 1h 2w 5m\n NS ns1\nwww CNAME ns1\nns1 A 192.0.2.1\n";
    let written = "$ORIGIN example.org.\n$TTL 300\n\
        @\t3600\tIN\tSOA\tns1.example.org. host.example.org. 7 7200 3600 1209600 300\n\
        @\t300\tIN\tNS\tns1.example.org.\n\
        ns1\t300\tIN\tA\t192.0.2.1\n\
        www\t300\tIN\tCNAME\tns1.example.org.\n";
    for output in check_zone("Example.org.", good) {
        assert_eq!((output.status.code(), String::from_utf8(output.stdout).unwrap().as_str()), (Some(0), written));
    }
    let bad = "a A x\n\nb MX\n";
    for (output, path) in check_zone("example.org", bad).into_iter().zip(["zone", "-"]) {
        let errors = format!(
            "{path}:1: the A record is not a valid IPv4 address: x\n{path}:3: the MX record has no preference\n"
        );
        assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(1), errors));
        assert!(output.stdout.is_empty());
    }
    for output in check_zone("org", good) {
        let why = "org: the name must have at least two labels, such as example.org\n";
        assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(1), why));
    }
}
