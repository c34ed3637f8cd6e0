//! Where things are, how cargo is called, and how progress is told.

use std::fmt::Display;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// The checkout's folder. Looked for at run time, so that a built binary may be moved.
pub fn root() -> Result<PathBuf> {
    let cwd = std::env::current_dir()?;
    let root = cwd.ancestors().find(|folder| folder.join("xtask/Cargo.toml").is_file());
    Ok(root.context("run this inside a checkout: there is no xtask/Cargo.toml here or above")?.to_owned())
}

/// A name for a path: the same in every run, and short enough for a socket (FNV-1a).
pub fn fingerprint(path: &Path) -> String {
    let hash = path
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// Builds the programs as they are shipped.
pub const BUILD_PROGRAMS: &[&str] = &["build", "-p", "server", "-p", "node", "-p", "cli"];
/// Builds the programs that `dev` runs.
pub const BUILD_DEV: &[&str] = &["build", "-p", "server", "-p", "node", "-p", "cli", "-p", "sandbox"];
/// Builds the programs that describe their settings or routes, and that do not need the generated client.
pub const BUILD_SERVICES: &[&str] = &["build", "-p", "server", "-p", "node", "-p", "sandbox"];
/// Builds the programs and all tests in one go. What only tests depend on changes the features of what everybody
/// depends on: asked for one after the other, cargo builds most crates twice.
pub const BUILD_TESTED: &[&str] = &["build", "--workspace", "--bins", "--tests", "--examples"];

/// Cargo, in the checkout. `cargo run` describes xtask in the environment; passed on, that would make build scripts
/// that look there (ring's does) run again each time.
pub fn cargo(arguments: &[&str]) -> Result<Command> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()?).args(arguments);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    Ok(cargo)
}

/// What `cargo metadata` says.
pub fn metadata(arguments: &[&str]) -> Result<serde_json::Value> {
    let output = cargo(&["metadata", "--format-version", "1", "--locked"])?.args(arguments).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The folder of the programs that cargo builds.
pub fn binaries(release: bool) -> Result<PathBuf> {
    let metadata = metadata(&["--no-deps"])?;
    let target = metadata.get("target_directory").and_then(|it| it.as_str()).context("cargo has no target folder")?;
    Ok(Path::new(target).join(if release { "release" } else { "debug" }))
}

/// The lock of this name, held as long as the file stays open; `None` when another process holds it.
pub fn try_lock(path: &Path) -> Result<Option<File>> {
    let file = File::create(path).with_context(|| format!("{}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Tells what has been done and how long it took.
pub fn step(name: &str, outcome: impl Display, since: Instant) {
    println!("  {name:<9} {outcome} in {}", seconds(since.elapsed()));
}

/// A duration as a person reads it.
pub fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
