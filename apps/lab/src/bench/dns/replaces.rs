//! Replaces of one rrset by another, at zones of several sizes.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Result;
use kernel::World;

use super::Args;
use super::load::Load;
use super::ours::Ours;
use super::powerdns::PowerDns;
use crate::bench::run::{Run, median};

/// New content for one of a zone's rrsets.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    pub rrset: u32,
    pub address: Ipv4Addr,
}

impl Change {
    /// Another one each time, of a zone of so many rrsets.
    fn any(size: u32) -> Self {
        let [rrset, address] = [0; 2].map(|_: u32| u32::from_ne_bytes(World::system().bytes::<4>()));
        Self { rrset: rrset % size, address: Ipv4Addr::from_bits(address) }
    }
}

/// Runs at one size, with so many requests at a time.
struct Case {
    size: u32,
    connections: usize,
    zone: String,
    /// Of PowerDNS and of ours, in turns.
    runs: [Vec<Run>; 2],
}

/// Prints rows for each size and number of connections, and what a change costs in the largest zone beside the smallest.
/// In each round all of them have their turn, so that whatever else the machine does meets them alike.
pub async fn compare(ours: &Ours, theirs: &PowerDns, args: &Args) -> Result<()> {
    let mut cases = Vec::new();
    for &size in &args.sizes {
        let zone = format!("bench{size}.example");
        ours.zone(&zone, size).await?;
        theirs.zone(&zone, size).await?;
        let case =
            |connections: &usize| Case { size, connections: *connections, zone: zone.clone(), runs: [vec![], vec![]] };
        cases.extend(args.connections.iter().map(case));
    }
    for _ in 0..args.rounds {
        for Case { size, connections, zone, runs: [other, own] } in &mut cases {
            let load = Load { connections: *connections, lasts: Duration::from_secs(args.seconds) };
            other.push(load.run(|| theirs.replace(zone, &Change::any(*size))).await?);
            own.push(load.run(|| ours.replace(zone, Change::any(*size))).await?);
        }
    }
    for Case { size, zone, .. } in &cases {
        ours.check(zone, (*size).try_into()?).await?;
        theirs.check(zone, (*size).try_into()?).await?;
    }
    print(&cases, args);
    Ok(())
}

fn print(cases: &[Case], args: &Args) {
    println!("\nReplaces of a random rrset, {} s, median of {}\n", args.seconds, args.rounds);
    println!(
        "| rrsets | at a time | | changes/s | p50 ms | p99 ms | errors | ratio |\n|---|---|---|---|---|---|---|---|"
    );
    for Case { size, connections, runs, .. } in cases {
        let [other, own] = runs.each_ref().map(|runs| median(runs));
        for (side, run) in [("PowerDNS", other), ("ours", own)] {
            println!("{}", run.row(&format!("{size} | {connections}"), side, run.rate / other.rate));
        }
    }
    println!();
    for &connections in &args.connections {
        let mut of_sizes = cases.iter().filter(|case| case.connections == connections);
        if let (Some(small), Some(large)) = (of_sizes.next(), of_sizes.next_back()) {
            let [fast, slow] = [small, large].map(|Case { runs: [_, own], .. }| median(own).rate);
            println!(
                "{connections} at a time: a change at {} rrsets costs {:.2} of one at {}",
                large.size,
                fast / slow,
                small.size
            );
        }
    }
}
