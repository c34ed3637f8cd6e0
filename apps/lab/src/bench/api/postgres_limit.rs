//! Comparison with plain Postgres: `pgbench` sends the same statements as the server.

use anyhow::Result;
use futures_util::future::try_join_all;
use reqwest::Method;
use xtask::services::Services;

use super::changes::Changes;
use super::environment::{CONNECTIONS, Environment};
use super::pgbench::{PgBench, Script};
use super::recorder::Recorder;
use super::seed::{self, Size};
use crate::bench::report::Report;
use crate::bench::run::{Run, median};
use crate::bench::server::Server;

const READS: [(&str, &str); 2] =
    [("project get", "/v1/orgs/ada/projects/p0"), ("members list", "/v1/orgs/ada/members")];

/// The contents of the database. In tables of a few rows, Postgres would scan all rows instead of an index.
const SIZE: Size = Size { orgs: 100, first_org_projects: 1_000, other_projects: 9_000 };

/// The connections to Postgres, for the server and for pgbench.
const NUMBERS_OF_CONNECTIONS: [u32; 2] = [8, CONNECTIONS];

/// Adds two rows per kind of request and number of connections: pgbench and the control API.
pub async fn compare(services: &mut Services, lab: &Environment<'_>, report: &mut Report) -> Result<()> {
    let [few, default] = NUMBERS_OF_CONNECTIONS;
    report.paragraph(&format!(
        "**Plain Postgres.** `pgbench -M prepared` runs the statements that Postgres logged for one request, including the \
         transaction and the credential check. Both sides have {few} or {default} connections; {default} is the server's \
         default. The server keeps a quarter of them for background jobs, and one for the lookups of each thread. A change \
         adds or removes a hostname of a project and writes its audit row. pgbench measures both together, and the table shows \
         half of their latency. If slow changes are rare, the p99 of pgbench is too low. The database contains {} projects.",
        SIZE.first_org_projects + SIZE.other_projects
    ))?;
    report.comparison_columns(&[])?;
    for connections in NUMBERS_OF_CONNECTIONS {
        let name = format!("limit{connections}");
        let url = lab.database(&name).await?;
        let server = lab.server(services, &name, url.clone(), connections).await?;
        seed::fill(&lab.bin.join("psql"), &url, "ada", SIZE)?;
        services.supervise(compare_with(connections, &url, &server, lab, report)).await?;
        services.stop_program("server").await;
    }
    Ok(())
}

async fn compare_with(
    connections: u32,
    url: &str,
    server: &Server,
    lab: &Environment<'_>,
    report: &mut Report,
) -> Result<()> {
    let changes = Changes::prepare(server, lab.folder).await?;
    let recorder = Recorder { log: &lab.log, url };
    let pgbench = PgBench::prepare(lab, url).await?;
    for (what, path) in READS {
        let statements =
            recorder.record(async || server.expect_success(server.request(Method::GET, path)).await).await?;
        let script = Script::write(&lab.folder.join("read.sql"), &statements)?;
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..lab.args.rounds {
            runs[0].push(pgbench.run(&script, connections, lab.args.seconds).await?);
            let load = lab.load(connections);
            runs[1].push(load.run(&server.url(path), &[("Authorization", &server.authorization())]).await?);
        }
        report.comparison(&with(connections, what), &[("pgbench", &runs[0]), ("svc", &runs[1])])?;
    }
    let mut scripts = Vec::new();
    for client in 0..connections {
        let statements = recorder.record(async || changes.add_and_remove(client).await).await?;
        scripts.push(Script::write(&lab.folder.join(format!("change{client}.sql")), &statements)?);
    }
    let mut runs = [Vec::new(), Vec::new()];
    for round in 0..lab.args.rounds {
        let clients = scripts.iter().map(|script| pgbench.run(script, 1, lab.args.seconds));
        runs[0].push(per_change(&try_join_all(clients).await?));
        runs[1].push(lab.load(connections).script(&server.url(""), &changes.script(round)?).await?);
    }
    let change = with(connections, "a change with its audit row");
    report.comparison(&change, &[("pgbench", &runs[0]), ("svc", &runs[1])])
}

fn with(connections: u32, operation: &str) -> String {
    format!("{operation}, {connections} connections")
}

/// Combines concurrent single-client runs. Each of their transactions consists of two changes, so that the p99 of one is
/// not known exactly.
fn per_change(runs: &[Run]) -> Run {
    let Run { p50, p99, errors, .. } = median(runs);
    Run { rate: runs.iter().map(|run| run.rate * 2.0).sum(), p50: p50 / 2.0, p99: p99 / 2.0, errors }
}
