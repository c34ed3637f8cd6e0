//! The cost of idle databases at the node.

use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use tokio::time::sleep;

use super::Database;
use crate::bench::platform::Platform;
use crate::bench::report::Report;
use crate::usage;

/// The number of concurrent requests: the server's limit for an organization.
const CONCURRENT: usize = 4;
/// The duration of a measurement of CPU time.
const DURATION: Duration = Duration::from_secs(30);

/// The cost of an idle node.
pub struct Cost {
    /// Resident memory in MB.
    memory: f64,
    /// CPU time in percent of one core.
    cpu: f64,
}

impl Cost {
    /// Measures a node that has nothing else to do.
    pub async fn measure(platform: &Platform) -> Result<Self> {
        let before = usage::cpu_time(platform.node_pid())?;
        sleep(DURATION).await;
        let used = usage::cpu_time(platform.node_pid())? - before;
        let (memory, _) = usage::memory(platform.node_pid())?;
        Ok(Self { memory, cpu: used / DURATION.as_secs_f64() * 100.0 })
    }

    fn add(&self, report: &mut Report, databases: usize) -> Result<()> {
        report.row(&[&databases.to_string(), &format!("{:.0}", self.memory), &format!("{:.1}", self.cpu)])
    }
}

/// Adds `count` databases, and adds the cost without and with databases.
pub async fn measure(report: &mut Report, platform: &Platform, count: usize, before: &Cost) -> Result<()> {
    let names: Vec<String> = (0..count).map(|number| format!("idle{number}")).collect();
    create_projects(platform, &names).await?;
    for batch in names.chunks(CONCURRENT) {
        try_join_all(batch.iter().map(async |name| Database::enable(platform, name).await?.wait_until_usable().await))
            .await?;
    }
    // After a minute, the pools of the databases close their idle connections.
    sleep(Duration::from_secs(90)).await;
    let after = Cost::measure(platform).await?;
    report.paragraph(&format!(
        "**Idle databases.** A node without databases, and with {count} idle databases in addition to those of the \
         other measurements."
    ))?;
    report.columns(&["idle databases", "node memory, MB", "CPU of the node, % of a core"])?;
    before.add(report, 0)?;
    after.add(report, count)
}

pub async fn create_projects(platform: &Platform, names: &[String]) -> Result<()> {
    for batch in names.chunks(CONCURRENT) {
        try_join_all(batch.iter().map(|name| platform.create_project(name))).await?;
    }
    Ok(())
}
