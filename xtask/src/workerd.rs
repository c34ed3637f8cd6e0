//! `workerd`, which runs worker code: the one that is named, or npm's package of it, obtained once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::workspace::{self, step};

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
    let folder = workspace::root()?.join(".svc").join(format!("workerd-{VERSION}"));
    let program = |folder: &Path| folder.join("node_modules").join(package).join("bin/workerd");
    fs::create_dir_all(folder.parent().unwrap_or(&folder))?;
    // Two that start at once install it once.
    let turn = File::create(folder.with_file_name("workerd.lock"))?;
    turn.lock()?;
    if !program(&folder).is_file() {
        let start = Instant::now();
        let unfinished = folder.with_file_name("workerd.new");
        install(&unfinished, package, integrity)?;
        ensure!(program(&unfinished).is_file(), "npm's package holds no program");
        fs::rename(&unfinished, &folder)?;
        step("workerd", "installed", start);
    }
    Ok(program(&folder))
}

/// By a lock file, so that the digest is ours and not the registry's.
fn install(folder: &Path, package: &str, integrity: &str) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir(folder)?;
    let wanted = json!({ "dependencies": { package: VERSION } });
    let lock = json!({
        "lockfileVersion": 3,
        "packages": {
            "": wanted,
            format!("node_modules/{package}"): {
                "version": VERSION,
                "integrity": integrity,
            },
        },
    });
    fs::write(folder.join("package.json"), wanted.to_string())?;
    fs::write(folder.join("package-lock.json"), lock.to_string())?;
    let mut npm = Command::new("npm");
    npm.current_dir(folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    // Where there is no network, that is known soon, and asked again at the next start.
    npm.args(["--fetch-retries", "0", "--fetch-timeout", "60000"]);
    let output = npm.output().context("npm")?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "npm: {}", why.lines().next().unwrap_or_default());
    Ok(())
}
