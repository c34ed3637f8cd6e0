//! `dev`: the whole product on one machine.
//!
//! Nothing is left running when it ends, however it ends: the programs end with it even when it is killed,
//! and a Postgres that was left alone is taken over by the next start.

mod knot;
mod own;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use kernel::Secret;
use store::migrations::{self, Migrator};
use xtask::postgres::Cluster;
use xtask::process::Signals;
use xtask::services::Services;
use xtask::workspace::{self, step};
use xtask::{credential, probe};

use crate::setting::given;
use crate::workerd;
use knot::Knot;
use own::{Own, Program};

#[derive(clap::Args)]
pub struct Args {
    /// Start with an empty database and without anything that was uploaded
    #[arg(long)]
    reset: bool,
    /// Build with optimisations
    #[arg(long)]
    release: bool,
    /// Start Knot DNS beside it, which serves and signs the zones
    #[arg(long)]
    dns: bool,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let folder = workspace::root()?.join(".svc/dev");
    fs::create_dir_all(&folder)?;
    let lock = workspace::try_lock(&folder.with_extension("lock"))?;
    ensure!(lock.is_some(), "another `cargo xtask dev` is running in this checkout");
    if args.reset {
        Cluster::remove_dev()?;
        fs::remove_dir_all(&folder)?;
        fs::create_dir(&folder)?;
    }
    let mut services = Services::new(Signals::listen()?);
    let ended = bring_up(&mut services, &folder, &args).await;
    services.stop().await;
    ended.map(|()| ExitCode::SUCCESS)
}

/// Starts one thing after the other and waits until something ends it.
async fn bring_up(services: &mut Services, folder: &Path, args: &Args) -> Result<()> {
    let release = args.release;
    let mut own = Own::read(folder)?;
    let knot = if args.dns { Some(Knot::prepare(&mut own, folder)?) } else { None };
    own.check_ports().await?;
    let database_url = database(services, &mut own)?;
    build(services, release).await?;
    migrate(database_url.clone()).await?;
    if own.node_token.is_none() {
        let token = folder.join("node.token");
        credential::ensure_node(database_url, &token).await?;
        own.set("SVC_NODE_TOKEN_FILE", token.display());
    }
    if given::<String>("SVC_NODE_WORKERD")?.is_none()
        && let Some(workerd) = workerd::find()
    {
        own.set("SVC_NODE_WORKERD", workerd.display());
    }
    let programs = workspace::binaries(release)?;

    let start = Instant::now();
    services.start("sandbox", &programs.join("svc-sandbox"), folder, |it| own.hand_to(Program::Sandbox, it))?;
    services.during(probe::until_ok(own.sandbox.http, "/")).await?;
    step("Sandbox", "ready", start);

    let start = Instant::now();
    services.start("server", &programs.join("svc-server"), folder, |it| own.hand_to(Program::Server, it))?;
    services.during(probe::until_ok(own.api, "/readyz")).await?;
    step("Server", "ready", start);

    if let Some(knot) = &knot {
        knot.start(services, folder)?;
    }
    let start = Instant::now();
    services.start("node", &programs.join("svc-node"), folder, |it| own.hand_to(Program::Node, it))?;
    services.during(probe::until_ok(own.edge, "/__svc/node/health")).await?;
    step("Node", "ready", start);

    let svc = programs.join("svc");
    let zones = knot.map(|_| Knot::told()).unwrap_or_default();
    println!(
        "\n{zones}{own} Next, in another terminal (or with --dev ada, without a browser):\n\n    {} login --api {}\n",
        svc.display(),
        own.base()
    );
    services.during(std::future::pending()).await
}

/// The address of the database: the one that is given, or that of a Postgres of this checkout's own.
fn database(services: &mut Services, own: &mut Own) -> Result<Secret> {
    if let Some(given) = &own.database_url {
        return Ok(Secret::new(given.reveal().to_owned()));
    }
    let start = Instant::now();
    let cluster = Cluster::dev()?;
    step("Postgres", if cluster.is_adopted() { "found running" } else { "ready" }, start);
    let url = cluster.url("postgres");
    services.postgres = Some(cluster);
    own.set("SVC_DATABASE_URL", &url);
    Ok(Secret::new(url))
}

async fn build(services: &mut Services, release: bool) -> Result<()> {
    let start = Instant::now();
    let mut cargo = workspace::cargo(workspace::BUILD_DEV)?;
    if release {
        cargo.arg("--release");
    }
    ensure!(services.signals.run(cargo).await?.success(), "the programs do not build");
    step("Programs", "built", start);
    Ok(())
}

async fn migrate(url: Secret) -> Result<()> {
    let start = Instant::now();
    let applied = Migrator::default().up(&mut migrations::connect(url).await?).await?;
    step("Schema", format_args!("current, {} migrations applied", applied.len()), start);
    Ok(())
}
