//! Programs from PyPI, in an environment of their own.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::obtain;

/// The folder of the programs of these requirements, one on a line as pip reads them.
pub fn programs(name: &str, requirements: &str) -> Result<PathBuf> {
    let folder = obtain::folder(name, requirements, |folder| {
        obtain::run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--retries", "0"]);
        obtain::run(pip.args(requirements.lines()))
    })?;
    Ok(folder.join("bin"))
}

/// A program among them.
pub fn program(name: &str, requirements: &str, program: &str) -> Result<PathBuf> {
    let found = programs(name, requirements)?.join(program);
    ensure!(found.is_file(), "the packages hold no program {program}");
    Ok(found)
}
