//! `svc projects`: the projects of an organization.

use client::types::{NewProject, ProjectChange, ProjectDeletion, ProjectDetail, ProjectOverview, ResourceState};

use super::db::backup_summary;
use super::deployments::live_summary;
use super::{notifications, open};
use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::{fields, or_dash, table};
use crate::prompt;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Projects {
    /// List the projects of an organization
    List(PageArgs),
    /// Create a project
    Create { name: String },
    /// Show a project
    Show { name: Option<String> },
    /// Show the resources of a project, and its latest deployments, backup and notifications
    Overview { name: Option<String> },
    /// Rename a project, which also changes its default hostname
    Rename { name: String, to: String },
    /// Delete a project and all of its data
    Delete {
        name: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

impl Projects {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let client = svc.client()?;
        match self {
            Self::List(page) => {
                let page = client.projects_list(&svc.org()?, &page.paging()).send().await?;
                svc.out.page(&page, ["NAME", "HOSTNAME", "CREATED"], |it| {
                    [it.name.clone(), it.hostname.clone(), it.created_at.clone()]
                })
            }
            Self::Create { name } => {
                let project = client.projects_create(&svc.org()?, &NewProject { name }).send().await?;
                svc.out.response(&project, |project| project.name.clone())?;
                svc.out.success(format!("created the project {}/{}", project.org, project.name));
                Ok(())
            }
            Self::Show { name } => {
                let (org, name) = named(svc, name)?;
                let project = client.projects_get(&org, &name).send().await?;
                let address = open::address(&client, &project.hostname).await?;
                svc.out.response(&project, |project| show(project, &address))
            }
            Self::Overview { name } => {
                let (org, name) = named(svc, name)?;
                svc.out.response(&client.projects_overview(&org, &name).send().await?, show_overview)
            }
            Self::Rename { name, to } => {
                let project = client.projects_rename(&svc.org()?, &name, &ProjectChange { name: to }).send().await?;
                svc.out.response(&project, |project| project.name.clone())?;
                svc.out.success(format!(
                    "renamed the project to {}/{}, served at {}",
                    project.org, project.name, project.hostname
                ));
                Ok(())
            }
            Self::Delete { name, yes } => {
                let org = svc.org()?;
                prompt::require_yes(yes, &format!("Delete {org}/{name} and all of its data?"), "deleted")?;
                let deleted =
                    client.projects_delete(&org, &name, &ProjectDeletion { confirm: name.clone() }).send().await?;
                svc.out.empty_response(&deleted, format!("deleted {org}/{name}"))
            }
        }
    }
}

/// Returns the organization, and this project or the selected one.
fn named(svc: &Svc<'_>, name: Option<String>) -> Result<(String, String), CliError> {
    match name {
        Some(name) => Ok((svc.org()?, name)),
        None => svc.project(),
    }
}

fn show(project: &ProjectDetail, address: &str) -> String {
    let names: Vec<&str> = project.hostnames.iter().map(|it| it.name.as_str()).collect();
    fields(&[
        ["project", &format!("{}/{}", project.org, project.name)],
        ["address", address],
        ["hostnames", &names.join(" ")],
        ["access", project.access.mode.as_str()],
        ["live", &or_dash(project.live.as_ref().map(live_summary).as_deref())],
        ["created", &project.created_at],
    ])
}

fn show_overview(overview: &ProjectOverview) -> String {
    let ProjectOverview { deployments, last_backup, live, notifications, resources } = overview;
    let live = or_dash(live.as_ref().map(live_summary).as_deref());
    let backup = or_dash(last_backup.as_ref().map(backup_summary).as_deref());
    let state = |state: &ResourceState| match (state.granted, state.declared) {
        (true, _) => "enabled",
        (false, true) => "declared in svc.json, not enabled",
        (false, false) => "off",
    };
    let rows = fields(&[
        ["live", live.as_str()],
        ["backup", &backup],
        ["database", state(&resources.database)],
        ["storage", state(&resources.storage)],
        ["email", state(&resources.email)],
        ["auth", state(&resources.auth)],
        ["ai", state(&resources.ai)],
    ]);
    let latest = deployments.iter().map(|it| [it.version.to_string(), it.status.to_string(), it.created_at.clone()]);
    let latest = table(["VERSION", "STATUS", "CREATED"], latest);
    format!("{rows}\n\n{latest}\n\n{}", table(notifications::HEAD, notifications.iter().map(notifications::row)))
}
