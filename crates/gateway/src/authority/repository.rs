//! The policies of git repositories, for the API and for git clients. A public repository can be read without a role.

use std::marker::PhantomData;

use actix_web::dev::Payload;
use actix_web::{HttpRequest, web};
use git::{ProjectPath, RepoName, RepoRecord, Repositories, RepositoryStorage, Visibility};
use identity::Identity;
use kernel::audit::Actor;
use kernel::{CallerError, Code, RepositoryId, Role, Scope, UserId};
use oauth::OAuth;
use store::Store;

use super::authenticate::{authenticate, record_use};
use super::caller::impl_caller_policies;
use super::credential::PresentedCredential;
use super::resolve::{Lookup, ResolvedCaller, ResolvedOrg, resolve};
use super::scope::RequiredScope;
use super::statement::Target;
use crate::http::{Describe, Extract, Operation, PolicyTarget, RouteMatch};
use crate::limits::Limiters;
use crate::problem::Problem;

/// A user with at least the role of a viewer of the path's repository, or any user if the repository is public
/// (contract section 1, "Roles"), whatever the restriction of the token. The credential has the scope.
#[derive(Debug)]
pub struct RepositoryReader<S> {
    pub actor: Actor,
    pub user: UserId,
    pub org: String,
    pub project: String,
    pub repo: RepoRecord,
    scope: PhantomData<S>,
}

impl<S: RequiredScope> Describe for RepositoryReader<S> {
    fn describe(operation: &mut Operation) {
        operation.require_caller(PolicyTarget::Project, Some(Role::Viewer), Some(S::SCOPE));
        operation.claim_parameter::<orgs::Slug>();
        operation.claim_parameter::<projects::ProjectName>();
        operation.claim_parameter::<RepoName>();
        operation.accepts_restricted_tokens = true;
    }
}

impl<S: RequiredScope> Extract for RepositoryReader<S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let path = RouteMatch::of(request);
        let parameter = |name: &str| path.as_ref().and_then(|path| path.get(name)).unwrap_or_default();
        let (org, project, name) = (parameter("orgSlug"), parameter("projectName"), parameter("repoName"));
        let caller = authenticate(request, payload, Target::Project { org, project }).await?;
        let caller = caller.with_scope(request, S::SCOPE)?;
        let Some(target) = &caller.org else {
            return Err(Problem::new(&Code::NOT_FOUND, "there is no such organization"));
        };
        let repositories = web::Data::<Repositories>::extract(request, payload).await?;
        let repo = repositories.find_by_path(ProjectPath { org, project }, name).await?;
        if repo.as_ref().is_none_or(|repo| repo.visibility != Visibility::Public) {
            caller.require_access(caller.project.is_some())?;
            if target.role.is_none() {
                return Err(CallerError::NotAMember.into());
            }
        }
        let repo = repo.ok_or(git::GitError::RepoNotFound)?;
        let (user, org, project) = (caller.user.id, org.to_owned(), project.to_owned());
        Ok(Self { actor: caller.actor(request, None), user, org, project, repo, scope: PhantomData })
    }
}

impl_caller_policies! {
    [S: RequiredScope] RepositoryReader<S>;
}

/// The credential of a git client.
#[derive(Clone, Copy)]
pub(crate) enum GitCredential<'a> {
    /// A personal access token, or another password.
    Password(&'a str),
    /// The fingerprint of an SSH key whose private key the client has.
    SshKey(&'a str),
}

/// The decision about the access of a git client (runtime specification, "Git").
pub(crate) enum GitDecision {
    Allowed(AllowedGitAccess),
    Unauthenticated,
    Forbidden(String),
    NotFound,
}

/// An allowed access of a git client.
pub(crate) struct AllowedGitAccess {
    pub(crate) repo: RepoRecord,
    /// The user; `None` for an anonymous client.
    pub(crate) user: Option<GitUser>,
    /// The number of bytes that the client may push. `None` if it does not push.
    pub(crate) max_push_bytes: Option<u64>,
}

/// The user of a git client.
pub(crate) struct GitUser {
    pub(crate) id: UserId,
    /// The stored form of the credential, with which a push and its deploy are authorized again.
    pub(crate) credential: Option<String>,
}

/// Decides about the accesses of git clients.
pub(crate) struct GitAuthorizer {
    request: HttpRequest,
    store: web::Data<Store>,
    repositories: web::Data<Repositories>,
    limiters: web::Data<Limiters>,
    identity: web::Data<Identity>,
    oauth: web::Data<OAuth>,
}

impl Describe for GitAuthorizer {
    fn describe(operation: &mut Operation) {
        operation.code(&Code::RATE_LIMITED);
    }
}

impl Extract for GitAuthorizer {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        Ok(Self {
            request: request.clone(),
            store: web::Data::extract(request, payload).await?,
            repositories: web::Data::extract(request, payload).await?,
            limiters: web::Data::extract(request, payload).await?,
            identity: web::Data::extract(request, payload).await?,
            oauth: web::Data::extract(request, payload).await?,
        })
    }
}

