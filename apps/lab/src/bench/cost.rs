//! `bench cost`: memory, disk and processor of one machine with many projects, for decision makers. All
//! programs of the platform and both Postgres clusters run on this machine, from release builds.

mod requirements;
mod resources;
mod visitors;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kernel::Secret;
use sandbox::{Encryption, SmtpServer};
use tokio::time::sleep;
use xtask::postgres::Cluster;
use xtask::services::Services;
use xtask::{workerd, workspace};

use super::databases::{self, ProjectCluster};
use super::edge;
use super::machine::{IS_RELEASE, with_release_build};
use super::platform::{Platform, Settings, run_concurrently};
use super::report::Report;
use crate::git_host::GitNode;
use crate::mail_host::MailHost;
use resources::{Processors, Resources};
use visitors::Visited;

const TITLE: &str = "The cost of 1,000 projects";
/// The requests per second to each project.
const RATE: usize = 10;

const WORKER: &[u8] = b"export default { fetch: () => new Response('a page') };";

#[derive(clap::Args, PartialEq)]
pub struct Args {
    /// The number of projects with a static site
    #[arg(long, default_value_t = 1000)]
    projects: usize,
    /// The number of additional projects with a running worker
    #[arg(long, default_value_t = 50)]
    workers: usize,
    /// The number of additional projects with a database
    #[arg(long, default_value_t = 50)]
    databases: usize,
    /// The duration of each measurement of the processor
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

/// The measurements of a state of the machine.
struct State {
    resources: Resources,
    /// The processor time without requests, in cores.
    idle: Processors,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    with_release_build(async |services, folder| measure(services, folder, &args).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args) -> Result<()> {
    let relay = SmtpServer::start(Encryption::None).await;
    let workerd = workerd::find().context("this benchmark needs workerd")?;
    let mut report = Report::new(TITLE, ABOUT, &[])?;
    let (platform, _git) = start(services, folder, &relay, &workerd).await?;
    let disks = [Some(folder.to_owned()), services.postgres.as_ref().map(|cluster| cluster.folder().to_owned())];
    let of_projects = services.projects_postgres.as_ref().map(|cluster| cluster.folder().to_owned());
    let folders: Vec<_> = disks.into_iter().chain([of_projects]).flatten().collect();
    let read = async || {
        platform.wait_until_idle().await?;
        let (resources, duration) = (Resources::read(&folders)?, Duration::from_secs(args.seconds));
        anyhow::Ok(State { resources, idle: Processors::measure(sleep(duration)).await?.0 })
    };
    let measured = async {
        let empty = read().await?;
        let hosts = edge::deploys::fill(&platform, args.projects).await?;
        let sites = read().await?;
        let visited = visitors::visit(platform.edge, &hosts, RATE, args.seconds).await?;
        report.paragraph(SUMMARY)?;
        report.columns(&["", "memory", "disk", "processor at idle", "requests/s", "processor at this rate"])?;
        empty.add_row(&mut report, "the platform without projects", None)?;
        sites.add_row(&mut report, &format!("with {} static sites", args.projects), Some(&visited))?;
        let hosts = start_workers(&platform, args.workers).await?;
        let workers = read().await?;
        let to_workers = visitors::visit(platform.edge, &hosts, RATE, args.seconds).await?;
        workers.add_row(&mut report, &format!("and {} running workers", args.workers), Some(&to_workers))?;
        databases::add_idle(&platform, args.databases).await?;
        let with_databases = read().await?;
        with_databases.add_row(&mut report, &format!("and {} databases", args.databases), None)?;
        report.paragraph(&visited.describe("static site"))?;
        report.paragraph(&to_workers.describe("worker"))?;
        report.paragraph(&format!(
            "A static site adds {}, a running worker {}, and a database {}. A worker stops after 15 minutes without a \
             request, and then needs no memory. The programs of the platform and workerd have {} MB on the disk.",
            sites.resources.since(&empty.resources, args.projects),
            workers.resources.since(&sites.resources, args.workers),
            with_databases.resources.since(&workers.resources, args.databases),
            programs_megabytes(&workerd)?,
        ))?;
        requirements::compare(&mut report, args.projects, &sites)?;
        report.paragraph("**Memory by program,** with all of the above, without requests.")?;
        report.columns(&["program", "processes", "MB"])?;
        for (program, processes, memory) in with_databases.resources.programs() {
            report.row(&[program, &processes.to_string(), &format!("{memory:.0}")])?;
        }
        Ok(())
    };
    services.supervise(measured).await?;
    report.finish(args)
}

const ABOUT: &str = "\
`cargo xtask bench cost`: server, node, git node, mail node, Postgres for the control plane and Postgres for \
the databases of projects run on one machine. The load generator shares this machine.";

const SUMMARY: &str = "\
Memory is the proportional set size of all processes of the platform, with both Postgres clusters, and without the \
operating system and its page cache. Disk is the space of all data, with the write-ahead logs. A processor of 1.00 is \
one core. The requests are those with a successful response, to all sites or to all workers. Each site has eleven \
files with 76 KB.";

/// Starts all programs of the platform.
async fn start(
    services: &mut Services,
    folder: &Path,
    relay: &SmtpServer,
    workerd: &Path,
) -> Result<(Platform, GitNode)> {
    let (databases, cluster) = (ProjectCluster::start(services, folder)?, Cluster::bench()?);
    let mut settings = Settings { node: databases.settings(), ..Settings::default() };
    settings.node.push(("SVC_NODE_WORKERD", workerd.display().to_string()));
    let host = MailHost::start_on(services, folder, cluster, &format!("smtp://{}", relay.address()), settings).await?;
    let (core, database) = (host.platform.server.internal, Secret::new(host.database));
    let git = GitNode::start(services, folder, core, database).await?;
    Ok((host.platform, git))
}

/// Creates projects with a worker, and starts the workers. Returns their hostnames.
async fn start_workers(platform: &Platform, count: usize) -> Result<Vec<String>> {
    run_concurrently(0..count, async |number| {
        let project = platform.create_project(&format!("worker{number}")).await?;
        project.deploy(&[("worker/index.js", WORKER)]).await?;
        project.wait_until_served("/").await?;
        anyhow::Ok(project.hostname)
    })
    .await
}

/// Returns the size of the programs.
fn programs_megabytes(workerd: &Path) -> Result<u64> {
    let folder = workspace::program_folder(IS_RELEASE)?;
    let programs = ["svc-server", "svc-node", "svc-git", "svc-mail"].map(|name| folder.join(name));
    let mut bytes = std::fs::metadata(workerd)?.len();
    for program in programs {
        bytes += std::fs::metadata(program)?.len();
    }
    Ok(bytes / 1_000_000)
}

impl State {
    fn memory(&self) -> String {
        format!("{:.0} MB", self.resources.memory())
    }

    fn disk(&self) -> String {
        format!("{:.0} MB", self.resources.disk)
    }

    fn cores(&self) -> String {
        format!("{:.2}", self.idle.platform)
    }

    /// Adds the row of this state, with the visitors of its projects.
    fn add_row(&self, report: &mut Report, name: &str, visited: Option<&Visited>) -> Result<()> {
        let (rate, cores) = visited.map(|visited| (visited.rate(), visited.cores())).unwrap_or_default();
        report.row(&[name, &self.memory(), &self.disk(), &self.cores(), &rate, &cores])
    }
}
