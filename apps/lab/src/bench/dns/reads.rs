//! The list of many zones, and a zone with all it holds.

use std::time::Duration;

use anyhow::Result;
use reqwest::RequestBuilder;

use super::Args;
use super::load::Load;
use super::ours::Ours;
use super::powerdns::PowerDns;
use crate::bench::run::{Run, median};

/// Prints rows for the first page of the list and for one zone.
pub async fn compare(ours: &Ours, theirs: &PowerDns, args: &Args) -> Result<()> {
    println!("\nReads on one connection, {} s, median of {}\n", args.seconds, args.rounds);
    println!("| read | | requests/s | p50 ms | p99 ms | errors | ratio |\n|---|---|---|---|---|---|---|");
    if args.zones > 0 {
        ours.many(args.zones).await?;
        theirs.many(args.zones).await?;
        for limit in [50, 200] {
            let read = format!("{limit} of {} zones (PowerDNS: all)", args.zones);
            rows(&read, args, || theirs.list(), || ours.list(limit)).await?;
        }
    }
    if args.detail > 0 {
        let zone = "detail.example";
        ours.zone(zone, args.detail).await?;
        theirs.zone(zone, args.detail).await?;
        ours.check(zone, args.detail.try_into()?).await?;
        theirs.check(zone, args.detail.try_into()?).await?;
        let read = format!("a zone of {} rrsets", args.detail);
        rows(&read, args, || theirs.detail(zone), || ours.detail(zone)).await?;
    }
    Ok(())
}

async fn rows(
    read: &str,
    args: &Args,
    theirs: impl Fn() -> RequestBuilder,
    ours: impl Fn() -> RequestBuilder,
) -> Result<()> {
    let load = Load { connections: 1, lasts: Duration::from_secs(args.seconds) };
    let [mut own, mut other] = [Vec::new(), Vec::new()];
    for _ in 0..args.rounds {
        other.push(load.run(&theirs).await?);
        own.push(load.run(&ours).await?);
    }
    let [own, other] = [own, other].map(|runs| median(&runs));
    for (side, Run { rate, p50, p99, errors }) in [("PowerDNS", other), ("ours", own)] {
        let ratio = rate / other.rate;
        println!("| {read} | {side} | {rate:.0} | {p50:.2} | {p99:.2} | {errors} | {ratio:.2} |");
    }
    Ok(())
}
