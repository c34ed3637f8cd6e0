//! Third-party programs, downloaded once below `.svc`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::workspace::{self, print_step};

/// Returns the folder with this name after `fill` has filled it. `key` identifies the content: the folder is filled
/// again if the key changes or if the previous attempt was incomplete.
pub fn folder(name: &str, key: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    folder_in(&workspace::root()?.join(".svc"), name, key, fill)
}

/// Like [`folder`], below another parent folder.
pub fn folder_in(all: &Path, name: &str, key: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    fs::create_dir_all(all)?;
    // Concurrent processes must not fill the folder twice.
    let lock = File::create(all.join(format!("{name}.lock")))?;
    lock.lock()?;
    let folder = all.join(name);
    let marker = folder.join("obtained");
    if fs::read_to_string(&marker).ok().as_deref() != Some(key) {
        let start = Instant::now();
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir(&folder)?;
        fill(&folder)?;
        // Written last: a folder without this file is incomplete.
        fs::write(marker, key)?;
        print_step(name, "downloaded", start);
    }
    Ok(folder)
}

/// Runs a program and waits for it. The error contains the first line of its stderr.
pub fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| program.clone())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}", stderr.lines().next().unwrap_or_default());
    Ok(())
}
