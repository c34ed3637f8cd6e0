//! `bench dns`: a real server and Debian's PowerDNS, each in a database of one Postgres that keeps what it acknowledges.

mod load;
mod ours;
mod powerdns;
mod reads;
mod replaces;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use xtask::postgres::Cluster;
use xtask::services::Services;
use xtask::workspace::step;

use super::measured;
use ours::Ours;
use powerdns::{At, PowerDns};

#[derive(clap::Args)]
pub struct Args {
    /// How long each run takes
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Runs of each, in turns
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Sizes of the zones that are changed, in rrsets; none leaves that part out
    #[arg(long, value_delimiter = ',', num_args = 0.., default_values_t = [10, 1_000, 50_000])]
    sizes: Vec<u32>,
    /// Requests at a time
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8])]
    connections: Vec<usize>,
    /// How many zones are listed; 0 leaves that part out
    #[arg(long, default_value_t = 10_000)]
    zones: u32,
    /// Rrsets of the zone that is read whole; 0 leaves that part out
    #[arg(long, default_value_t = 3_000)]
    detail: u32,
    /// Leave PowerDNS as it comes: it rectifies the whole zone after each change
    #[arg(long)]
    rectify: bool,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let programs = powerdns::Programs::find()?;
    measured(async |services, folder| measure(services, folder, &args, &programs).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args, programs: &powerdns::Programs) -> Result<()> {
    let start = Instant::now();
    let cluster = Cluster::bench()?;
    let [own, other] = ["postgres", "pdns"].map(|database| cluster.url(database));
    let sockets = cluster.sockets().to_owned();
    services.postgres = Some(cluster);
    let ours = Ours::start(services, folder, own.clone()).await?;
    let theirs =
        PowerDns::start(services, folder, programs, &At { sockets, there: own, own: other, rectify: args.rectify })
            .await?;
    step("Servers", "ready", start);
    if !args.sizes.is_empty() {
        services.during(replaces::compare(&ours, &theirs, args)).await?;
    }
    if args.zones > 0 || args.detail > 0 {
        services.during(reads::compare(&ours, &theirs, args)).await?;
    }
    Ok(())
}
