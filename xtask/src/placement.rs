//! `placement`: suspends and resumes projects on their home nodes. Like `migrate`, it is also for operators.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow};
use clap::Subcommand;
use convergence::Placements;
use databases::ProjectRepository as _;
use kernel::ProjectId;
use kernel::audit::Actor;
use store::Store;

use crate::output::out;
use crate::setting::DatabaseArgs;

pub type Args = DatabaseArgs<Command>;

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
            let changed = placements.suspend(&Actor::operator("xtask placement suspend"), id).await?;
            out!("{}", if changed { "suspended" } else { "already suspended" })?;
        }
        Command::Resume { project } => {
            let id = find_project(&store, project).await?;
            let changed = placements.resume(&Actor::operator("xtask placement resume"), id).await?;
            out!("{}", if changed { "resumed" } else { "not suspended" })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn find_project(store: &Store, ProjectPath { org, name }: &ProjectPath) -> Result<ProjectId> {
    let found = store.connection().await?.project_by_name(org, name).await?;
    found.with_context(|| format!("the organization {org} has no project {name}"))
}
