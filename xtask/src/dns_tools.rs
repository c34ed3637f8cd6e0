//! Tools that speak PowerDNS, which the tests run against the face that does: octodns from PyPI, lego and the authority
//! it asks from Debian. Obtained once, below `.svc`.

use std::path::PathBuf;

use xtask::debian::Unpacked;
use xtask::pypi;

const OCTODNS: &str = "octodns==1.22.0\noctodns-powerdns==1.2.0";

/// The environment variables that name them to tests. Says of each what it means that it is not to be had.
pub fn find() -> Vec<(&'static str, PathBuf)> {
    let mut found = Vec::new();
    match pypi::program("octodns", OCTODNS, "octodns-sync") {
        Ok(program) => found.push(("SVC_TEST_OCTODNS", program)),
        Err(error) => println!("  octodns   not to be had ({error:#}): its test is skipped"),
    }
    let debian = Unpacked::obtain("lego", &["lego", "pebble"]);
    match debian.and_then(|it| Ok((it.file("usr/bin/lego")?, it.file("usr/bin/pebble")?))) {
        Ok((lego, pebble)) => found.extend([("SVC_TEST_LEGO", lego), ("SVC_TEST_PEBBLE", pebble)]),
        Err(error) => println!("  lego      not to be had ({error:#}): its test is skipped"),
    }
    found
}
