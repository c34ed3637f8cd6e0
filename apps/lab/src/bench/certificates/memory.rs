//! The memory of certificates, and the duration of a start with them.

use std::time::{Duration, Instant};

use anyhow::Result;
use xtask::services::Services;

use super::nginx::Form;
use super::rig::Rig;
use super::target::Target;
use crate::bench::report::Report;

/// Adds a row for each program. The node and nginx run with all certificates afterwards.
pub async fn measure(services: &mut Services, rig: &Rig, report: &mut Report) -> Result<[Target; 3]> {
    rig.restart_node(services).await?;
    let few = rig.node().memory()?;
    let fetched = services.supervise(rig.publish_all()).await?;
    let start = rig.restart_node(services).await?;
    let node = rig.node();
    let node_memory = [few, node.memory()?];
    let (blocks, blocks_memory, blocks_start) = nginx(services, rig, Form::Blocks).await?;
    let (variable, variable_memory, variable_start) = nginx(services, rig, Form::Variable).await?;

    let count = rig.names.len();
    report.paragraph(&format!(
        "**Memory.** The proportional set size after a start. The node fetched the {count} certificates from the \
         control plane in {:.1} s, and reads them from its directory at a start.",
        fetched.as_secs_f64()
    ))?;
    let all = format!("{} certificates, MB", count + 1);
    report.columns(&["program", "1 certificate, MB", &all, "KB for each", "start, s"])?;
    for (target, memory, start) in [
        (&blocks, blocks_memory, blocks_start),
        (&variable, variable_memory, variable_start),
        (&node, node_memory, start),
    ] {
        add(report, target, memory, start, count)?;
    }
    Ok([blocks, variable, node])
}

/// Starts nginx with one certificate, and then with all. Returns the memory of both in MB, and the duration of the
/// second start.
async fn nginx(services: &mut Services, rig: &Rig, form: Form) -> Result<(Target, [f64; 2], Duration)> {
    let own = || std::iter::once(&rig.host);
    let few = rig.nginx.start(services, form, own()).await?.memory()?;
    services.stop_program(form.service()).await;
    let start = Instant::now();
    let target = rig.nginx.start(services, form, own().chain(&rig.names)).await?;
    let start = start.elapsed();
    let all = target.memory()?;
    Ok((target, [few, all], start))
}

fn add(report: &mut Report, target: &Target, [few, all]: [f64; 2], start: Duration, count: usize) -> Result<()> {
    let each = (all - few) * 1000.0 / f64::from(u32::try_from(count)?);
    report.row(&[
        target.name,
        &format!("{few:.1}"),
        &format!("{all:.1}"),
        &format!("{each:.1}"),
        &format!("{:.2}", start.as_secs_f64()),
    ])
}
