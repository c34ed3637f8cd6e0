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

use anyhow::{Result, ensure};
use reqwest::RequestBuilder;
use xtask::postgres::Cluster;
use xtask::services::Services;
use xtask::workspace::print_step;

use super::machine::with_release_build;
use super::report::Report;
use super::server::success_json;
use control_api::ControlApi;
use powerdns::{Location, PowerDns};

pub use args::Args;

const TITLE: &str = "Zones";
const ABOUT: &str = "\
Written by `cargo xtask bench dns`. The zones API and the API of Debian's PowerDNS, with its backend for Postgres. Both
use databases of the same durable Postgres over a unix socket.";

pub async fn run(args: Args) -> Result<ExitCode> {
    let programs = powerdns::Programs::find()?;
    with_release_build(async |services, folder| measure(services, folder, &args, &programs).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args, programs: &powerdns::Programs) -> Result<()> {
    let mut report = Report::new(TITLE, ABOUT, &[programs.version()?])?;
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
        services.supervise(updates::compare(&mut report, &control_api, &powerdns, args)).await?;
    }
    if args.zones > 0 || args.detail > 0 {
        services.supervise(reads::compare(&mut report, &control_api, &powerdns, args)).await?;
    }
    report.finish(args)
}

/// Checks the number of rrsets in the zone that this request returns, not counting SOA and NS.
async fn check_rrset_count(detail: RequestBuilder, rrsets: usize) -> Result<()> {
    let found = success_json(detail.send().await?).await?;
    let found = found.get("rrsets").and_then(|rrsets| rrsets.as_array()).map_or(0, Vec::len);
    ensure!(found == rrsets + 2, "a zone of {rrsets} rrsets has {found} rrsets");
    Ok(())
}
