//! The cost of idle databases at the node.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::Database;
use crate::bench::platform::{Platform, run_concurrently};
use crate::bench::report::Report;
use crate::usage;

/// The duration of a measurement of CPU time.
const DURATION: Duration = Duration::from_secs(30);
/// The wait until the pools of new databases have closed their idle connections, which they do after a minute.
const POOL_TIMEOUT: Duration = Duration::from_secs(90);

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
        let before = usage::cpu_time(platform.node.pid())?;
        sleep(DURATION).await;
        let used = usage::cpu_time(platform.node.pid())? - before;
        let (memory, _) = usage::memory(platform.node.pid())?;
        Ok(Self { memory, cpu: used / DURATION.as_secs_f64() * 100.0 })
    }

    fn add_row(&self, report: &mut Report, databases: usize) -> Result<()> {
        report.row(&[&databases.to_string(), &format!("{:.0}", self.memory), &format!("{:.1}", self.cpu)])
    }
}

/// Adds `count` databases, and adds the cost without and with databases.
pub async fn measure(report: &mut Report, platform: &Platform, count: usize, before: &Cost) -> Result<()> {
    add(platform, count).await?;
    let after = Cost::measure(platform).await?;
    report.paragraph(&format!(
        "**Idle databases.** A node without databases, and with {count} idle databases in addition to those of the \
         other measurements."
    ))?;
    report.columns(&["idle databases", "node memory, MB", "CPU of the node, % of a core"])?;
    before.add_row(report, 0)?;
    after.add_row(report, count)
}

/// Creates projects with a database, and waits until the databases are idle.
pub async fn add(platform: &Platform, count: usize) -> Result<()> {
    run_concurrently(0..count, async |number| {
        let name = format!("idle{number}");
        platform.create_project(&name).await?;
        Database::enable(platform, &name).await?.wait_until_usable().await.map(drop)
    })
    .await?;
    sleep(POOL_TIMEOUT).await;
    Ok(())
}
