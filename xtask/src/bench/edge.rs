//! `bench edge`: a real server, a real node and Debian's nginx, all on this machine and all of a release build.

mod deploys;
mod nginx;
mod platform;
mod requests;
mod wrk;

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::dev::services::Services;
use crate::process::Signals;
use crate::workspace::{self, step};
use platform::Platform;

#[derive(clap::Args)]
pub struct Args {
    /// How many static projects the node serves in the end; 0 leaves that part out
    #[arg(long, default_value_t = 1000)]
    projects: usize,
    /// How long each run of wrk takes; 0 leaves that part out
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// How many connections wrk holds open
    #[arg(long, default_value_t = 64)]
    connections: u32,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let programs = requests::Programs::find()?;
    let mut services = Services::new(Signals::listen()?);
    build(&mut services).await?;
    let folder = env::temp_dir().join(format!("svc-bench-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let measured = measure(&mut services, &folder, &args, &programs).await;
    services.stop().await;
    fs::remove_dir_all(&folder)?;
    measured.map(|()| ExitCode::SUCCESS)
}

async fn measure(services: &mut Services, folder: &Path, args: &Args, programs: &requests::Programs) -> Result<()> {
    let platform = Platform::start(services, folder).await?;
    if args.seconds > 0 {
        let nginx = nginx::start(services, folder, &programs.nginx).await?;
        let load = wrk::Load { wrk: &programs.wrk, seconds: args.seconds, connections: args.connections };
        services.during(requests::compare(&platform, nginx, &load)).await?;
    }
    if args.projects > 0 {
        services.during(deploys::measure(&platform, args.projects)).await?;
    }
    Ok(())
}

async fn build(services: &mut Services) -> Result<()> {
    let start = Instant::now();
    let mut cargo = workspace::cargo(workspace::BUILD_PROGRAMS)?;
    cargo.arg("--release");
    ensure!(services.signals.run(cargo).await?.success(), "the programs do not build");
    step("Programs", "built", start);
    Ok(())
}

/// An address of this machine that nobody listens at.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// A program that is installed; system programs are not on everybody's path.
fn installed(name: &str, package: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|program| program.is_file()));
    found.with_context(|| format!("{name} is not installed: apt-get install {package}"))
}

/// The middle one, and for few the highest of every hundred: the last.
fn quantile(sorted: &[f64], of_hundred: usize) -> f64 {
    let at = (sorted.len() * of_hundred).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}
