//! Reads: the list of many zones, and a zone with all its rrsets.

use std::time::Duration;

use anyhow::Result;
use reqwest::RequestBuilder;

use super::control_api::ControlApi;
use super::load::Load;
use super::powerdns::PowerDns;
use super::{Args, check_rrset_count};
use crate::bench::report::Report;

/// Adds rows for the first page of the list, and for one zone.
pub async fn compare(report: &mut Report, control_api: &ControlApi, powerdns: &PowerDns, args: &Args) -> Result<()> {
    report.paragraph(&format!("**Reads.** One connection, {} runs of {} s.", args.rounds, args.seconds))?;
    report.comparison_columns(&[])?;
    if args.zones > 0 {
        control_api.create_small_zones(args.zones).await?;
        powerdns.create_small_zones(args.zones).await?;
        for limit in [50, 200] {
            let read = format!("{limit} of {} zones (PowerDNS: all)", args.zones);
            rows(report, &read, args, || powerdns.list(), || control_api.list(limit)).await?;
        }
    }
    if args.detail > 0 {
        let zone = "detail.example";
        control_api.create_zone(zone, args.detail).await?;
        powerdns.create_zone(zone, args.detail).await?;
        check_rrset_count(control_api.detail(zone), args.detail.try_into()?).await?;
        check_rrset_count(powerdns.detail(zone), args.detail.try_into()?).await?;
        let read = format!("a zone of {} rrsets", args.detail);
        rows(report, &read, args, || powerdns.detail(zone), || control_api.detail(zone)).await?;
    }
    Ok(())
}

async fn rows(
    report: &mut Report,
    read: &str,
    args: &Args,
    powerdns: impl Fn() -> RequestBuilder,
    control_api: impl Fn() -> RequestBuilder,
) -> Result<()> {
    let load = Load { connections: 1, duration: Duration::from_secs(args.seconds) };
    let [mut svc_runs, mut powerdns_runs] = [Vec::new(), Vec::new()];
    for _ in 0..args.rounds {
        powerdns_runs.push(load.run(&powerdns).await?);
        svc_runs.push(load.run(&control_api).await?);
    }
    report.comparison(read, &[("PowerDNS", &powerdns_runs), ("svc", &svc_runs)])
}
