//! `placement`: suspends, resumes and lists projects on their home nodes. Like `migrate`, it is also for operators.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow};
use clap::Subcommand;
use convergence::{Nodes, Placements};
use databases::{ProjectRepository as _, SuspendedProject};
use kernel::ProjectId;
use kernel::audit::Actor;
use store::Store;

use crate::output::out;
use crate::setting::DatabaseArgs;
use crate::table;

pub type Args = DatabaseArgs<Command>;

/// The maximum number of listed projects.
const MAX_LISTED: i64 = 1000;

#[derive(Subcommand)]
pub enum Command {
    /// Suspend the database and the mail of a project: its home node refuses all logins and keeps the data
    Suspend {
        /// The organization's slug and the project's name
        #[arg(value_name = "ORG/PROJECT")]
        project: ProjectPath,
    },
    /// Resume a suspended project
    Resume {
        /// The organization's slug and the project's name
        #[arg(value_name = "ORG/PROJECT")]
        project: ProjectPath,
    },
    /// List the suspended projects by their current names: path, id, home node
    List,
}

/// A project by the slug of its organization and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectPath {
    org: String,
    name: String,
}

impl FromStr for ProjectPath {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('/').filter(|(org, name)| !org.is_empty() && !name.is_empty());
        let (org, name) = parts.ok_or_else(|| anyhow!("must be <org>/<project>, such as acme/site"))?;
        Ok(Self { org: org.to_owned(), name: name.to_owned() })
    }
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let store = args.database.store().await?;
    let placements = Placements::new(store.clone());
    match &args.command {
        Command::Suspend { project } => {
            let id = find_project(&store, project).await?;
            let actor = Actor::operator("xtask placement suspend");
            let changed = placements.suspend(&actor, id, (&project.org, &project.name)).await?;
            out!("{}", if changed { "suspended" } else { "already suspended" })?;
        }
        Command::Resume { project } => {
            let id = find_project(&store, project).await?;
            let actor = Actor::operator("xtask placement resume");
            let changed = placements.resume(&actor, id, (&project.org, &project.name)).await?;
            out!("{}", if changed { "resumed" } else { "not suspended" })?;
        }
        Command::List => list(&store).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(store: &Store) -> Result<()> {
    let suspended = store.connection().await?.project_list_suspended(MAX_LISTED).await?;
    let nodes = Nodes::new(store.clone()).list().await?;
    let rows = suspended.iter().map(|SuspendedProject { id, org, name, home }| {
        let home = nodes.iter().find(|view| Some(view.node.id) == *home);
        let home = home.map_or_else(|| "-".to_owned(), |view| view.node.name.to_string());
        [format!("{org}/{name}"), id.to_string(), home]
    });
    table::print(["project", "id", "node"], rows, MAX_LISTED)?;
    Ok(())
}

async fn find_project(store: &Store, ProjectPath { org, name }: &ProjectPath) -> Result<ProjectId> {
    let found = store.connection().await?.project_by_name(org, name).await?;
    found.with_context(|| format!("the organization {org} has no project {name}"))
}
