//! Knot DNS, BIND and NSD, as tests and `dev` run them: Debian's packages, unpacked into the checkout and not installed,
//! so that nothing of the machine is changed and no service of theirs is started.

use std::path::PathBuf;

use xtask::debian::Unpacked;

const PACKAGES: [&str; 7] =
    ["knot", "knot-dnsutils", "knot-dnssecutils", "bind9", "bind9-dnsutils", "bind9-utils", "nsd"];

/// The folder under which `usr/sbin/knotd` and the others are, wherever they can be had. Else says, once, what that
/// means.
pub fn find() -> Option<PathBuf> {
    let found = Unpacked::obtain("nameservers", &PACKAGES).map(Unpacked::into_root);
    if let Err(error) = &found {
        println!("  dns       no nameservers to be had ({error:#}): what needs them is left out");
    }
    found.ok()
}