impl GitAuthorizer {
    /// Decides whether a git client may read or write a repository, and counts the request by the client's user. The
    /// decision is `NotFound` for a repository that the client may not see.
    pub(crate) async fn authorize(
        &self,
        credential: Option<GitCredential<'_>>,
        path: ProjectPath<'_>,
        name: &str,
        write: bool,
    ) -> Result<GitDecision, Problem> {
        let caller = match credential {
            None => None,
            Some(credential) => {
                let presented = match credential {
                    GitCredential::Password(password) => PresentedCredential::access_token(password),
                    GitCredential::SshKey(fingerprint) => PresentedCredential::ssh_key(fingerprint),
                };
                let Some(presented) = presented else { return Ok(GitDecision::Unauthenticated) };
                let target = Target::Project { org: path.org, project: path.project };
                let Some(caller) = self.resolve(presented, target).await? else {
                    return Ok(GitDecision::Unauthenticated);
                };
                Some((caller, presented))
            }
        };
        let repo = self.repositories.find_by_path(path, name).await?;
        let user = caller.as_ref();
        let user = user.map(|(caller, presented)| GitUser { id: caller.user.id, credential: presented.to_stored() });
        let caller = caller.as_ref().map(|(caller, _)| caller);
        let decision = decide(caller, user, repo, write);
        match (decision, caller.and_then(|caller| caller.org.as_ref())) {
            (GitDecision::Allowed(allowed), Some(org)) if write => self.limit_push(allowed, org).await,
            (decision, _) => Ok(decision),
        }
    }

    /// Returns the user of an SSH key, and counts the request by this user. Returns `None` if the key is not registered.
    pub(crate) async fn authenticate(&self, fingerprint: &str) -> Result<Option<UserId>, Problem> {
        let Some(presented) = PresentedCredential::ssh_key(fingerprint) else { return Ok(None) };
        let caller = self.resolve(presented, Target::Account).await?;
        Ok(caller.map(|caller| caller.user.id))
    }

    /// Looks a credential up, counts the request by its user, and records the use of the credential.
    async fn resolve(
        &self,
        credential: PresentedCredential,
        target: Target<'_>,
    ) -> Result<Option<ResolvedCaller>, Problem> {
        let caller = resolve(&self.store, Lookup { credential, target, permit_request: None }).await?;
        if let Some(caller) = &caller {
            self.limiters.count_git(&self.request, &self.store, caller.user.id).await?;
            record_use(caller, self.identity.clone(), self.oauth.clone());
        }
        Ok(caller)
    }

    /// Limits a push to the bytes that the organization may still store. Refuses it if this number is 0.
    async fn limit_push(&self, allowed: AllowedGitAccess, org: &ResolvedOrg) -> Result<GitDecision, Problem> {
        let RepositoryStorage { limit, used } = self.repositories.storage(org.id, org.plan).await?;
        let free = limit.saturating_sub(used);
        if free == 0 {
            return Ok(GitDecision::Forbidden(format!(
                "the repositories of the organization use {used} bytes, and the {} plan allows {limit}; upgrade \
                 the plan, or ask the operator",
                org.plan
            )));
        }
        Ok(GitDecision::Allowed(AllowedGitAccess { max_push_bytes: Some(free), ..allowed }))
    }
}

/// Checks the authority of a push in progress again, before it changes refs. `credential` is the stored form of the
/// push's credential. Finds the repository by its id, so that a rename does not affect the push. Does not count the
/// request, because a push with many refs needs many of these decisions.
pub(crate) async fn authorize_push_again(
    store: &Store,
    repositories: &Repositories,
    repository: RepositoryId,
    pusher: UserId,
    credential: &str,
) -> Result<GitDecision, Problem> {
    let Some(repo) = repositories.find_by_id(repository).await? else { return Ok(GitDecision::NotFound) };
    let Some(credential) = PresentedCredential::from_stored(credential) else {
        return Ok(GitDecision::Unauthenticated);
    };
    let lookup = Lookup { credential, target: Target::ProjectById(repo.project), permit_request: None };
    // Another user may have registered the SSH key by now.
    let caller = resolve(store, lookup).await?.filter(|caller| caller.user.id == pusher);
    Ok(decide(caller.as_ref(), None, Some(repo), true))
}

fn decide(
    caller: Option<&ResolvedCaller>,
    user: Option<GitUser>,
    repo: Option<RepoRecord>,
    write: bool,
) -> GitDecision {
    let is_public = repo.as_ref().is_some_and(|repo| repo.visibility == Visibility::Public);
    let Some(caller) = caller else {
        return match repo {
            Some(repo) if is_public && !write => allow(repo, None),
            _ => GitDecision::Unauthenticated,
        };
    };
    // The lookup finds the project only if the token is not restricted to another one.
    let role = caller.org.as_ref().and_then(|org| org.role).filter(|_| caller.project.is_some());
    let Some(repo) = repo.filter(|_| is_public || role.is_some()) else { return GitDecision::NotFound };
    let (minimum, scope) = if write { (Role::Member, Scope::GitWrite) } else { (Role::Viewer, Scope::GitRead) };
    match role {
        _ if is_public && !write => allow(repo, user),
        Some(role) if role >= minimum && caller.has_scope(scope) => allow(repo, user),
        Some(role) if role >= minimum => GitDecision::Forbidden(format!("the token lacks the scope {scope}")),
        _ => GitDecision::Forbidden("pushing requires the role member in the organization".to_owned()),
    }
}

fn allow(repo: RepoRecord, user: Option<GitUser>) -> GitDecision {
    GitDecision::Allowed(AllowedGitAccess { repo, user, max_push_bytes: None })
}
