//! The protections that this machine offers to workers. A missing protection is logged and shown in the metrics, and
//! workers run without it.

use std::fs::remove_dir;
use std::path::Path;

use anyhow::{Context as _, ensure};
use rustix::process::geteuid;

use super::cgroup::Cgroups;
use super::config::Config;
use super::launch;
use super::protection::Protection;
use crate::cache::create_private_dir;
use crate::metrics::Metrics;

/// The available protections.
pub struct Available {
    /// The protections that the launcher applies.
    pub of_kernel: Vec<Protection>,
    /// The parent of the control groups of workers.
    pub cgroups: Option<Cgroups>,
}

/// Detects the protections. Logs the missing ones, and shows all of them in the metrics. Blocks. `run` is the parent
/// folder of all workers' folders.
pub fn detect(config: &Config, run: &Path, metrics: &Metrics) -> Available {
    let mut missing = missing_of_kernel(config, run).unwrap_or_else(|error| {
        let reason = format!("failed to detect it: {error:#}");
        Protection::OF_KERNEL.map(|protection| (protection, reason.clone())).into()
    });
    let of_kernel = Protection::OF_KERNEL.into_iter();
    let of_kernel = of_kernel.filter(|protection| missing.iter().all(|(other, _)| other != protection)).collect();
    if !geteuid().is_root() {
        missing.push((Protection::UserId, "the node does not run as root".to_owned()));
    }
    let cgroups = Cgroups::open(run, config.memory, config.total_memory);
    let cgroups = cgroups.map_err(|error| missing.push((Protection::Cgroup, format!("{error:#}")))).ok();
    for protection in Protection::ALL {
        let reason = missing.iter().find(|(other, _)| *other == protection).map(|(_, reason)| reason);
        metrics.worker_protections.with_label_values(&[protection.name()]).set(i64::from(reason.is_none()));
        if let Some(reason) = reason {
            let protection = protection.name();
            tracing::error!(protection, reason, "workers run without a protection");
        }
    }
    Available { of_kernel, cgroups }
}

fn missing_of_kernel(config: &Config, run: &Path) -> anyhow::Result<Vec<(Protection, String)>> {
    let folder = run.join("check");
    create_private_dir(&folder)?;
    let output = launch::check_command(config, &folder).output();
    remove_dir(&folder)?;
    let output = output?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let lines = str::from_utf8(&output.stdout)?.lines();
    let parse = |line: &str| {
        let (name, reason) = line.split_once('\t').context("malformed line")?;
        Ok((Protection::from_name(name).context("unknown protection")?, reason.to_owned()))
    };
    lines.map(parse).collect()
}
