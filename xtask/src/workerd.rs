//! `workerd`, which runs worker code: the one that is named, or npm's package of it, obtained once.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use xtask::{npm, obtain};

const VERSION: &str = "1.20261117.1";
/// npm installs what has these digests, or nothing.
const PACKAGES: [(&str, &str, &str); 2] = [
    (
        "x86_64",
        "@cloudflare/workerd-linux-64",
        "sha512-gZLA8X11m/luZwn+YA3+mDu61vdxNJzpksP/QZqjydKTQ+VUCulsK5gtn9Bqst1p3KJu2kafQpJ1nDQv4B23jA==",
    ),
    (
        "aarch64",
        "@cloudflare/workerd-linux-arm64",
        "sha512-gxWngFojq41ULKNKb9rpWYvKotN5hT2I/xot+Bpy31cXzrwcTgtDLSMb2t75sW5BJxH7hihFvikgYb577kB3Zg==",
    ),
];

/// The program, wherever one can be had. Else says, once, what that means.
pub fn find() -> Option<PathBuf> {
    let found = obtain();
    if let Err(error) = &found {
        println!(
            "  workerd   not to be had ({error:#}): worker code answers 503. Install npm, or set SVC_NODE_WORKERD"
        );
    }
    found.ok()
}

fn obtain() -> Result<PathBuf> {
    ensure!(cfg!(target_os = "linux"), "it is run on Linux alone");
    let package = PACKAGES.into_iter().find(|(machine, ..)| *machine == std::env::consts::ARCH);
    let (_, package, integrity) = package.context("no package for this machine")?;
    let folder = obtain::folder("workerd", &format!("{package}@{VERSION}"), |folder| {
        npm::install_one(folder, package, VERSION, integrity).map(drop)
    })?;
    let program = folder.join("node_modules").join(package).join("bin/workerd");
    ensure!(program.is_file(), "npm's package holds no program");
    Ok(program)
}
