//! Repositories and their ref updates.

use actix_web::web::Data;
use git::{GitError, NewRepo, ProjectPath, RefUpdate, Repo, RepoChange, RepoName, Repositories};
use kernel::{Page, RepositoryId};

use super::{REPO, path};
use crate::authority::role::{Admin, Member, Viewer};
use crate::authority::scope::{GitRead, GitWrite};
use crate::authority::{InProject, RepositoryReader};
use crate::http::{Area, Body, Created, Json, NoContent, Pagination, Path, path_parameters};
use crate::problem::Problem;

const REPOS: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/repos";
const REF_UPDATES: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}/ref-updates";

pub(super) fn routes(area: &mut Area<'_>) {
    area.get("list", REPOS, list).summary("List the repositories of a project, newest first");
    area.post("create", REPOS, create)
        .summary("Create an empty repository")
        .codes(&[&GitError::REPO_EXISTS, &GitError::REPO_LIMIT, &GitError::DELETED_LIMIT])
        .link("repos.get", "repoName", "/name")
        .link("repos.update", "repoName", "/name")
        .link("repos.delete", "repoName", "/name");
    area.get("get", REPO, get).summary("Get a repository").description(ANY_USER);
    area.patch("update", REPO, update)
        .summary("Change the name, the visibility or the default branch of a repository")
        .description("Nothing redirects from the old name. A push in progress is not affected.")
        .codes(&[&GitError::REPO_EXISTS]);
    area.delete("delete", REPO, delete)
        .summary("Delete a repository, and release its name")
        .description("Its contents are erased after 30 days.");
    area.get("ref_updates", REF_UPDATES, ref_updates)
        .summary("List the 200 most recent updates of refs, newest first")
        .description(
            "`old` is the commit before the update, even after a forced push. Fetch it by its id to recover it.",
        );
}

/// The description of routes about repositories that can be public.
pub(super) const ANY_USER: &str = "Any signed-in user can read a public repository.";

path_parameters! {
    RepoName: "The repository's name.", "app";
}

async fn list(
    at: InProject<Viewer, GitRead>,
    repositories: Data<Repositories>,
    Pagination(pages): Pagination<RepositoryId>,
) -> Result<Json<Page<Repo>>, Problem> {
    Ok(Json(repositories.list(at.project.id, path(&at), &pages).await?))
}

async fn create(
    at: InProject<Member, GitWrite>,
    repositories: Data<Repositories>,
    Body(new): Body<NewRepo>,
) -> Result<Created<Repo>, Problem> {
    Ok(Created(repositories.create(&at.actor, (&at).into(), path(&at), new).await?))
}

async fn get(at: RepositoryReader<GitRead>, repositories: Data<Repositories>) -> Result<Json<Repo>, Problem> {
    let path = ProjectPath { org: &at.org, project: &at.project };
    Ok(Json(repositories.view(at.repo, path)))
}

async fn update(
    at: InProject<Admin, GitWrite>,
    Path(name): Path<RepoName>,
    repositories: Data<Repositories>,
    Body(change): Body<RepoChange>,
) -> Result<NoContent, Problem> {
    repositories.update(&at.actor, (&at).into(), name.as_str(), change).await?;
    Ok(NoContent)
}

async fn delete(
    at: InProject<Admin, GitWrite>,
    Path(name): Path<RepoName>,
    repositories: Data<Repositories>,
) -> Result<NoContent, Problem> {
    repositories.delete(&at.actor, (&at).into(), name.as_str()).await?;
    Ok(NoContent)
}

async fn ref_updates(
    at: InProject<Viewer, GitRead>,
    Path(name): Path<RepoName>,
    repositories: Data<Repositories>,
) -> Result<Json<Page<RefUpdate>>, Problem> {
    Ok(Json(repositories.ref_updates(at.project.id, name.as_str()).await?))
}
