//! The release build, free addresses and installed programs for benchmarks.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kernel::ClockRng;
use rustix::process::{Pid, Signal, kill_process};
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
    let (mut services, folder) = (Services::new(Signals::listen()?), create_folder()?);
    let done = work(&mut services, &folder).await;
    services.stop().await;
    fs::remove_dir_all(folder)?;
    done
}

/// Creates a temporary folder.
pub fn create_folder() -> Result<PathBuf> {
    let folder = env::temp_dir().join(format!("svc-lab-{}", ClockRng::system().id::<uuid::Uuid>().simple()));
    fs::create_dir(&folder)?;
    Ok(folder)
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
