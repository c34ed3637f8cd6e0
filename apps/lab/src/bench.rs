//! `bench`: what it costs, measured beside something that is known.

mod api;
mod dns;
mod edge;
pub mod report;
pub mod run;
pub mod server;
mod wrk;

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::Subcommand;
use xtask::process::Signals;
use xtask::services::Services;
use xtask::workspace::{self, step};

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(flatten)]
    api: api::Args,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// The zones' API beside that of PowerDNS: changes, lists and details
    Dns(dns::Args),
    /// The node's front beside nginx, and how soon a deploy is served on a node of many projects
    Edge(edge::Args),
}

pub async fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        None => api::run(args.api).await,
        Some(Command::Dns(args)) => dns::run(args).await,
        Some(Command::Edge(args)) => edge::run(args).await,
    }
}

/// Measures programs of a release build, with a folder for what they write that is gone afterwards.
pub async fn measured(work: impl AsyncFnOnce(&mut Services, &Path) -> Result<()>) -> Result<ExitCode> {
    let mut services = Services::new(Signals::listen()?);
    build(&mut services).await?;
    let folder = env::temp_dir().join(format!("svc-bench-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let measured = work(&mut services, &folder).await;
    services.stop().await;
    fs::remove_dir_all(&folder)?;
    measured.map(|()| ExitCode::SUCCESS)
}

pub async fn build(services: &mut Services) -> Result<()> {
    let start = Instant::now();
    let mut cargo = workspace::cargo(workspace::BUILD_PROGRAMS)?;
    cargo.args(["-p", "bare", "--release"]);
    ensure!(services.signals.run(cargo).await?.success(), "the programs do not build");
    step("Programs", "built", start);
    Ok(())
}

/// An address of this machine that nobody listens at.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// A program that is installed; system programs are not on everybody's path.
fn installed(name: &str, package: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|program| program.is_file()));
    found.with_context(|| format!("{name} is not installed: apt-get install {package}"))
}
