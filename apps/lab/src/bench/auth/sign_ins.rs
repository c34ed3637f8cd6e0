//! Sign-ins with many sessions, and the limit of the table.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::sleep;
use tokio_postgres::{Client, Config, NoTls};

use super::browser::Browser;
use crate::bench::databases::ProjectCluster;
use crate::bench::platform::{Platform, Project};
use crate::bench::report::Report;
use crate::bench::run::Run;

/// The limit of the table with its indexes, in bytes.
const MAX_BYTES: i64 = 150_000_000;
/// The node checks the table after this number of sign-ins.
const SIGN_INS_BEFORE_CHECK: usize = 1000;
/// The longest wait for the removal of the oldest sessions.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Adds users with ten sessions each. Each session was used a second before the next.
const ADD: &str = r#"
    CREATE TEMP TABLE numbered AS
        SELECT number, gen_random_uuid() AS id FROM generate_series(1, $COUNT / 10) AS number;
    INSERT INTO svc_auth.users (id, provider)
        SELECT id, provider FROM numbered, (SELECT provider FROM svc_auth.sessions LIMIT 1) AS template;
    -- The check of a foreign key is planned with the statistics.
    ANALYZE svc_auth.users, numbered;
    INSERT INTO svc_auth.sessions (created_at, used_at, "grant", epoch, registration, user_id, state, token, provider)
    SELECT at, at, "grant", epoch, registration, numbered.id, gen_random_uuid(),
        sha256(gen_random_uuid()::text::bytea), provider
    FROM (SELECT * FROM svc_auth.sessions LIMIT 1) AS template, numbered, generate_series(0, 9) AS round,
        LATERAL (SELECT now() - (round * ($COUNT / 10) + number) * interval '1 second' AS at) AS times"#;

/// Adds a row for sign-ins without other sessions, with many, while the oldest are removed, and afterwards.
pub async fn measure(
    report: &mut Report,
    platform: &Platform,
    project: &Project<'_>,
    cluster: &ProjectCluster,
    (sessions, count): (i64, usize),
) -> Result<()> {
    let (browser, admin) = (Browser::new(platform, project)?, connect(cluster).await?);
    report.paragraph(&format!(
        "**Sign-ins.** {count} sign-ins for each row, one after the other: the time of the node for the return from \
         the provider. The size is that of the table of sessions with its indexes. Above {} MB, the node removes the \
         sessions that were not used for the longest time.",
        MAX_BYTES / 1_000_000
    ))?;
    report.columns(&["sessions", "p50 ms", "p99 ms", "size MB"])?;
    // The first sign-ins open connections.
    sign_in(&browser, count).await?;
    add(report, "few", &sign_in(&browser, count).await?, &admin).await?;
    admin.batch_execute(&ADD.replace("$COUNT", &sessions.to_string())).await?;
    admin.batch_execute("VACUUM (ANALYZE) svc_auth.sessions, svc_auth.users").await?;
    add(report, &sessions.to_string(), &sign_in(&browser, count).await?, &admin).await?;
    let newest = "SELECT count(*) FROM svc_auth.sessions WHERE used_at > now() - interval '1000 seconds'";
    let before: i64 = admin.query_one(newest, &[]).await?.try_get(0)?;
    let start = Instant::now();
    let mut runs = Vec::new();
    while size(&admin).await? > MAX_BYTES {
        ensure!(start.elapsed() < TIMEOUT, "the table exceeds its limit");
        runs.push(sign_in(&browser, SIGN_INS_BEFORE_CHECK / 4).await?);
        sleep(Duration::from_millis(100)).await;
    }
    if let Some(run) = runs.last() {
        add(report, "during the removal", run, &admin).await?;
    }
    let after: i64 = admin.query_one(newest, &[]).await?.try_get(0)?;
    ensure!(after + 100 >= before, "newer sessions were removed before older ones");
    let kept: i64 = admin.query_one("SELECT count(*) FROM svc_auth.sessions", &[]).await?.try_get(0)?;
    let kept = format!("{kept}, after {:.0} s", start.elapsed().as_secs_f64());
    add(report, &kept, &sign_in(&browser, count).await?, &admin).await
}

async fn add(report: &mut Report, sessions: &str, run: &Run, admin: &Client) -> Result<()> {
    let (megabytes, [_, p50, p99]) = (size(admin).await? / 1_000_000, run.cells());
    report.row(&[sessions, &p50, &p99, &megabytes.to_string()])
}

async fn sign_in(browser: &Browser<'_>, count: usize) -> Result<Run> {
    let (start, mut latencies) = (Instant::now(), Vec::new());
    for _ in 0..count {
        let (_, time) = browser.sign_in("ada").await?;
        latencies.push(time.as_secs_f64() * 1000.0);
    }
    Run::of(latencies, start.elapsed())
}

async fn size(admin: &Client) -> Result<i64> {
    Ok(admin.query_one("SELECT pg_total_relation_size('svc_auth.sessions')", &[]).await?.try_get(0)?)
}

/// Opens a session of the superuser in the only database of a project.
async fn connect(cluster: &ProjectCluster) -> Result<Client> {
    let open = async |database: Option<&str>| {
        let mut config: Config = cluster.url.parse()?;
        if let Some(database) = database {
            config.dbname(database);
        }
        let (client, connection) = config.connect(NoTls).await?;
        // The task ends with the client. The next query returns the task's error.
        tokio::spawn(connection);
        anyhow::Ok(client)
    };
    let find = "SELECT datname::text FROM pg_database WHERE datname ~ '^db_'";
    let name: String = open(None).await?.query_one(find, &[]).await?.try_get(0)?;
    open(Some(&name)).await
}
