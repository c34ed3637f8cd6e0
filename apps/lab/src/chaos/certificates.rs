//! `kill -9` of the server and of the node while hostnames get and renew certificates.
//!
//! Pebble validates default hostnames by HTTP-01 at the node, and hostnames in a hosted zone by DNS-01. Renewals are made
//! due in the database, where also the leases of killed runs and the limits end. After the last kill, every hostname must
//! be served over TLS.

mod authority;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, ensure};
use reqwest::Method;
use sandbox::RecordType;
use serde_json::{Value, json};
use testkit::reserved_address;
use tokio::time::sleep;
use tokio_postgres::{Client, NoTls};
use xtask::postgres::Cluster;
use xtask::services::Services;

use super::Outcome;
use super::report::Finding;
use crate::bench::machine::with_services;
use crate::bench::platform::{Platform, Settings};
use crate::bench::server::{SEALING_KEY, string_at, success_json};
use crate::random;
use authority::{Authority, ZONE};

/// The projects, each with a default hostname, and the hostnames in the hosted zone.
const PROJECTS: usize = 6;
const HOSTED: usize = 4;
/// The kills of a run with the default number of repetitions. Every third one is that of the node.
const KILLS: usize = 90;
/// A process is killed within this time, in milliseconds.
const MAX_DELAY: u64 = 2500;
/// The longest time after the last kill until every hostname has its certificate. The order after the first failed one
/// begins within 144 seconds, and the one after the second within 288.
const MAX_COMPLETION: Duration = Duration::from_secs(600);
/// The longest time until the node serves a certificate.
const MAX_DELIVERY: Duration = Duration::from_secs(60);

/// Ends the leases of the killed runs, the delays and the limits, and makes three renewals due.
const LAPSE: &str = "\
    UPDATE certificates.names SET due_at = now() WHERE due_at > now() AND (state <> 'active' OR last_error IS NOT NULL \
        OR renew_at <= now() OR EXISTS (SELECT FROM certificates.orders o WHERE o.name = names.name)); \
    UPDATE certificates.names SET renew_at = now(), due_at = now() WHERE name IN ( \
        SELECT name FROM certificates.names WHERE state = 'active' ORDER BY random() LIMIT 3); \
    DELETE FROM certificates.pauses; \
    DELETE FROM store.rate_limits WHERE key LIKE 'certificate-%'";

/// Selects the names that the server must still run.
const INCOMPLETE: &str = "\
    SELECT n.name, n.state, n.last_error FROM certificates.names n WHERE n.wanted AND (n.state <> 'active' \
        OR n.renew_at <= now() OR EXISTS (SELECT FROM certificates.orders o WHERE o.name = n.name))";

/// Selects the names with an order or without a certificate that no run continues. A lease ends after two minutes.
const STUCK: &str = "\
    SELECT n.name, n.state, n.due_at FROM certificates.names n WHERE n.wanted AND n.due_at > now() + interval '3 minutes' \
        AND n.failures = 0 AND n.last_error IS NULL \
        AND (n.state <> 'active' OR EXISTS (SELECT FROM certificates.orders o WHERE o.name = n.name))";

/// Selects the failures of orders after a time.
const FAILED: &str = "\
    SELECT data ->> 'name' AS name, data ->> 'error' AS error FROM store.audit \
    WHERE event = 'certificate.fail' AND created_at > $1 ORDER BY created_at";

pub async fn run(rounds: usize) -> Result<Outcome> {
    with_services(async |services, folder| match Authority::prepare(folder).await {
        Ok(authority) => measure(services, folder, authority, (KILLS * rounds).div_ceil(3)).await,
        Err(error) => {
            let skipped = vec![format!("certificates (no pebble: {error:#})")];
            Ok(Outcome { skipped, ..Outcome::default() })
        }
    })
    .await
}

