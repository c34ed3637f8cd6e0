//! Memory and startup time.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;
use xtask::services::Services;

use super::changes::Changes;
use super::environment::{CONNECTIONS, Environment};
use crate::bench::report::Report;
use crate::bench::run::percentiles;
use crate::bench::server::Server;
use crate::usage;

/// The number of idle connections.
const IDLE_CONNECTIONS: usize = 1000;

pub async fn measure(services: &mut Services, lab: &Environment<'_>, report: &mut Report) -> Result<()> {
    let mut starts = Vec::new();
    let url = lab.database("of_memory").await?;
    let mut server = lab.server(services, "memory", url.clone(), CONNECTIONS).await?;
    for round in 0..lab.args.rounds {
        server = lab.server(services, &format!("memory{round}"), url.clone(), CONNECTIONS).await?;
        starts.push(server.startup_time.as_secs_f64() * 1000.0);
    }
    let [start] = percentiles(starts, [50]);
    report.paragraph("**Memory and startup time.** Resident memory of the server process, on an empty database.")?;
    report.columns(&["measurement", "value"])?;
    report.row(&["time from start until `/readyz` returns 200", &format!("{start:.0} ms")])?;
    let measured = async {
        sleep(Duration::from_secs(2)).await;
        report.row(&["idle", &resident_memory(&server)?])?;
        let mut idle = Vec::with_capacity(IDLE_CONNECTIONS);
        for _ in 0..IDLE_CONNECTIONS {
            idle.push(open_idle_connection(&server).await?);
        }
        report.row(&[
            &format!("{IDLE_CONNECTIONS} idle connections, after one request each"),
            &resident_memory(&server)?,
        ])?;
        let changes = Changes::prepare(&server, lab.folder).await?;
        lab.load(CONNECTIONS).script(&server.url(""), &changes.script(0)?).await?;
        lab.load(CONNECTIONS)
            .run(&server.url("/v1/orgs/bench0/projects"), &[("Authorization", &server.authorization())])
            .await?;
        report.row(&["the same, after changes and lists at full load", &resident_memory(&server)?])?;
        drop(idle);
        Ok(())
    };
    services.supervise(measured).await
}

/// Opens a connection, sends one request on it and keeps it open.
async fn open_idle_connection(server: &Server) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(server.public).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: bench\r\n\r\n").await?;
    let mut response = [0; 512];
    stream.read(&mut response).await.context("failed to read the response")?;
    Ok(stream)
}

/// Returns the resident memory of the server process.
fn resident_memory(server: &Server) -> Result<String> {
    Ok(format!("{:.1} MB", usage::memory(server.program.pid())?.0))
}
