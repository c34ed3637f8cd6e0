//! `bench dns`: a real server and Debian's PowerDNS, each in a database of one Postgres that keeps what it acknowledges.

mod args;
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

use super::machine::measured;
use ours::Ours;
use powerdns::{At, PowerDns};

pub use args::Args;

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
