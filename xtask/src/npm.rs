//! Packages from npm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use crate::obtain;

/// Installs what `package.json` names into the folder; where there is a lock file, what that says and nothing else.
pub fn install(folder: &Path, package: &Value, lock: Option<&Value>) -> Result<()> {
    fs::write(folder.join("package.json"), package.to_string())?;
    if let Some(lock) = lock {
        fs::write(folder.join("package-lock.json"), lock.to_string())?;
    }
    let mut npm = Command::new("npm");
    npm.current_dir(folder).arg(if lock.is_some() { "ci" } else { "install" });
    npm.args(["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]);
    // Where there is no network, that is known soon, and asked again at the next start.
    npm.args(["--fetch-retries", "0", "--fetch-timeout", "60000"]);
    obtain::run(&mut npm)
}

/// Installs one package without dependencies. The digest is ours and not the registry's: npm installs a package with this
/// digest, or nothing. Gives the package's folder.
pub fn install_one(folder: &Path, package: &str, version: &str, integrity: &str) -> Result<PathBuf> {
    let wanted = json!({ "dependencies": { package: version } });
    let name = format!("node_modules/{package}");
    let lock = json!({
        "lockfileVersion": 3,
        "packages": { "": wanted, &name: { "version": version, "integrity": integrity } },
    });
    install(folder, &wanted, Some(&lock))?;
    Ok(folder.join(name))
}
