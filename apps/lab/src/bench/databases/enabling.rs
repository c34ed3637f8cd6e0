//! The time from the request that enables a database until it can be used.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::future::try_join_all;

use super::{Database, ProjectCluster};
use crate::bench::platform::{Platform, run_concurrently};
use crate::bench::report::Report;
use crate::bench::run::percentiles;

/// The interval of the attempts to log in while many databases are enabled. It is long, because each attempt starts a
/// process of Postgres.
const LOGIN_INTERVAL: Duration = Duration::from_secs(1);

/// Enables databases one after the other, alternating with `createdb`, and adds a row for each.
pub async fn compare(report: &mut Report, platform: &Platform, cluster: &ProjectCluster, count: usize) -> Result<()> {
    let (mut created, mut answered, mut usable) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..count {
        let start = Instant::now();
        cluster.run("createdb", &["--maintenance-db", &cluster.url, &format!("bench{number}")]).await?;
        created.push(milliseconds(start));
        let name = format!("sequential{number}");
        platform.create_project(&name).await?;
        let start = Instant::now();
        let database = Database::enable(platform, &name).await?;
        answered.push(milliseconds(start));
        database.wait_until_usable().await?;
        usable.push(milliseconds(start));
    }
    report.paragraph(&format!("**Enabling.** {count} databases, one after the other."))?;
    report.columns(&["operation", "p50 ms", "p99 ms"])?;
    for (name, latencies) in
        [("createdb", created), ("enable, until the response", answered), ("enable, until the first login", usable)]
    {
        let [p50, p99] = percentiles(latencies, [50, 99]).map(|ms| format!("{ms:.0}"));
        report.row(&[name, &p50, &p99])?;
    }
    Ok(())
}

/// Enables databases at the same time, and adds a row. Each must be usable.
pub async fn enable_together(report: &mut Report, platform: &Platform, count: usize) -> Result<()> {
    let names: Vec<String> = (0..count).map(|number| format!("together{number}")).collect();
    run_concurrently(&names, |name| platform.create_project(name)).await?;
    let start = Instant::now();
    let enabled = names.iter().map(async |name| {
        let database = Database::enable(platform, name).await?;
        let client = database.wait_with(LOGIN_INTERVAL).await?;
        client.batch_execute("CREATE TABLE usable (id int); INSERT INTO usable VALUES (1)").await?;
        anyhow::Ok(milliseconds(start))
    });
    let [median, last] = percentiles(try_join_all(enabled).await?, [50, 100]);
    report.paragraph(&format!(
        "{count} databases, enabled at the same time. A database is usable as soon as a client has written a row."
    ))?;
    report.columns(&["ms per database", "usable after, median ms", "usable after, last ms"])?;
    let [each, median, last] = [last / count as f64, median, last].map(|ms| format!("{ms:.0}"));
    report.row(&[&each, &median, &last])
}

pub fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}
