//! `bench dns`: compares the server with Debian's PowerDNS. Both use databases of the same Postgres cluster, with
//! `fsync` on.

mod args;
mod control_api;
mod load;
mod powerdns;
mod reads;
mod updates;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use xtask::postgres::Cluster;
use xtask::services::Services;
use xtask::workspace::print_step;

use super::machine::with_release_build;
use control_api::ControlApi;
use powerdns::{Location, PowerDns};

pub use args::Args;

pub async fn run(args: Args) -> Result<ExitCode> {
    let programs = powerdns::Programs::find()?;
    with_release_build(async |services, folder| measure(services, folder, &args, &programs).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args, programs: &powerdns::Programs) -> Result<()> {
    let start = Instant::now();
    let cluster = Cluster::bench()?;
    let [own, other] = ["postgres", "pdns"].map(|database| cluster.url(database));
    let sockets = cluster.sockets().to_owned();
    services.postgres = Some(cluster);
    let control_api = ControlApi::start(services, folder, own.clone()).await?;
    let powerdns = PowerDns::start(
        services,
        folder,
        programs,
        &Location { sockets, existing_database_url: own, database_url: other, rectify: args.rectify },
    )
    .await?;
    print_step("Servers", "ready", start);
    if !args.sizes.is_empty() {
        services.supervise(updates::compare(&control_api, &powerdns, args)).await?;
    }
    if args.zones > 0 || args.detail > 0 {
        services.supervise(reads::compare(&control_api, &powerdns, args)).await?;
    }
    Ok(())
}
