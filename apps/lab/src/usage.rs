//! Memory and CPU time of a process, from `/proc`.

use std::fs;

use anyhow::{Context as _, Result};

/// Returns the current and the peak resident memory in MB.
pub fn memory(process: u32) -> Result<(f64, f64)> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let field = |name: &str| -> Option<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: f64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kibibytes * 1024.0 / 1e6)
    };
    field("VmRSS:").zip(field("VmHWM:")).context("no memory figures in /proc/…/status")
}

/// Returns the proportional set size in MB: the resident memory, in which memory that processes share is divided among
/// them.
pub fn proportional_memory(process: u32) -> Result<f64> {
    let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).context("no Pss in /proc/…/smaps_rollup")?;
    let kibibytes: f64 = line.split_whitespace().next().context("an empty Pss")?.parse()?;
    Ok(kibibytes * 1024.0 / 1e6)
}

/// Returns the ids of the child processes.
pub fn children(process: u32) -> Result<Vec<u32>> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
    Ok(children.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
}

/// Returns the name of the program, at most 15 characters.
pub fn name(process: u32) -> Result<String> {
    Ok(fs::read_to_string(format!("/proc/{process}/comm"))?.trim_end().to_owned())
}

/// Returns the number of open file descriptors.
pub fn descriptors(process: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{process}/fd"))?.count())
}

/// Returns the ids of all processes below a process. Also finds those that threads other than the main thread started.
pub fn descendants(process: u32) -> Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process may end while the others are read.
        let Ok(fields) = stat_fields(id) else { continue };
        let parent = fields.split_whitespace().nth(1).and_then(|parent| parent.parse::<u32>().ok());
        parents.extend(parent.map(|parent| (id, parent)));
    }
    let mut found = vec![process];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(id, _)| *id));
        at += 1;
    }
    found.remove(0);
    Ok(found)
}

/// Returns the CPU time used so far on all cores, in seconds.
pub fn cpu_time(process: u32) -> Result<f64> {
    let fields = stat_fields(process)?;
    let ticks: Option<Vec<u32>> = fields.split_whitespace().skip(11).take(2).map(|field| field.parse().ok()).collect();
    let ticks = ticks.filter(|ticks| ticks.len() == 2).context("no CPU time in /proc/…/stat")?;
    let ticks_per_second = u32::try_from(rustix::param::clock_ticks_per_second())?;
    Ok(ticks.into_iter().map(f64::from).sum::<f64>() / f64::from(ticks_per_second))
}

/// Returns the fields of `/proc/…/stat` after the process name, which is in parentheses and may contain any character.
fn stat_fields(process: u32) -> Result<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    Ok(stat.rsplit_once(')').map_or("", |(_, fields)| fields).to_owned())
}
