//! `dev`: the whole product on one machine.
//!
//! Nothing is left running when it ends, however it ends: the server and the node go with it even when it is killed,
//! and a Postgres that was left alone is taken over by the next start.

mod node;
mod own;
mod probe;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use kernel::Secret;
use store::migrations::{self, Migrator};

use crate::postgres::Cluster;
use crate::process::{Service, Services, Signals};
use crate::workspace::{self, step};
use own::{Own, Program};

#[derive(clap::Args)]
pub struct Args {
    /// Start with an empty database and without anything that was uploaded
    #[arg(long)]
    reset: bool,
    /// Build with optimisations
    #[arg(long)]
    release: bool,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let folder = workspace::root()?.join(".svc/dev");
    fs::create_dir_all(&folder)?;
    let lock = workspace::try_lock(&folder.with_extension("lock"))?;
    ensure!(lock.is_some(), "another `cargo xtask dev` is running in this checkout");
    if args.reset {
        Cluster::remove_dev()?;
        fs::remove_dir_all(&folder)?;
        fs::create_dir(&folder)?;
    }
    let mut own = Own::read(&folder)?;
    own.check_ports().await?;
    // Stopped when it is dropped: after everything that uses it.
    let _cluster;
    let database_url = match own.database_url.take() {
        Some(given) => Secret::new(given.reveal().to_owned()),
        None => {
            let cluster = postgres()?;
            let url = cluster.url("postgres");
            _cluster = cluster;
            own.set("SVC_DATABASE_URL", &url);
            Secret::new(url)
        }
    };
    build(args.release, &mut signals).await?;
    migrate(database_url.clone()).await?;
    if own.node_token.is_none() {
        let token = folder.join("node.token");
        node::ensure_node(database_url, &token).await?;
        own.set("SVC_NODE_TOKEN_FILE", token.display());
    }
    let mut services = Services::default();
    let ran = serve(
        &mut services,
        &mut signals,
        &own,
        &folder,
        &workspace::binaries(args.release)?,
    )
    .await;
    services.stop(&mut signals).await;
    ran?;
    Ok(ExitCode::SUCCESS)
}

fn postgres() -> Result<Cluster> {
    let start = Instant::now();
    let cluster = Cluster::dev()?;
    step(
        "Postgres",
        if cluster.is_adopted() { "found running" } else { "ready" },
        start,
    );
    Ok(cluster)
}

async fn build(release: bool, signals: &mut Signals) -> Result<()> {
    let start = Instant::now();
    let mut cargo = workspace::cargo(&["build", "-p", "server", "-p", "node"])?;
    if release {
        cargo.arg("--release");
    }
    ensure!(signals.run(cargo).await?.success(), "the programs do not build");
    step("Programs", "built", start);
    Ok(())
}

async fn migrate(url: Secret) -> Result<()> {
    let start = Instant::now();
    let applied = Migrator::default().up(&mut migrations::connect(url).await?).await?;
    step(
        "Schema",
        format_args!("current, {} migrations applied", applied.len()),
        start,
    );
    Ok(())
}

/// Starts the programs, tells where they are, and waits until something ends it.
async fn serve(
    services: &mut Services,
    signals: &mut Signals,
    own: &Own,
    folder: &Path,
    programs: &Path,
) -> Result<()> {
    let start = Instant::now();
    let server = programs.join("svc-server");
    services.add(Service::start(
        "server",
        &server,
        |it| own.hand_to(Program::Server, it),
        folder.join("server.log"),
    )?);
    services.during(signals, probe::until_ok(own.api, "/readyz")).await?;
    step("Server", "ready", start);

    let start = Instant::now();
    let node = programs.join("svc-node");
    services.add(Service::start(
        "node",
        &node,
        |it| own.hand_to(Program::Node, it),
        folder.join("node.log"),
    )?);
    services
        .during(signals, probe::until_ok(own.edge, "/__svc/node/health"))
        .await?;
    step("Node", "ready", start);

    println!("\n{own}\n");
    services.during(signals, std::future::pending()).await
}
