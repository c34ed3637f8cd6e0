//! `workerd`, which runs worker code, from a pinned npm package.

use std::path::PathBuf;

use crate::{npm, obtain};
use anyhow::{Context as _, Result, ensure};

const VERSION: &str = "1.20261117.1";
/// The packages by architecture, with the digests that npm verifies.
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

/// Returns the program. If it is unavailable, returns `None` and prints what does not work without it.
pub fn find() -> Option<PathBuf> {
    let found = obtain();
    if let Err(error) = &found {
        println!(
            "  workerd   not available ({error:#}): worker code returns 503. Install npm, or set SVC_NODE_WORKERD"
        );
    }
    found.ok()
}

fn obtain() -> Result<PathBuf> {
    ensure!(cfg!(target_os = "linux"), "it is supported only on Linux");
    let package = PACKAGES.into_iter().find(|(machine, ..)| *machine == std::env::consts::ARCH);
    let (_, package, integrity) = package.context("no package for this machine")?;
    let folder = obtain::folder("workerd", &format!("{package}@{VERSION}"), |folder| {
        npm::install_one(folder, package, VERSION, integrity).map(drop)
    })?;
    let program = folder.join("node_modules").join(package).join("bin/workerd");
    ensure!(program.is_file(), "the npm package contains no program");
    Ok(program)
}
