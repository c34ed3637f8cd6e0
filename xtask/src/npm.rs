//! Installs packages from npm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use crate::obtain;

/// Installs the dependencies of `package.json` into the folder, in the versions of the lock file. npm rejects a package
/// with another digest than in the lock file.
pub fn install(folder: &Path, package: &Value, lock: &Value) -> Result<()> {
    fs::write(folder.join("package.json"), package.to_string())?;
    fs::write(folder.join("package-lock.json"), lock.to_string())?;
    let mut npm = Command::new("npm");
    npm.current_dir(folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]);
    // Fail fast without a network: the next start tries again.
    npm.args(["--fetch-retries", "0", "--fetch-timeout", "60000"]);
    obtain::run(&mut npm)
}

/// Installs one package without dependencies and returns its folder.
pub fn install_one(folder: &Path, package: &str, version: &str, integrity: &str) -> Result<PathBuf> {
    let package_json = json!({ "dependencies": { package: version } });
    let name = format!("node_modules/{package}");
    let lock = json!({
        "lockfileVersion": 3,
        "packages": { "": package_json, &name: { "version": version, "integrity": integrity } },
    });
    install(folder, &package_json, &lock)?;
    Ok(folder.join(name))
}
