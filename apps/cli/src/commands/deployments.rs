//! What was deployed, and going back to it.

use std::time::Duration;

use client::types::{self, Deployment, DeploymentStatus};
use client::{Answer, Client, Error};

use crate::failure::Failure;
use crate::options::Part;
use crate::output::or_dash;
use crate::svc::Svc;

/// How long is waited before it is asked whether a deployment is served: twice as long each time, up to the second.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn list(svc: &Svc<'_>, part: &Part) -> Result<(), Failure> {
    let (org, project) = svc.project()?;
    let page = svc.client()?.deployments_list(&org, &project, &part.paging()).send().await?;
    svc.out.list(&page, ["VERSION", "", "STATUS", "CREATED", "BY", "FROM"], |it| {
        let live = if it.live { "live" } else { "" };
        [
            it.version.to_string(),
            live.to_owned(),
            it.status.to_string(),
            it.created_at.clone(),
            it.created_by.subject.clone(),
            source(it),
        ]
    })
}

#[derive(clap::Args)]
pub struct Rollback {
    /// The deployment's version
    version: i32,
    /// Do not wait until visitors see it
    #[arg(long)]
    no_wait: bool,
}

impl Rollback {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), Failure> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        let to = types::Rollback { version: self.version };
        let deployment = client.deployments_rollback(&org, &project, &to).send().await?;
        let (seen, served) =
            if self.no_wait { (deployment, Ok(())) } else { served(&client, (&org, &project), deployment).await };
        let printed = svc.out.answer(&seen, line);
        served?;
        svc.out.done(format!("version {} is live again", self.version));
        printed
    }
}

/// Waits until visitors see a deployment; what was seen of it last, and whether they do.
pub async fn served(
    client: &Client,
    project: (&str, &str),
    mut seen: Answer<Deployment>,
) -> (Answer<Deployment>, Result<(), Failure>) {
    let (version, mut trouble) = (seen.version, None);
    let watched = tokio::time::timeout(PATIENCE, watch(client, project, &mut seen, &mut trouble)).await;
    let outcome = watched.unwrap_or_else(|_| {
        let trouble = trouble.map(|error| format!(": {error}")).unwrap_or_default();
        Err(Failure::NotServed(format!("version {version} is deployed, and after a minute not seen served{trouble}")))
    });
    (seen, outcome)
}

/// Looks until it is decided. `trouble` is why the last look saw nothing.
async fn watch(
    client: &Client,
    (org, project): (&str, &str),
    seen: &mut Answer<Deployment>,
    trouble: &mut Option<Error>,
) -> Result<(), Failure> {
    let version = seen.version.to_string();
    let mut pause = FIRST;
    loop {
        match &seen.status {
            // Unless another one has taken its place.
            DeploymentStatus::Pending | DeploymentStatus::Retired if seen.live => {}
            status @ (DeploymentStatus::Crashed | DeploymentStatus::Failed) => {
                let why = seen.status_message.as_deref().unwrap_or("nothing more is known");
                return Err(Failure::NotServed(format!("version {version} is deployed, and {status}: {why}")));
            }
            _ => return Ok(()),
        }
        tokio::time::sleep(trouble.as_ref().and_then(Error::retry_after).unwrap_or_default().max(pause)).await;
        pause = (pause * 2).min(LONGEST);
        *trouble = match client.deployments_get(org, project, &version).send().await {
            Ok(now) => {
                *seen = now;
                None
            }
            // A token that may deploy need not be one that may look.
            Err(Error::Refused { status: 403, .. }) => return Ok(()),
            Err(error) if is_passing(&error) => Some(error),
            Err(error) => return Err(error.into()),
        };
    }
}

/// Whether the next look may see more.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Unreachable(_)) || matches!(error.status(), Some(429 | 500..))
}

/// A deployment in a line.
pub fn line(deployment: &Deployment) -> String {
    let Deployment { version, digest, created_at, .. } = deployment;
    format!("version {version} of {created_at}, {digest}")
}

/// The commit that it was made from.
fn source(deployment: &Deployment) -> String {
    let git = &deployment.git;
    let Some(commit) = git.commit.as_ref().and_then(|commit| commit.get(..7)) else { return or_dash(None) };
    let dirty = if git.dirty == Some(true) { "+" } else { "" };
    format!("{commit}{dirty} {}", git.message.as_deref().unwrap_or_default())
}
