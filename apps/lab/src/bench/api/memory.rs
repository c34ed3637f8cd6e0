//! Memory, and how soon a process that starts can serve.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;
use xtask::services::Services;

use super::Lab;
use super::changes::Changes;
use crate::bench::report::Report;
use crate::bench::run::quantile;
use crate::bench::server::Server;
use crate::usage;

/// Connections that are kept open and ask for nothing.
const IDLE: usize = 1000;

pub async fn measure(services: &mut Services, lab: &Lab<'_>, report: &mut Report) -> Result<()> {
    let mut starts = Vec::new();
    let url = lab.database("of_memory").await?;
    let mut server = lab.server(services, "memory", url.clone()).await?;
    for round in 0..lab.args.rounds {
        server = lab.server(services, &format!("memory{round}"), url.clone()).await?;
        starts.push(server.start.as_secs_f64() * 1000.0);
    }
    starts.sort_by(f64::total_cmp);
    report.section("Memory and start", "Resident memory of the server's process, on an empty database.")?;
    report.columns(&["what", "figure"])?;
    report.row(&["start until `/readyz` is 200", &format!("{:.0} ms", quantile(&starts, 50))])?;
    let measured = async {
        sleep(Duration::from_secs(2)).await;
        report.row(&["idle", &resident(&server)?])?;
        let mut idle = Vec::with_capacity(IDLE);
        for _ in 0..IDLE {
            idle.push(connection(&server).await?);
        }
        report.row(&[&format!("{IDLE} connections that asked once and are kept open"), &resident(&server)?])?;
        let changes = Changes::prepare(&server, lab.folder).await?;
        lab.load().script(&server.url(""), &changes.script(0)?).await?;
        lab.load().run(&server.url("/v1/orgs/bench0/projects"), &[("Authorization", &server.authorization())]).await?;
        report.row(&["the same, after changes and lists as fast as they go", &resident(&server)?])?;
        drop(idle);
        Ok(())
    };
    services.during(measured).await
}

/// A connection that has been answered once.
async fn connection(server: &Server) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(server.public).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: bench\r\n\r\n").await?;
    let mut answer = [0; 512];
    stream.read(&mut answer).await.context("nothing was answered")?;
    Ok(stream)
}

/// What its process holds in memory.
fn resident(server: &Server) -> Result<String> {
    Ok(format!("{:.1} MB", usage::memory(server.process)?.0))
}
