//! `dev`: runs the whole product on one machine.
//!
//! All programs end with `dev`, even if it is killed. A Postgres cluster that a killed `dev` left running is adopted by
//! the next start.

mod dev_settings;
mod knot;
mod pebble;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use convergence::NodeKind;
use kernel::Secret;
use store::migrations::{self, Migrator};
use xtask::postgres::Cluster;
use xtask::process::Signals;
use xtask::services::Services;
use xtask::workspace::{self, print_step};
use xtask::{credential, probe, workerd};

use crate::setting::read_setting;
use dev_settings::{DevSettings, Program};
use knot::Knot;
use pebble::Pebble;

#[derive(clap::Args)]
pub struct Args {
    /// Start with an empty database and no uploads
    #[arg(long)]
    reset: bool,
    /// Build with optimizations
    #[arg(long)]
    release: bool,
    /// Also start Knot DNS, which serves and signs the zones
    #[arg(long)]
    dns: bool,
    /// Serve projects over https too, with certificates of Pebble, a test authority. Includes --dns, because the
    /// authority looks up records in hosted zones
    #[arg(long)]
    tls: bool,
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
    let result = run_services(&mut services, &folder, &args).await;
    services.stop().await;
    result.map(|()| ExitCode::SUCCESS)
}

/// Starts all services in order, then waits for a signal or a failure.
async fn run_services(services: &mut Services, folder: &Path, args: &Args) -> Result<()> {
    let release = args.release;
    let mut settings = DevSettings::read(folder)?;
    let knot = if args.dns || args.tls { Some(Knot::prepare(&mut settings, folder)?) } else { None };
    let pebble = if args.tls { Some(Pebble::prepare(&mut settings, folder)?) } else { None };
    settings.check_ports(pebble.iter().flat_map(Pebble::listeners).collect()).await?;
    let database_url = database(services, &mut settings)?;
    project_databases(services, &mut settings, folder)?;
    build(services, release).await?;
    migrate(database_url.clone()).await?;
    register_apps(&database_url, &mut settings).await?;
    add_nodes(&mut settings, folder, &database_url).await?;
    if read_setting::<String>("SVC_NODE_WORKERD")?.is_none()
        && let Some(workerd) = workerd::find()
    {
        settings.set("SVC_NODE_WORKERD", workerd.display());
    }
    let programs = workspace::program_folder(release)?;

    let start = Instant::now();
    services.start("sandbox", &programs.join("svc-sandbox"), folder, |it| settings.apply_to(Program::Sandbox, it))?;
    services.supervise(probe::wait_until_ok(settings.sandbox.http, "/")).await?;
    print_step("Sandbox", "ready", start);

    if let Some(pebble) = &pebble {
        let start = Instant::now();
        pebble.start(services, folder)?;
        services.supervise(pebble.save_root()).await?;
        print_step("Pebble", "ready", start);
    }
    let start = Instant::now();
    services.start("server", &programs.join("svc-server"), folder, |it| settings.apply_to(Program::Server, it))?;
    services.supervise(probe::wait_until_ok(settings.api, "/readyz")).await?;
    print_step("Server", "ready", start);

    if let Some(knot) = &knot {
        knot.start(services, folder)?;
    }
    let start = Instant::now();
    services.start("node", &programs.join("svc-node"), folder, |it| settings.apply_to(Program::Node, it))?;
    services.supervise(probe::wait_until_ok(settings.edge, "/__svc/node/health")).await?;
    print_step("Node", "ready", start);

    let start = Instant::now();
    if has_git() {
        services.start("git", &programs.join("svc-git"), folder, |it| settings.apply_to(Program::GitNode, it))?;
        let [http, _, internal] = settings.git;
        services.supervise(probe::wait_until_ok(internal, "/metrics")).await?;
        print_step("Git", format_args!("ready at {http}"), start);
    } else {
        println!("  git       not found in PATH: repositories can be created, but not cloned and pushed");
    }

    let start = Instant::now();
    services.start("mail", &programs.join("svc-mail"), folder, |it| settings.apply_to(Program::MailNode, it))?;
    let [smtp, internal] = settings.mail;
    services.supervise(probe::wait_until_ok(internal, "/healthz")).await?;
    print_step("Mail", format_args!("ready at {smtp}"), start);

    let svc = programs.join("svc");
    let zones = knot.map(|_| Knot::usage()).unwrap_or_default();
    let tls = pebble.map(|pebble| pebble.usage(&settings.default_hostname())).unwrap_or_default();
    println!(
        "\n{zones}{tls}{settings} Next, in another terminal (--dev ada signs in without a browser):\n\n    {} login --api {}\n",
        svc.display(),
        settings.api_url()
    );
    services.supervise(std::future::pending()).await
}

