//! `bench oauth`: refreshes and verifications of access tokens, and the memory of grants. A server and Postgres run on
//! this machine, from release builds.

mod memory;
mod refresh;
mod verify;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use kernel::Secret;
use reqwest::Client;
use store::Store;
use store::migrations::{self, Migrator};
use xtask::postgres::Cluster;
use xtask::services::Services;

use super::api::pgbench::PgBench;
use super::machine::with_release_build;
use super::report::{Report, version};
use super::server::{self, Server};
use super::wrk::{Load, Wrk};
use crate::connected_app::{ConnectedApp, SharedKey, start_session};

const TITLE: &str = "Authorization server";
const ABOUT: &str = "\
Written by `cargo xtask bench oauth`. The server uses a durable Postgres over a unix socket.";

#[derive(clap::Args, PartialEq)]
pub struct Args {
    /// The duration of each run; 0 skips refreshes and verifications
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// The number of runs per side, alternating
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Connections to Postgres, for the server and for pgbench
    #[arg(long, default_value_t = 8)]
    connections: u32,
    /// The number of grants of the memory measurement; 0 skips this part
    #[arg(long, default_value_t = 1000)]
    grants: usize,
}

/// The server under test and a registered app.
struct Rig {
    server: Server,
    store: Store,
    client: Client,
    base: String,
    app: ConnectedApp,
    /// The session of a user.
    session: String,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let wrk = Wrk::find()?;
    with_release_build(async |services, folder| measure(services, folder, &args, &wrk).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args, wrk: &Wrk) -> Result<()> {
    let cluster = Cluster::bench()?;
    let (url, bin) = (cluster.url("postgres"), cluster.bin().to_owned());
    services.postgres = Some(cluster);
    Migrator::default().up(&mut migrations::connect(Secret::new(url.clone())).await?).await?;
    let rig = Rig::start(services, folder, &url, args.connections).await?;
    let mut report = Report::new(TITLE, ABOUT, &[version(bin.join("postgres"), &["--version"])?])?;
    if args.seconds > 0 {
        let pgbench = PgBench::new(bin.join("pgbench"), &url, folder);
        services.supervise(refresh::compare(&mut report, &rig, &pgbench, &url, folder, args)).await?;
        let load = Load { wrk, seconds: args.seconds, connections: args.connections * 2 };
        services.supervise(verify::compare(&mut report, &rig, &load, args.rounds)).await?;
    }
    if args.grants > 0 {
        services.supervise(memory::measure(&mut report, &rig, args.grants)).await?;
    }
    report.finish(args)
}

impl Rig {
    async fn start(services: &mut Services, folder: &Path, url: &str, connections: u32) -> Result<Self> {
        let key = SharedKey::generate();
        let mut settings = key.settings().to_vec();
        settings.push(("SVC_DATABASE_CONNECTIONS", connections.to_string()));
        let server = Server::start(services, folder, url.to_owned(), &settings).await?;
        let (store, client, base) = (key.store(url)?, server::client()?, server.url(""));
        let app = ConnectedApp::register(&store, &client, &base).await?;
        let session = start_session(&client, &base, "grace").await?;
        Ok(Self { server, store, client, base, app, session })
    }
}
