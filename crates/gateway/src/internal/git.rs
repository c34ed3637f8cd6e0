//! The routes for the git node.

use actix_web::web::Data;
use git::{ProjectPath, RefUpdate, RefUpdateRecord, Repositories};
use kernel::{Code, RepositoryId, Secret, UserId};
use protocol::{
    GitAccess, GitAccessRequest, GitGrant, GitKey, GitKeyUser, GitNodeInfo, GitObjects, GitPushDecision, GitPusher,
    GitReceipt, GitRepositories, GitSize, GitUpdate, GitUpdates,
};
use store::Store;

use super::id::parse_id;
use crate::authority::{
    AllowedGitAccess, GitAuthorizer, GitCredential, GitDecision, GitNodeCaller, GitUser, authorize_push_again,
};
use crate::http::{Body, Json, NoContent, Path, Routes, path_parameters};
use crate::problem::Problem;

/// The largest body, in bytes. An update of a ref has a name of up to 1,024 bytes.
const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("git", "Access to repositories, and updates of refs, for the git node.");
    area.post("authorize", "/internal/v1/git/access", authorize)
        .summary("Decide whether a git client may access a repository")
        .codes(&[&Code::BAD_REQUEST]);
    area.post("authenticate", "/internal/v1/git/user", authenticate)
        .summary("Return the user of an SSH key")
        .codes(&[&Code::BAD_REQUEST]);
    area.post("authorize_again", "/internal/v1/git/repositories/{repositoryId}/access", authorize_again)
        .summary("Decide whether a push in progress may still change a repository")
        .codes(&[&Code::BAD_REQUEST]);
    area.post("report_updates", "/internal/v1/git/updates", report_updates)
        .summary("Report updates of refs")
        .description("Safe to repeat: each number is recorded once.")
        .codes(&[&Code::BAD_REQUEST]);
    area.put("announce_git", "/internal/v1/git/node", announce)
        .summary("Announce the internal listener of the git node")
        .codes(&[&Code::BAD_REQUEST]);
    area.get("listed_objects", "/internal/v1/git/repositories/{repositoryId}/objects", listed_objects)
        .summary("List the objects of a repository that must stay readable");
    area.put("report_size", "/internal/v1/git/repositories/{repositoryId}/size", report_size)
        .summary("Report the size of a repository")
        .codes(&[&Code::BAD_REQUEST]);
    area.get("erasable", "/internal/v1/git/erasures", erasable)
        .summary("List deleted repositories whose contents are to be erased");
    area.post("erased", "/internal/v1/git/erasures", erased)
        .summary("Report repositories whose contents were erased")
        .codes(&[&Code::BAD_REQUEST]);
    super::git_deploys::routes(&mut area);
}

path_parameters! {
    RepositoryId: "The repository's id.";
}

async fn authorize(
    _: GitNodeCaller,
    authorizer: GitAuthorizer,
    Body(request): Body<GitAccessRequest>,
) -> Result<Json<GitAccess>, Problem> {
    let GitAccessRequest { password, ssh_key, org, project, repository, write } = request;
    let credential = match (&password, &ssh_key) {
        (None, None) => None,
        (Some(password), None) => Some(GitCredential::Password(password.reveal())),
        (None, Some(fingerprint)) => Some(GitCredential::SshKey(fingerprint)),
        (Some(_), Some(_)) => return Err(Problem::bad_request("a client has a password or an SSH key, not both")),
    };
    let path = ProjectPath { org: &org, project: &project };
    let decision = authorizer.authorize(credential, path, &repository, write).await?;
    Ok(Json(match decision {
        GitDecision::Allowed(AllowedGitAccess { repo, user, max_push_bytes }) => {
            let user = user.map(|GitUser { id, credential }| (id.to_string(), credential));
            let (user, credential) = user.unzip();
            GitAccess::Allowed(GitGrant {
                repository: repo.id.to_string(),
                default_branch: repo.default_branch.to_string(),
                deploy_branch: repo.deploy_branch.map(|branch| branch.to_string()),
                user,
                credential: credential.flatten(),
                last_update: repo.last_update,
                max_push_bytes,
            })
        }
        GitDecision::Unauthenticated => GitAccess::Unauthenticated,
        GitDecision::Forbidden(message) => GitAccess::Forbidden(message),
        GitDecision::NotFound => GitAccess::NotFound,
    }))
}

