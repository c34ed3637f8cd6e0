//! The routes for the git node that deploy pushes.

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Data;
use git::{Deploy, DeployStatus, PushDeploy, Repositories};
use kernel::{ApiError as _, Code, Kind, RepositoryId, Resource, ResourceSet};
use projects::{Author, BundleLimits, Git, ProjectError, Projects, Push, Source};
use protocol::{GitDeploy, GitDeployState, GitDeployed, GitNextDeploy, GitRejection, GitRepositories};
use serde::Deserialize;
use store::Store;
use utoipa::ToSchema;

use super::id::parse_id;
use crate::authority::{DeployDecision, Deployer, GitNodeCaller, authorize_deploy};
use crate::http::{
    Area, Body, Describe, Extract, Json, NoContent, Operation, Path, Query, RequestHeaders, Upload, path_parameters,
    percent_decoded, upload_problem,
};
use crate::problem::Problem;

pub(super) fn routes(area: &mut Area<'_>) {
    area.get("deployable", "/internal/v1/git/deploys", deployable)
        .summary("List repositories with pushes that wait for their deploy")
        .description("At most 100, in ascending order.");
    area.post("next_deploy", "/internal/v1/git/repositories/{repositoryId}/deploys", next)
        .summary("Return the next push to deploy")
        .description("Pushes before it that may not be deployed are rejected.");
    area.get("deploy_state", "/internal/v1/git/repositories/{repositoryId}/deploys/{updateNumber}", state)
        .summary("Get the state of the deploy of a push");
    area.post("deploy", "/internal/v1/git/repositories/{repositoryId}/deploys/{updateNumber}", deploy)
        .summary("Upload the bundle of a push, and make it live")
        .description("Safe to repeat: a push becomes one version.")
        .header("X-Svc-Git-Message", "The first line of the commit's message, percent-encoded.");
    area.put("reject_deploy", "/internal/v1/git/repositories/{repositoryId}/deploys/{updateNumber}/rejection", reject)
        .summary("Report that a push cannot be packed")
        .codes(&[&Code::BAD_REQUEST]);
}

path_parameters! {
    UpdateNumber as i64: "The number of the ref update.", 8;
}

/// The query of a list of repositories.
#[derive(Debug, Deserialize, ToSchema)]
struct DeployableQuery {
    /// The last repository of the previous page.
    after: Option<String>,
}

/// The number of a ref update in a path.
struct UpdateNumber(i64);

impl std::str::FromStr for UpdateNumber {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        text.parse().map(Self).map_err(drop)
    }
}

/// The contexts that a deploy concerns, for one request.
struct Deploys {
    store: Data<Store>,
    repositories: Data<Repositories>,
    projects: Data<Projects>,
    header: RequestHeaders,
}

impl Describe for Deploys {
    fn describe(_: &mut Operation) {}
}

impl Extract for Deploys {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        Ok(Self {
            store: Data::extract(request, payload).await?,
            repositories: Data::extract(request, payload).await?,
            projects: Data::extract(request, payload).await?,
            header: RequestHeaders::extract(request, payload).await?,
        })
    }
}

async fn deployable(
    _: GitNodeCaller,
    Query(DeployableQuery { after }): Query<DeployableQuery>,
    repositories: Data<Repositories>,
) -> Result<Json<GitRepositories>, Problem> {
    let after = after.map(|after| parse_id("repository", &after)).transpose()?;
    let repositories = repositories.repositories_to_deploy(after).await?.iter().map(ToString::to_string).collect();
    Ok(Json(GitRepositories { repositories }))
}

async fn next(
    _: GitNodeCaller,
    Path(repository): Path<RepositoryId>,
    deploys: Deploys,
) -> Result<Json<GitNextDeploy>, Problem> {
    Ok(Json(deploys.next(repository).await?))
}

async fn state(
    _: GitNodeCaller,
    Path((repository, UpdateNumber(number))): Path<(RepositoryId, UpdateNumber)>,
    deploys: Deploys,
) -> Result<Json<GitDeployState>, Problem> {
    Ok(Json(deploys.state(repository, number).await?))
}

async fn deploy(
    _: GitNodeCaller,
    Path((repository, UpdateNumber(number))): Path<(RepositoryId, UpdateNumber)>,
    deploys: Deploys,
    upload: Upload,
) -> Result<Json<GitDeployState>, Problem> {
    deploys.deploy(repository, number, upload).await?;
    Ok(Json(deploys.state(repository, number).await?))
}

async fn reject(
    _: GitNodeCaller,
    Path((repository, UpdateNumber(number))): Path<(RepositoryId, UpdateNumber)>,
    repositories: Data<Repositories>,
    Body(GitRejection { message }): Body<GitRejection>,
) -> Result<NoContent, Problem> {
    repositories.reject_deploy(repository, number, &message).await?;
    Ok(NoContent)
}

