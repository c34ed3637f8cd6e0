//! Paths of the workspace, cargo commands, and progress output.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags, open};

use crate::openssl;

/// Returns the root folder of the checkout. It is located at run time, so that a built binary can be moved.
pub fn root() -> Result<PathBuf> {
    let cwd = std::env::current_dir()?;
    let root = cwd.ancestors().find(|folder| folder.join("xtask/Cargo.toml").is_file());
    Ok(root.context("not in a checkout: no xtask/Cargo.toml in this folder or its parents")?.to_owned())
}

/// Returns a stable name for a path that is short enough for a socket path (FNV-1a hash).
pub fn fingerprint(path: &Path) -> String {
    let hash = path
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// Builds the shipped programs.
pub const BUILD_PROGRAMS: &[&str] =
    &["build", "-p", "server", "-p", "node", "-p", "git-node", "-p", "mail-node", "-p", "cli"];
/// Builds the programs that `dev` runs.
pub const BUILD_DEV: &[&str] =
    &["build", "-p", "server", "-p", "node", "-p", "git-node", "-p", "mail-node", "-p", "cli", "-p", "sandbox"];
/// Builds the programs that print their settings or routes and do not need the generated client.
pub const BUILD_SERVICES: &[&str] =
    &["build", "-p", "server", "-p", "node", "-p", "git-node", "-p", "mail-node", "-p", "sandbox"];
/// Builds the programs and all tests in one command. Test dependencies change the features of shared dependencies, so
/// that separate commands would build most crates twice.
pub const BUILD_WITH_TESTS: &[&str] = &["build", "--workspace", "--bins", "--tests", "--examples"];

/// Builds a cargo command in the checkout. Removes the variables in which `cargo run` describes xtask, because build
/// scripts that read them, such as ring's, would run again each time.
pub fn cargo(arguments: &[&str]) -> Result<Command> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()?);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    openssl::add_arguments(&mut cargo, arguments);
    Ok(cargo)
}

/// Builds `cargo test` with these arguments.
pub fn cargo_test(arguments: &[OsString]) -> Result<Command> {
    let mut cargo = cargo(&["test"])?;
    openssl::add_arguments(&mut cargo, arguments);
    Ok(cargo)
}

/// Runs `cargo metadata`.
pub fn metadata(arguments: &[&str]) -> Result<serde_json::Value> {
    let output = cargo(&["metadata", "--format-version", "1", "--locked"])?.args(arguments).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the folder into which cargo builds.
pub fn target_folder() -> Result<PathBuf> {
    let metadata = metadata(&["--no-deps"])?;
    let target = metadata.get("target_directory").and_then(|it| it.as_str()).context("cargo has no target folder")?;
    Ok(target.into())
}

/// Returns the folder of the programs that cargo builds. If a variable selects a target, they have a separate folder.
pub fn program_folder(release: bool) -> Result<PathBuf> {
    let mut folder = target_folder()?;
    folder.extend(std::env::var_os("CARGO_BUILD_TARGET"));
    Ok(folder.join(if release { "release" } else { "debug" }))
}

/// Locks a file until it is closed. Returns `None` if another process holds the lock. Rejects a symbolic link, and does
/// not change the content of an existing file.
pub fn try_lock(path: &Path) -> Result<Option<File>> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = open(path, flags, Mode::from_raw_mode(0o666));
    let file = File::from(opened.with_context(|| format!("{}", path.display()))?);
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Prints a completed step and its duration.
pub fn print_step(name: &str, outcome: impl Display, since: Instant) {
    println!("  {name:<9} {outcome} in {}", format_seconds(since.elapsed()));
}

/// Formats a duration in seconds.
pub fn format_seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn lock_rejects_links_and_keeps_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "content").unwrap();
        symlink(&file, &link).unwrap();
        assert!(try_lock(&link).is_err());
        let lock = try_lock(&file).unwrap();
        assert!(lock.is_some() && try_lock(&file).unwrap().is_none());
        assert_eq!(fs::read_to_string(&file).unwrap(), "content");
    }
}