async fn authorize_again(
    _: GitNodeCaller,
    Path(repository): Path<RepositoryId>,
    store: Data<Store>,
    repositories: Data<Repositories>,
    Body(GitPusher { user, credential }): Body<GitPusher>,
) -> Result<Json<GitPushDecision>, Problem> {
    let user: UserId = parse_id("user", &user)?;
    let decision = authorize_push_again(&store, &repositories, repository, user, &credential).await?;
    Ok(Json(match decision {
        GitDecision::Allowed(_) => GitPushDecision::Allowed,
        GitDecision::Unauthenticated => {
            GitPushDecision::Refused("the token or SSH key of the push is not valid any more".to_owned())
        }
        GitDecision::Forbidden(message) => GitPushDecision::Refused(message),
        GitDecision::NotFound => GitPushDecision::Refused(
            "the repository was deleted, or you are not a member of its organization any more".to_owned(),
        ),
    }))
}

async fn authenticate(
    _: GitNodeCaller,
    authorizer: GitAuthorizer,
    Body(GitKey { ssh_key }): Body<GitKey>,
) -> Result<Json<GitKeyUser>, Problem> {
    let user = authorizer.authenticate(&ssh_key).await?;
    Ok(Json(GitKeyUser { user: user.map(|user| user.to_string()) }))
}

async fn report_updates(
    _: GitNodeCaller,
    repositories: Data<Repositories>,
    Body(GitUpdates { repository, updates }): Body<GitUpdates, MAX_BODY_BYTES>,
) -> Result<Json<GitReceipt>, Problem> {
    let record = |GitUpdate { number, name, old, new, forced, pusher, credential, at }| {
        let pusher = pusher.map(|id| parse_id("pusher", &id)).transpose()?;
        let created_at = at.parse().map_err(|_| Problem::bad_request("at must be a time"))?;
        let update = RefUpdate { name, old, new, forced, pusher, deploy: None, created_at };
        Ok(RefUpdateRecord { number, update, credential })
    };
    let updates = updates.into_iter().map(record).collect::<Result<Vec<_>, Problem>>()?;
    let repository: RepositoryId = parse_id("repository", &repository)?;
    repositories.record_updates(repository, updates).await?;
    Ok(Json(GitReceipt { has_deploys: repositories.next_deploy(repository).await?.is_some() }))
}

async fn report_size(
    _: GitNodeCaller,
    Path(repository): Path<RepositoryId>,
    repositories: Data<Repositories>,
    Body(GitSize { size_bytes }): Body<GitSize>,
) -> Result<NoContent, Problem> {
    repositories.set_size(repository, size_bytes).await?;
    Ok(NoContent)
}

async fn announce(
    by: GitNodeCaller,
    repositories: Data<Repositories>,
    Body(GitNodeInfo { url, secret }): Body<GitNodeInfo>,
) -> Result<NoContent, Problem> {
    repositories.announce(by.node, url, &Secret::new(secret.reveal().to_owned())).await?;
    Ok(NoContent)
}

async fn listed_objects(
    _: GitNodeCaller,
    Path(repository): Path<RepositoryId>,
    repositories: Data<Repositories>,
) -> Result<Json<GitObjects>, Problem> {
    let (objects, owner) = (repositories.listed_objects(repository).await?, repositories.owner(repository).await?);
    Ok(Json(GitObjects { objects, owner }))
}

async fn erasable(_: GitNodeCaller, repositories: Data<Repositories>) -> Result<Json<GitRepositories>, Problem> {
    let repositories = repositories.erasable().await?.iter().map(ToString::to_string).collect();
    Ok(Json(GitRepositories { repositories }))
}

async fn erased(
    _: GitNodeCaller,
    repositories: Data<Repositories>,
    Body(GitRepositories { repositories: erased }): Body<GitRepositories>,
) -> Result<NoContent, Problem> {
    for repository in &erased {
        repositories.erased(parse_id("repository", repository)?).await?;
    }
    Ok(NoContent)
}
