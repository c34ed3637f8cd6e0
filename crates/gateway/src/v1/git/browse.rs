//! The contents of a repository.

use actix_web::web::Data;
use git::{Commit, CommitPosition, GitError, PathQuery, RepoBlob, RepoRead, RepoRefs, RepoTree, Repositories};
use kernel::{Code, Page};
use serde::Serialize;

use super::repos::ANY_USER;
use crate::authority::RepositoryReader;
use crate::authority::scope::GitRead;
use crate::http::{Area, Json, Pagination, Query, Streamed};
use crate::problem::Problem;
use crate::protocol::URI_TOO_LONG;

const REFS: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}/refs";
const TREE: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}/tree";
const BLOB: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}/blob";
const COMMITS: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}/commits";

/// The errors of the git node.
const NODE: [&Code; 2] = [&GitError::UNAVAILABLE, &GitError::UNREACHABLE];
const CONTENTS: [&Code; 5] =
    [&GitError::NO_REF, &GitError::NO_PATH, &GitError::UNAVAILABLE, &GitError::UNREACHABLE, &URI_TOO_LONG];

pub(super) fn routes(area: &mut Area<'_>) {
    area.get("refs", REFS, refs)
        .summary("List the branches and tags of a repository")
        .description(ANY_USER)
        .codes(&NODE);
    area.get("tree", TREE, tree)
        .summary("List a directory of a repository")
        .description("At most 1,000 entries. Any signed-in user can read a public repository.")
        .codes(&CONTENTS);
    area.get("blob", BLOB, blob)
        .summary("Read a file of a repository")
        .description("At most 1 MiB of UTF-8. Any signed-in user can read a public repository.")
        .codes(&CONTENTS);
    area.get("commits", COMMITS, commits)
        .summary("List the commits of a branch, newest first")
        .description(
            "With `path`, only commits that change it, even if it was deleted since. The next pages continue the same \
             history, even if the branch has moved since. Any signed-in user can read a public repository.",
        )
        .codes(&CONTENTS);
}

async fn refs(
    at: RepositoryReader<GitRead>,
    repositories: Data<Repositories>,
) -> Result<Streamed<Json<RepoRefs>>, Problem> {
    send(repositories.refs(at.user, &at.org, &at.repo).await?).await
}

async fn tree(
    at: RepositoryReader<GitRead>,
    repositories: Data<Repositories>,
    Query(query): Query<PathQuery>,
) -> Result<Streamed<Json<RepoTree>>, Problem> {
    send(repositories.tree(at.user, &at.org, &at.repo, query).await?).await
}

async fn blob(
    at: RepositoryReader<GitRead>,
    repositories: Data<Repositories>,
    Query(query): Query<PathQuery>,
) -> Result<Streamed<Json<RepoBlob>>, Problem> {
    send(repositories.blob(at.user, &at.org, &at.repo, query).await?).await
}

async fn commits(
    at: RepositoryReader<GitRead>,
    repositories: Data<Repositories>,
    Query(query): Query<PathQuery>,
    Pagination(paging): Pagination<CommitPosition, 200>,
) -> Result<Streamed<Json<Page<Commit>>>, Problem> {
    send(repositories.commits(at.user, &at.org, &at.repo, query, &paging).await?).await
}

async fn send<T: Serialize>(RepoRead { contents, permit }: RepoRead<T>) -> Result<Streamed<Json<T>>, Problem> {
    Streamed::json(contents, permit).await
}
