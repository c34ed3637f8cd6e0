//! The time from the request that enables a database until it can be used.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::future::try_join_all;

use super::{Database, ProjectCluster};
use crate::bench::platform::Platform;
use crate::bench::run::percentile;

/// The interval of the attempts to log in while many databases are enabled. It is long, because each attempt starts a
/// process of Postgres.
const LOGIN_INTERVAL: Duration = Duration::from_secs(1);

/// Enables databases one after the other, alternating with `createdb`, and prints a row for each.
pub async fn compare(platform: &Platform, cluster: &ProjectCluster, count: usize) -> Result<()> {
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
    println!("\n{count} databases, one after the other\n");
    println!("| | median ms | p99 ms |\n|---|---|---|");
    for (name, mut latencies) in
        [("createdb", created), ("enable, until the response", answered), ("enable, until the first login", usable)]
    {
        latencies.sort_by(f64::total_cmp);
        println!("| {name} | {:.0} | {:.0} |", percentile(&latencies, 50), percentile(&latencies, 99));
    }
    Ok(())
}

/// Enables databases at the same time, and prints a row. Each must be usable.
pub async fn enable_together(platform: &Platform, count: usize) -> Result<()> {
    let names: Vec<String> = (0..count).map(|number| format!("together{number}")).collect();
    super::idle::create_projects(platform, &names).await?;
    let start = Instant::now();
    let enabled = names.iter().map(async |name| {
        let database = Database::enable(platform, name).await?;
        let client = database.wait_with(LOGIN_INTERVAL).await?;
        client.batch_execute("CREATE TABLE usable (id int); INSERT INTO usable VALUES (1)").await?;
        anyhow::Ok(milliseconds(start))
    });
    let mut latencies = try_join_all(enabled).await?;
    latencies.sort_by(f64::total_cmp);
    let [median, last] = [50, 100].map(|percent| percentile(&latencies, percent));
    println!("\n{count} databases, enabled at the same time\n");
    println!("| ms per database | usable after, median ms | usable after, last ms | failures |\n|---|---|---|---|");
    println!("| {:.0} | {median:.0} | {last:.0} | 0 |", last / count as f64);
    Ok(())
}

pub fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}
