//! The release build, free addresses and installed programs for benchmarks.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use xtask::process::Signals;
use xtask::services::Services;
use xtask::workspace::{self, print_step};

/// Whether the lab and the programs that it starts are release builds. `cargo run -p lab` tries a benchmark with the
/// existing debug builds, but its figures mean nothing.
pub const IS_RELEASE: bool = !cfg!(debug_assertions);

/// Builds the programs in release mode and runs `work` in a temporary folder.
pub async fn with_release_build(work: impl AsyncFnOnce(&mut Services, &Path) -> Result<()>) -> Result<ExitCode> {
    with_services(async |services, folder| {
        build(services).await?;
        work(services, folder).await?;
        Ok(ExitCode::SUCCESS)
    })
    .await
}

/// Runs `work` in a temporary folder. Afterwards, stops the services and removes the folder.
pub async fn with_services<T>(work: impl AsyncFnOnce(&mut Services, &Path) -> Result<T>) -> Result<T> {
    // If this future is dropped, the folder is dropped last.
    let folder = create_folder()?;
    let mut services = Services::new(Signals::listen()?);
    let done = work(&mut services, folder.path()).await;
    services.stop().await;
    folder.close()?;
    done
}

/// Creates a temporary folder, which is deleted on drop.
pub fn create_folder() -> Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("svc-lab-").tempdir()?)
}

/// Set to run the existing programs of a release build.
pub const NO_BUILD: &str = "LAB_NO_BUILD";

/// Builds the programs, unless the lab is a debug build or [`NO_BUILD`] is set.
pub async fn build(services: &mut Services) -> Result<()> {
    if !IS_RELEASE || env::var_os(NO_BUILD).is_some() {
        return Ok(());
    }
    let start = Instant::now();
    let mut cargo = workspace::cargo(workspace::BUILD_PROGRAMS)?;
    cargo.args(["-p", "bare", "--release"]);
    ensure!(services.signals.run(cargo).await?.success(), "failed to build the programs");
    print_step("Programs", "built", start);
    Ok(())
}

/// Kills a process with SIGKILL.
pub fn kill(process: u32) -> Result<()> {
    send_signal(process, Signal::KILL)
}

/// Sends a signal to a process.
pub fn send_signal(process: u32, signal: Signal) -> Result<()> {
    let process = Pid::from_raw(i32::try_from(process)?).context("no process id")?;
    Ok(kill_process(process, signal)?)
}

/// Returns the path of an installed program. Also searches the `sbin` folders, which may not be in `PATH`.
pub fn find_installed(name: &str, package: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|program| program.is_file()));
    found.with_context(|| format!("{name} is not installed: apt-get install {package}"))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn dropped_run_leaves_no_folder() {
        let mut created = PathBuf::new();
        let run = with_services(async |_, folder| {
            folder.clone_into(&mut created);
            pending::<Result<()>>().await
        });
        assert!(run.now_or_never().is_none());
        assert!(created.is_absolute() && !created.exists());
    }
}
