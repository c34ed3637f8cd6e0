//! `svc deployments` and `svc rollback`.

use std::time::Duration;

use client::types::{self, Deployment, DeploymentStatus};
use client::{Client, Error, Paging, Response};

use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::{Output, or_dash};
use crate::polling::{FIRST_POLL_INTERVAL, MAX_POLL_INTERVAL, is_transient};
use crate::resources::is_insufficient_scope;
use crate::svc::Svc;

const SERVING_TIMEOUT: Duration = Duration::from_secs(60);

pub async fn list(svc: &Svc<'_>, page: &PageArgs) -> Result<(), CliError> {
    let (org, project) = svc.project()?;
    let page = svc.client()?.deployments_list(&org, &project, &page.paging()).send().await?;
    svc.out.page(&page, ["VERSION", "", "STATUS", "CREATED", "BY", "FROM"], |it| {
        let live = if it.live { "live" } else { "" };
        [
            it.version.to_string(),
            live.to_owned(),
            it.status.to_string(),
            it.created_at.clone(),
            it.created_by.subject.clone(),
            commit(it),
        ]
    })
}

#[derive(clap::Args)]
pub struct Rollback {
    /// Version of the deployment
    version: i32,
    /// Do not wait until the deployment is served
    #[arg(long)]
    no_wait: bool,
}

impl Rollback {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        let to = types::Rollback { version: self.version };
        let deployment = client.deployments_rollback(&org, &project, &to).send().await?;
        let (latest, outcome) = if self.no_wait {
            (deployment, Ok(()))
        } else {
            wait_until_served(&client, (&org, &project), deployment, svc.out).await
        };
        let printed = svc.out.response(&latest, summary);
        outcome?;
        svc.out.success(superseded(&latest).unwrap_or_else(|| format!("version {} is live again", self.version)));
        printed
    }
}

/// Returns the message for a deployment that is no longer live; `None` if it is live.
pub fn superseded(deployment: &Deployment) -> Option<String> {
    (!deployment.live).then(|| format!("version {} was superseded by a newer deployment", deployment.version))
}

/// Polls a deployment until it is served. Returns its last observed state and the outcome. Warns if the token may not
/// read the state.
pub async fn wait_until_served(
    client: &Client,
    project: (&str, &str),
    mut latest: Response<Deployment>,
    out: &Output,
) -> (Response<Deployment>, Result<(), CliError>) {
    let (version, mut last_error) = (latest.version, None);
    let polling = poll(client, project, &mut latest, &mut last_error, out);
    let polled = tokio::time::timeout(SERVING_TIMEOUT, polling).await;
    let outcome = polled.unwrap_or_else(|_| {
        let cause = last_error.map(|error| format!(": {error}")).unwrap_or_default();
        Err(CliError::NotServed(format!("version {version} is deployed but was not served within one minute{cause}")))
    });
    (latest, outcome)
}

/// Polls until the deployment is served, fails or is superseded. `last_error` is the transient error of the last poll.
async fn poll(
    client: &Client,
    (org, project): (&str, &str),
    latest: &mut Response<Deployment>,
    last_error: &mut Option<Error>,
    out: &Output,
) -> Result<(), CliError> {
    let version = latest.version.to_string();
    let mut interval = FIRST_POLL_INTERVAL;
    loop {
        match &latest.status {
            DeploymentStatus::Pending | DeploymentStatus::Retired if latest.live => {}
            status @ (DeploymentStatus::Crashed | DeploymentStatus::Failed) => {
                let reason = latest.status_message.as_deref().unwrap_or("no details are available");
                let served = served_version(client, (org, project)).await;
                let served = served.map(|served| format!(", and version {served} is still served")).unwrap_or_default();
                let message = format!("version {version} is deployed but {status}{served}: {reason}");
                return Err(CliError::NotServed(message));
            }
            _ => return Ok(()),
        }
        tokio::time::sleep(last_error.as_ref().and_then(Error::retry_after).unwrap_or_default().max(interval)).await;
        interval = (interval * 2).min(MAX_POLL_INTERVAL);
        *last_error = match client.deployments_get(org, project, &version).send().await {
            Ok(deployment) => {
                *latest = deployment;
                None
            }
            // The token may deploy but not read the project.
            Err(error) if is_insufficient_scope(&error) => {
                out.warn_error("svc cannot check whether the deployment is served", &error.into());
                return Ok(());
            }
            Err(error) if is_transient(&error) => Some(error),
            Err(error) => return Err(error.into()),
        };
    }
}

/// Returns the version that the node serves; `None` if none is served or the state is unknown.
async fn served_version(client: &Client, (org, project): (&str, &str)) -> Option<i32> {
    let page = client.deployments_list(org, project, &Paging::default()).send().await.ok()?;
    page.items.iter().find(|it| it.status == DeploymentStatus::Serving).map(|it| it.version)
}

/// Returns a one-line summary of a deployment.
pub fn summary(deployment: &Deployment) -> String {
    let Deployment { version, digest, created_at, .. } = deployment;
    format!("version {version} of {created_at}, {digest}")
}

/// Returns a one-line summary of the live deployment, with its status: a failed one is not served.
pub fn live_summary(deployment: &Deployment) -> String {
    format!("{}, {}", summary(deployment), deployment.status)
}

/// Returns the git commit that a deployment was made from.
fn commit(deployment: &Deployment) -> String {
    let git = &deployment.git;
    let Some(commit) = git.commit.as_ref().and_then(|commit| commit.get(..7)) else { return or_dash(None) };
    let dirty = if git.dirty == Some(true) { "+" } else { "" };
    format!("{commit}{dirty} {}", git.message.as_deref().unwrap_or_default())
}