/// Returns whether `git` is in `PATH`.
fn has_git() -> bool {
    std::process::Command::new("git").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Returns the configured database URL, or starts the checkout's own Postgres cluster and returns its URL.
fn database(services: &mut Services, settings: &mut DevSettings) -> Result<Secret> {
    if let Some(url) = &settings.database_url {
        return Ok(Secret::new(url.reveal().to_owned()));
    }
    let start = Instant::now();
    let cluster = Cluster::dev()?;
    print_step("Postgres", if cluster.is_adopted() { "already running" } else { "ready" }, start);
    let url = cluster.url("postgres");
    services.postgres = Some(cluster);
    settings.set("SVC_DATABASE_URL", &url);
    Ok(Secret::new(url))
}

/// Starts the checkout's Postgres cluster for the databases of projects. Prints the consequence if its client programs
/// are unavailable.
fn project_databases(services: &mut Services, settings: &mut DevSettings, folder: &Path) -> Result<()> {
    let Some(listen) = settings.project_databases else { return Ok(()) };
    let start = Instant::now();
    let cluster = Cluster::dev_projects(listen)?;
    let bin = match (read_setting::<PathBuf>("SVC_NODE_PG_BIN")?, cluster.bin_with_clients(&[])) {
        (Some(configured), _) | (None, Ok(configured)) => configured,
        (None, Err(error)) => {
            settings.project_databases = None;
            println!(
                "  pg_dump   not available ({error:#}): projects have no databases. Install pip, or set SVC_NODE_PG_BIN"
            );
            return Ok(());
        }
    };
    print_step("Databases", if cluster.is_adopted() { "already running" } else { "ready" }, start);
    settings.set_project_databases(&cluster.url("postgres"), &bin, folder)?;
    services.projects_postgres = Some(cluster);
    Ok(())
}

async fn build(services: &mut Services, release: bool) -> Result<()> {
    let start = Instant::now();
    let mut cargo = workspace::cargo(workspace::BUILD_DEV)?;
    if release {
        cargo.arg("--release");
    }
    ensure!(services.signals.run(cargo).await?.success(), "failed to build the programs");
    print_step("Programs", "built", start);
    Ok(())
}

/// Registers the connected app of the sandbox and `svc login --device`, unless they are registered or configured.
async fn register_apps(database_url: &Secret, settings: &mut DevSettings) -> Result<()> {
    if !settings.has_connected_apps {
        return Ok(());
    }
    let redirect_uri = format!("{}/app/callback", settings.sandbox.url());
    for (setting, name, redirect_uris) in
        [("SVC_SANDBOX_APP_CLIENT_ID", "Demo app", vec![redirect_uri]), ("SVC_OAUTH_CLI_CLIENT_ID", "svc", Vec::new())]
    {
        if read_setting::<String>(setting)?.is_none() {
            let client = credential::ensure_app(database_url.clone(), name, redirect_uris).await?;
            settings.set(setting, client);
        }
    }
    Ok(())
}

/// Creates the nodes and their credentials, unless they exist or are configured.
async fn add_nodes(settings: &mut DevSettings, folder: &Path, database_url: &Secret) -> Result<()> {
    let (node, git, mail) = (&settings.node_token, &settings.git_token, &settings.mail_token);
    for (kind, is_configured, file, setting) in [
        (NodeKind::App, node.is_some(), "node.token", "SVC_NODE_TOKEN_FILE"),
        (NodeKind::Git, git.is_some(), "git.token", "SVC_GIT_TOKEN_FILE"),
        (NodeKind::Mail, mail.is_some(), "mail.token", "SVC_MX_TOKEN_FILE"),
    ] {
        if !is_configured {
            let token = folder.join(file);
            credential::ensure_node(database_url.clone(), &token, kind).await?;
            settings.set(setting, token.display());
        }
    }
    Ok(())
}

async fn migrate(url: Secret) -> Result<()> {
    let start = Instant::now();
    let applied = Migrator::default().up(&mut migrations::connect(url).await?).await?;
    print_step("Schema", format_args!("up to date, {} migrations applied", applied.len()), start);
    Ok(())
}
