//! Replacements of a random rrset in zones of several sizes.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Result;
use kernel::ClockRng;

use super::control_api::ControlApi;
use super::load::Load;
use super::powerdns::PowerDns;
use super::{Args, check_rrset_count};
use crate::bench::report::Report;
use crate::bench::run::{Run, median};

/// New content for one rrset of a zone.
#[derive(Debug, Clone, Copy)]
pub struct RrsetUpdate {
    pub rrset: u32,
    pub address: Ipv4Addr,
}

impl RrsetUpdate {
    /// Creates a random update in a zone with this number of rrsets.
    fn random(size: u32) -> Self {
        let [rrset, address] = [0; 2].map(|_: u32| u32::from_ne_bytes(ClockRng::system().bytes::<4>()));
        Self { rrset: rrset % size, address: Ipv4Addr::from_bits(address) }
    }
}

/// Runs with one zone size and one number of concurrent requests.
struct Case {
    size: u32,
    connections: usize,
    zone: String,
    /// The runs of PowerDNS and of the control API.
    runs: [Vec<Run>; 2],
}

/// Adds two rows per case, and the cost of a change in the largest zone relative to the smallest. Each round runs all
/// cases, so that other load on the machine affects all of them equally.
pub async fn compare(report: &mut Report, control_api: &ControlApi, powerdns: &PowerDns, args: &Args) -> Result<()> {
    let mut cases = Vec::new();
    for &size in &args.sizes {
        let zone = format!("bench{size}.example");
        control_api.create_zone(&zone, size).await?;
        powerdns.create_zone(&zone, size).await?;
        let case =
            |connections: &usize| Case { size, connections: *connections, zone: zone.clone(), runs: [vec![], vec![]] };
        cases.extend(args.connections.iter().map(case));
    }
    for _ in 0..args.rounds {
        for Case { size, connections, zone, runs: [powerdns_runs, svc_runs] } in &mut cases {
            let load = Load { connections: *connections, duration: Duration::from_secs(args.seconds) };
            powerdns_runs.push(load.run(|| powerdns.replace(zone, &RrsetUpdate::random(*size))).await?);
            svc_runs.push(load.run(|| control_api.replace(zone, RrsetUpdate::random(*size))).await?);
        }
    }
    for Case { size, zone, .. } in &cases {
        check_rrset_count(control_api.detail(zone), (*size).try_into()?).await?;
        check_rrset_count(powerdns.detail(zone), (*size).try_into()?).await?;
    }
    add(report, &cases, args)
}

fn add(report: &mut Report, cases: &[Case], args: &Args) -> Result<()> {
    report.paragraph(&format!(
        "**Changes.** Replacements of a random rrset, {} runs of {} s. After a change, PowerDNS {} the zone.",
        args.rounds,
        args.seconds,
        if args.rectify { "rectifies" } else { "does not rectify" }
    ))?;
    report.comparison_columns(&[])?;
    for Case { size, connections, runs: [powerdns_runs, svc_runs], .. } in cases {
        let operation = format!("{size} rrsets, {}", concurrency(*connections));
        report.comparison(&operation, &[("PowerDNS", powerdns_runs), ("svc", svc_runs)])?;
    }
    for &connections in &args.connections {
        let mut cases_by_size = cases.iter().filter(|case| case.connections == connections);
        if let (Some(small), Some(large)) = (cases_by_size.next(), cases_by_size.next_back()) {
            let [fast, slow] = [small, large].map(|Case { runs: [_, svc_runs], .. }| median(svc_runs).rate);
            report.paragraph(&format!(
                "With {}, a change at {} rrsets costs {:.2} times a change at {} rrsets.",
                concurrency(connections),
                large.size,
                fast / slow,
                small.size
            ))?;
        }
    }
    Ok(())
}

fn concurrency(connections: usize) -> String {
    format!("{connections} concurrent request{}", if connections == 1 { "" } else { "s" })
}
