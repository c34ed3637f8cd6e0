//! Installs programs from PyPI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::obtain;

/// Installs these requirements, one per line in pip's format, into a virtual environment and returns its program
/// folder.
pub fn programs(name: &str, requirements: &str) -> Result<PathBuf> {
    let folder = obtain::folder(name, requirements, |folder| {
        obtain::run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--retries", "0"]);
        obtain::run(pip.args(requirements.lines()))
    })?;
    Ok(folder.join("bin"))
}

/// Unpacks a wheel without its dependencies into the folder. The requirement lists the accepted hashes.
pub fn unpack(folder: &Path, requirement: &str) -> Result<()> {
    // pip accepts hashes only in a requirements file.
    let file = folder.join("requirements.txt");
    fs::write(&file, requirement)?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "0"]);
    pip.args(["--no-deps", "--only-binary", ":all:", "--no-compile", "--require-hashes"]);
    pip.arg("--target").arg(folder).arg("--requirement").arg(&file);
    obtain::run(&mut pip)
}
