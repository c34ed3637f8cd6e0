//! Knot DNS, BIND and NSD for tests and `dev`, from unpacked Debian packages.

use std::path::PathBuf;

use xtask::debian::Unpacked;

const PACKAGES: [&str; 7] =
    ["knot", "knot-dnsutils", "knot-dnssecutils", "bind9", "bind9-dnsutils", "bind9-utils", "nsd"];

/// Returns the root folder of the unpacked packages. If they are unavailable, returns `None` and prints that tests are
/// skipped.
pub fn find() -> Option<PathBuf> {
    let found = Unpacked::obtain("nameservers", &PACKAGES).map(Unpacked::into_root);
    if let Err(error) = &found {
        println!("  dns       nameservers not available ({error:#}): tests that need them are skipped");
    }
    found.ok()
}