impl Deploys {
    /// Returns the next push that may be deployed, and rejects those before it.
    async fn next(&self, repository: RepositoryId) -> Result<GitNextDeploy, Problem> {
        let mut rejected = 0;
        while let Some(deploy) = self.repositories.next_deploy(repository).await? {
            match self.authorize(&deploy).await? {
                DeployDecision::Allowed(deployer) => {
                    let limits = self.projects.limits().for_plan(deployer.org.plan).bundle;
                    let BundleLimits { compressed, unpacked, entries } = limits;
                    let Deploy { number, commit, .. } = deploy;
                    let (user, org) = (deployer.user.id.to_string(), deployer.org.id.to_string());
                    let deploy = GitDeploy { number, commit, user, org, compressed, unpacked, entries };
                    return Ok(GitNextDeploy { deploy: Some(deploy), rejected });
                }
                DeployDecision::Rejected(reason) => {
                    self.repositories.reject_deploy(repository, deploy.number, &reason).await?;
                    rejected += 1;
                }
            }
        }
        Ok(GitNextDeploy { deploy: None, rejected })
    }

    /// Creates the version of a pending push, or rejects the push.
    async fn deploy(&self, repository: RepositoryId, number: i64, upload: Upload) -> Result<(), Problem> {
        let is_pending = |it: &Deploy| it.state.status == DeployStatus::Pending;
        let Some(deploy) = self.repositories.find_deploy(repository, number).await?.filter(is_pending) else {
            return Ok(());
        };
        let reason = match self.authorize(&deploy).await? {
            DeployDecision::Allowed(deployer) => self.create(&deploy, *deployer, upload).await?,
            DeployDecision::Rejected(reason) => Some(reason),
        };
        if let Some(reason) = reason {
            self.repositories.reject_deploy(repository, number, &reason).await?;
        }
        Ok(())
    }

    /// Creates the version of a push. Returns the reason if the push cannot be deployed.
    async fn create(&self, deploy: &Deploy, by: Deployer, upload: Upload) -> Result<Option<String>, Problem> {
        let Deployer { actor, user, org, project, .. } = by;
        let Deploy { repository, number, branch, commit, .. } = deploy;
        let message = self.header.get("x-svc-git-message").and_then(percent_decoded);
        let git = Git::from_headers(Some(commit), message.as_deref(), Some(branch.as_str()), Some("false"));
        let created_by = Author { user_id: user.id, subject: user.subject };
        let push = Some(Push { repository: *repository, number: *number });
        let source = Source { created_by, git, push };
        match self.projects.deploy(&actor, &org, project, source, upload.into_stream()).await {
            // Another request ended the deploy.
            Ok(_) | Err(ProjectError::PushNotPending) => Ok(None),
            Err(error) if is_permanent(&error) => Ok(Some(error.to_string())),
            Err(error) => Err(upload_problem(error)),
        }
    }

    /// Returns the state of a deploy, as the pusher may see it.
    async fn state(&self, repository: RepositoryId, number: i64) -> Result<GitDeployState, Problem> {
        let Some(deploy) = self.repositories.find_deploy(repository, number).await? else {
            return Ok(GitDeployState::None);
        };
        let PushDeploy { status, version, message } = deploy.state.clone();
        Ok(match (status, version) {
            (DeployStatus::Pending, _) => GitDeployState::Pending,
            (DeployStatus::Deployed, Some(version)) => match self.authorize(&deploy).await? {
                DeployDecision::Allowed(deployer) => GitDeployState::Deployed(self.show(&deployer, version).await?),
                DeployDecision::Rejected(_) => {
                    GitDeployState::Deployed(GitDeployed { version, url: None, notes: Vec::new() })
                }
            },
            (DeployStatus::Deployed | DeployStatus::Rejected, _) => {
                GitDeployState::Rejected(message.unwrap_or_default())
            }
        })
    }

    /// Returns the state of a deployed version for the pusher, with hints about resources that the manifest declares
    /// and the project lacks.
    async fn show(&self, deployer: &Deployer, version: i32) -> Result<GitDeployed, Problem> {
        let Deployer { org, project, granted_resources, .. } = deployer;
        let detail = self.projects.detail(org, *project).await?;
        let declares = self.projects.deployment(*project, version).await?.declares;
        let notes = Resource::ALL.iter().filter_map(|resource| note(*resource, declares, *granted_resources)).collect();
        Ok(GitDeployed { version, url: Some(self.projects.url(&detail.project.hostname)), notes })
    }

    async fn authorize(&self, deploy: &Deploy) -> Result<DeployDecision, Problem> {
        authorize_deploy(&self.store, deploy, self.header.request_id()).await
    }
}

/// Returns whether the upload would fail in the same way if it were repeated.
fn is_permanent(error: &ProjectError) -> bool {
    match error {
        ProjectError::UploadBroken(_) => false,
        // The node would repeat the upload for up to a day.
        ProjectError::DeploymentLimit { .. } => true,
        _ => matches!(
            error.code().kind,
            Kind::Invalid | Kind::TooLarge | Kind::Unauthenticated | Kind::Forbidden | Kind::NotFound | Kind::Conflict
        ),
    }
}

fn note(resource: Resource, declares: ResourceSet, granted: ResourceSet) -> Option<String> {
    if !declares.has(resource) || granted.has(resource) {
        return None;
    }
    let remedy = match resource {
        Resource::Database => "run `svc db enable`",
        Resource::Storage => "run `svc storage enable`",
        Resource::Ai => "run `svc ai enable`",
        Resource::Email => "run `svc email enable`",
        Resource::Auth => "run `svc auth enable`",
    };
    Some(format!("svc.json declares {resource}, which the project does not have: {remedy}"))
}