async fn measure(services: &mut Services, folder: &Path, mut authority: Authority, kills: usize) -> Result<Outcome> {
    let (cluster, tls) = (Cluster::bench()?, reserved_address());
    let url = cluster.url("postgres");
    let settings = Settings { server: authority.settings()?, node: vec![("SVC_EDGE_TLS_LISTEN", tls.to_string())] };
    let platform = Platform::start_on(services, folder, cluster, settings).await?;
    authority.start(platform.edge.port(), url.clone()).await?;
    let hostnames = create_hostnames(&platform, &authority).await?;
    let (database, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    let mut outcome = Outcome::default();
    for number in 0..kills {
        sleep(random::millis(0..MAX_DELAY)).await;
        if number % 3 == 2 {
            platform.node.kill_and_restart(services).await?;
        } else {
            kill_server(&platform, services, &database, &url, &mut outcome).await?;
        }
    }
    kill_server(&platform, services, &database, &url, &mut outcome).await?;
    let last_kill: SystemTime = database.query_one("SELECT now()", &[]).await?.try_get(0)?;
    let completed_in = wait_until_complete(&url).await?;
    let failed_afterwards = database.query(FAILED, &[&last_kill]).await?;
    for row in &failed_afterwards {
        let (name, error): (&str, &str) = (row.try_get("name")?, row.try_get("error")?);
        println!("failed after the last kill: {name}: {error}");
    }
    let served = serve_all(&authority, &hostnames, tls).await?;
    outcome.violations.extend(violations(&url).await?);
    outcome.violations.extend(served);
    let ended = async |event: &str| -> Result<i64> {
        let count = "SELECT count(*) FROM store.audit WHERE event = $1";
        Ok(database.query_one(count, &[&event]).await?.try_get(0)?)
    };
    let (issued, failed) = (ended("certificate.issue").await?, ended("certificate.fail").await?);
    ensure!(issued > i64::try_from(hostnames.len())?, "no certificate was renewed");
    outcome.findings.push(Finding::new(
        "kill -9 of server and node while hostnames get and renew certificates",
        "every hostname is served over TLS afterwards; no order without a next run, no record of a challenge without an \
         order",
        outcome.violations.is_empty(),
        format!(
            "{kills} kills, {} hostnames: {issued} certificates issued, {failed} orders failed and repeated, {} of them after \
             the last kill; {} violations; all complete {:.1} s after the last kill",
            hostnames.len(),
            failed_afterwards.len(),
            outcome.violations.len(),
            completed_in.as_secs_f64(),
        ),
    ));
    Ok(outcome)
}

/// Deploys the projects, and adds the hostnames in the hosted zone to the first one. Returns all hostnames.
async fn create_hostnames(platform: &Platform, authority: &Authority) -> Result<Vec<String>> {
    let zone = platform.server.request(Method::POST, "/v1/orgs/ada/dns/zones").json(&json!({ "name": ZONE }));
    platform.server.expect_success(zone).await?;
    let mut hostnames = Vec::new();
    for number in 0..PROJECTS {
        let project = platform.create_project(&format!("site-{number}")).await?;
        authority.dns.set(&project.hostname, RecordType::A, &["127.0.0.1"]);
        project.deploy(&[("assets/index.html", b"page")]).await?;
        hostnames.push(project.hostname);
    }
    for number in 0..HOSTED {
        let hostname = format!("host-{number}.{ZONE}");
        let path = "/v1/orgs/ada/projects/site-0/hostnames";
        let claim = platform.server.request(Method::POST, path).json(&json!({ "name": hostname }));
        let claimed = success_json(claim.send().await?).await?;
        let proof = format!("svc-verify={}", string_at(&claimed, "/verificationToken")?);
        authority.dns.set(&format!("_svc-verify.{hostname}"), RecordType::TXT, &[&proof]);
        authority.dns.set(&hostname, RecordType::A, &["127.0.0.1"]);
        let verify = platform.server.request(Method::POST, &format!("{path}/{hostname}/verify")).json(&json!({}));
        let verified = success_json(verify.send().await?).await?;
        ensure!(
            verified.get("state").and_then(Value::as_str) == Some("active"),
            "{hostname} is not active: {verified}"
        );
        hostnames.push(hostname);
    }
    Ok(hostnames)
}

/// Kills the server, checks what it left behind, and starts it again.
async fn kill_server(
    platform: &Platform,
    services: &mut Services,
    database: &Client,
    url: &str,
    outcome: &mut Outcome,
) -> Result<()> {
    platform.server.program.kill(services).await?;
    outcome.violations.extend(violations(url).await?);
    database.batch_execute(LAPSE).await?;
    platform.server.program.restart(services).await.map(drop)
}

async fn violations(url: &str) -> Result<Vec<String>> {
    let mut violations = chaos::violations(url, &[SEALING_KEY]).await?;
    let stuck = chaos::rows(url, STUCK).await?;
    violations.extend(stuck.iter().map(|row| format!("no run continues a name: {row}")));
    Ok(violations)
}

/// Waits until every name has a certificate and no order is in progress.
async fn wait_until_complete(url: &str) -> Result<Duration> {
    let start = Instant::now();
    loop {
        let incomplete = chaos::rows(url, INCOMPLETE).await?;
        if incomplete.is_empty() {
            return Ok(start.elapsed());
        }
        ensure!(start.elapsed() < MAX_COMPLETION, "names are not complete: {incomplete:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Requests each hostname over TLS at the node. Returns the failures.
async fn serve_all(authority: &Authority, hostnames: &[String], tls: SocketAddr) -> Result<Vec<String>> {
    let client = authority.client(hostnames, tls).await?;
    let (start, mut failures) = (Instant::now(), Vec::new());
    for hostname in hostnames {
        let url = format!("https://{hostname}:{}/", tls.port());
        loop {
            let response = client.get(&url).send().await;
            let is_served = response.as_ref().is_ok_and(|response| response.status().is_success());
            if is_served {
                break;
            }
            if start.elapsed() > MAX_DELIVERY {
                failures.push(format!("{hostname} is not served over TLS: {response:?}"));
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(failures)
}
