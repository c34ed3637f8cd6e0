//! Beside Postgres alone: `pgbench` sends the statements that the server sends.

use anyhow::Result;
use futures_util::future::try_join_all;
use reqwest::Method;
use serde_json::json;
use xtask::services::Services;

use super::Lab;
use super::changes::Changes;
use super::pgbench::{PgBench, Script};
use super::recorded::Recorder;
use crate::bench::report::{BESIDE, Report};
use crate::bench::run::{Run, median};

const READS: [(&str, &str); 2] =
    [("project get", "/v1/orgs/ada/projects/p0"), ("members list", "/v1/orgs/ada/members")];

/// Prints a row for each kind of request, and one of pgbench's before it.
pub async fn compare(services: &mut Services, lab: &Lab<'_>, report: &mut Report) -> Result<()> {
    let url = lab.database("of_the_limit").await?;
    let server = lab.server(services, "limit", url.clone()).await?;
    let connections = lab.args.connections;
    report.section(
        "Beside Postgres alone",
        &format!(
            "`pgbench -M prepared` on {connections} connections runs the statements that Postgres logged of one such \
             request, the transaction and the look at the credential included; the server has {connections} connections, \
             too. A change adds a hostname to a project or removes it, with its audit row."
        ),
    )?;
    report.columns(BESIDE)?;
    let compared = async {
        server.done(server.request(Method::POST, "/v1/orgs/ada/projects").json(&json!({ "name": "p0" }))).await?;
        let changes = Changes::prepare(&server, lab.folder).await?;
        let recorder = Recorder { log: &lab.log, url: &url };
        let pgbench = PgBench::prepare(lab, &url).await?;
        for (what, path) in READS {
            let statements = recorder.record(async || server.done(server.request(Method::GET, path)).await).await?;
            let script = Script::write(&lab.folder.join("read.sql"), &statements)?;
            let mut runs = [Vec::new(), Vec::new()];
            for _ in 0..lab.args.rounds {
                runs[0].push(pgbench.run(&script, connections, lab.args.seconds).await?);
                runs[1].push(lab.load().run(&server.url(path), &[("Authorization", &server.authorization())]).await?);
            }
            report.beside(what, [("pgbench", &runs[0]), ("ours", &runs[1])])?;
        }
        let mut scripts = Vec::new();
        for client in 0..connections {
            let statements = recorder.record(async || changes.pair(client).await).await?;
            scripts.push(Script::write(&lab.folder.join(format!("change{client}.sql")), &statements)?);
        }
        let mut runs = [Vec::new(), Vec::new()];
        for round in 0..lab.args.rounds {
            let alone = scripts.iter().map(|script| pgbench.run(script, 1, lab.args.seconds));
            runs[0].push(of_pairs(&try_join_all(alone).await?));
            runs[1].push(lab.load().script(&server.url(""), &changes.script(round)?).await?);
        }
        report.beside("a change with its audit row", [("pgbench", &runs[0]), ("ours", &runs[1])])?;
        Ok(())
    };
    services.during(compared).await
}

/// What runs of one client each come to together, for each half of a pair.
fn of_pairs(runs: &[Run]) -> Run {
    let Run { p50, p99, errors, .. } = median(runs);
    Run { rate: runs.iter().map(|run| run.rate * 2.0).sum(), p50: p50 / 2.0, p99: p99 / 2.0, errors }
}
