//! What a process uses, as Linux tells it in `/proc`.

use std::fs;

use anyhow::{Context as _, Result};

/// Its resident memory now and at most so far, in MB.
pub fn memory(process: u32) -> Result<(f64, f64)> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let of = |name: &str| -> Option<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: f64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kibibytes * 1024.0 / 1e6)
    };
    of("VmRSS:").zip(of("VmHWM:")).context("no memory in /proc/…/status")
}

/// The seconds of all cores that it has taken so far.
pub fn processor_time(process: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name, which may hold anything, ends with a parenthesis.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: Option<Vec<u32>> = fields.skip(11).take(2).map(|field| field.parse().ok()).collect();
    let ticks = ticks.filter(|ticks| ticks.len() == 2).context("no processor time in /proc/…/stat")?;
    let a_second = u32::try_from(rustix::param::clock_ticks_per_second())?;
    Ok(ticks.into_iter().map(f64::from).sum::<f64>() / f64::from(a_second))
}
