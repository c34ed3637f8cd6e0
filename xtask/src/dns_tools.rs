//! Clients of the PowerDNS API, for tests of the compatible API: octodns from PyPI, and lego with its ACME test server
//! pebble from Debian.

use std::path::PathBuf;

use xtask::debian::Unpacked;
use xtask::pypi;

const OCTODNS: &str = "octodns==1.22.0\noctodns-powerdns==1.2.0";

/// Returns the environment variables that pass the programs to tests. Prints which tests are skipped if a program is
/// unavailable.
pub fn find() -> Vec<(&'static str, PathBuf)> {
    let mut found = Vec::new();
    match pypi::program("octodns", OCTODNS, "octodns-sync") {
        Ok(program) => found.push(("SVC_TEST_OCTODNS", program)),
        Err(error) => println!("  octodns   not available ({error:#}): its test is skipped"),
    }
    let debian = Unpacked::obtain("lego", &["lego", "pebble"]);
    match debian.and_then(|it| Ok((it.file("usr/bin/lego")?, it.file("usr/bin/pebble")?))) {
        Ok((lego, pebble)) => found.extend([("SVC_TEST_LEGO", lego), ("SVC_TEST_PEBBLE", pebble)]),
        Err(error) => println!("  lego      not available ({error:#}): its test is skipped"),
    }
    found
}
