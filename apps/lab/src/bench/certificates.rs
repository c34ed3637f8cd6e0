//! `bench certificates`: TLS at a node with many certificates, compared with Debian's nginx. A server, a node and nginx
//! run on this machine, from release builds.

mod arrival;
mod authority;
mod client;
mod handshakes;
mod load;
mod memory;
mod nginx;
mod publisher;
mod requests;
mod rig;
mod target;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Result, ensure};
use xtask::services::Services;

use self::load::Load;
use self::rig::Rig;
use super::machine::{find_installed, with_release_build};
use super::report::Report;

/// The heading of the section in the documentation.
const TITLE: &str = "TLS with 10,000 certificates";
const ABOUT: &str = "\
Written by `cargo xtask bench certificates`. Each hostname has its own certificate: ECDSA P-256, with an intermediate.
nginx has as many workers as the node, and reads the same certificates in one of two ways: from a block `server` for
each name, or from a file whose name contains the variable `$ssl_server_name`.";

/// The number of certificates and the parts.
#[derive(clap::Args, PartialEq)]
pub struct Args {
    /// The number of hostnames with a certificate
    #[arg(long, default_value_t = 10_000)]
    certificates: usize,
    /// The duration of each run; 0 skips handshakes and requests
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The number of runs per program, alternating
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The number of concurrent clients
    #[arg(long, default_value_t = 32)]
    clients: usize,
    /// The number of certificates that are replaced one after the other; 0 skips this part
    #[arg(long, default_value_t = 20)]
    renewals: usize,
    /// Try all parts within a few minutes: 300 certificates, short runs
    #[arg(long)]
    quick: bool,
}

pub async fn run(mut args: Args) -> Result<ExitCode> {
    if args.quick {
        args = Args { certificates: 300, seconds: 1, rounds: 1, renewals: 4, ..args };
    }
    ensure!(args.certificates > 0 && args.rounds > 0 && args.clients > 0, "the numbers must be positive");
    let nginx = find_installed("nginx", "nginx-light")?;
    with_release_build(async |services, folder| measure(services, folder, &args, nginx).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args, nginx: PathBuf) -> Result<()> {
    let versions = describe_nginx(&nginx)?;
    let rig = Rig::start(services, folder, nginx, args.certificates).await?;
    let mut report = Report::new(TITLE, ABOUT, &versions)?;
    let [blocks, variable, node] = memory::measure(services, &rig, &mut report).await?;
    if args.seconds > 0 {
        let load = Load { duration: Duration::from_secs(args.seconds), rounds: args.rounds, clients: args.clients };
        let (targets, expected) = ([&blocks, &variable, &node], &rig.expected);
        let handshakes = handshakes::compare(&mut report, &targets, (expected, &rig.names), load);
        services.supervise(handshakes).await?;
        let targets = [&blocks, &node];
        let requests = requests::compare(&mut report, &targets, (expected, &rig.host), load);
        services.supervise(requests).await?;
    }
    if args.renewals > 0 {
        let renewals = arrival::measure(&rig, &mut report, [&blocks, &variable, &node], args.renewals);
        services.supervise(renewals).await?;
    }
    report.finish(args)
}

/// Returns the versions of nginx and its TLS library.
fn describe_nginx(program: &Path) -> Result<Vec<String>> {
    // nginx prints its version to the standard error.
    let output = Command::new(program).arg("-V").output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    let versions = printed.lines().filter(|line| line.starts_with("nginx version") || line.starts_with("built with"));
    Ok(versions.map(str::to_owned).collect())
}
