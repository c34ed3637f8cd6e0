//! Programs of others, obtained once, below `.svc`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::workspace::{self, step};

/// The folder of this name, with what `fill` puts there. It is filled once for what is `wanted`: what was wanted before
/// is replaced, and so is what was left half done.
pub fn folder(name: &str, wanted: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    folder_in(&workspace::root()?.join(".svc"), name, wanted, fill)
}

/// Does the same below another folder.
pub fn folder_in(all: &Path, name: &str, wanted: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    fs::create_dir_all(all)?;
    // Two that start at once obtain it once.
    let turn = File::create(all.join(format!("{name}.lock")))?;
    turn.lock()?;
    let folder = all.join(name);
    let list = folder.join("obtained");
    if fs::read_to_string(&list).ok().as_deref() != Some(wanted) {
        let start = Instant::now();
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir(&folder)?;
        fill(&folder)?;
        // Last: a folder without it is not whole.
        fs::write(list, wanted)?;
        step(name, "obtained", start);
    }
    Ok(folder)
}

/// Runs a program to its end. When that is no good one, the error is what it says first.
pub fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| program.clone())?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}", why.lines().next().unwrap_or_default());
    Ok(())
}
