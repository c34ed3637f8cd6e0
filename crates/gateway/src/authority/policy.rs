//! The policies: first arguments of handlers.

use std::marker::PhantomData;

use actix_web::dev::Payload;
use actix_web::{HttpRequest, web};
use convergence::Convergence;
use identity::{Identity, Profile};
use kernel::audit::{Actor, Credential};
use kernel::{Code, NodeId, OrgId, Plan, ProjectId, Role, Scope, SessionId, Token, TokenId, TokenKind};
use serde_json::json;
use store::Store;

use super::credential::{counted_address, invalid, presented};
use super::resolve::{Found, FoundOrg, Lookup, Only, resolve};
use super::role::AtLeast;
use super::scope::Needs;
use crate::http::{Describe, Extract, Operation, Place, Policy, RequestId};
use crate::limits::{Key, Limit, Limiters, Taking};
use crate::problem::Problem;
use crate::protocol;

/// Anyone, signed in or not.
#[derive(Debug)]
pub struct Open {
    pub actor: Actor,
}

/// Anyone who comes to sign in: few requests for each address.
#[derive(Debug)]
pub struct SignIn {
    pub actor: Actor,
}

/// Anyone who looks at what a secret in the path opens: few requests for each address.
#[derive(Debug)]
pub struct Preview;

/// Anyone, counted by address like a caller.
#[derive(Debug)]
pub struct Stranger {
    pub actor: Actor,
}

/// Anyone with a live credential that has the scope and is not limited to a part of what its user reaches.
#[derive(Debug)]
pub struct SignedIn<S> {
    pub actor: Actor,
    pub user: Profile,
    scope: PhantomData<S>,
}

/// Anyone with a live credential that has the scope. A limited token is shown what it reaches, and no more.
#[derive(Debug)]
pub struct SignedInPart<S> {
    pub actor: Actor,
    pub user: Profile,
    /// The organizations that may be shown; all of the user's when none are named.
    pub orgs: Option<Vec<OrgId>>,
    scope: PhantomData<S>,
}

/// Anyone with a login session; no token serves.
#[derive(Debug)]
pub struct Session {
    pub actor: Actor,
    pub user: Profile,
    pub session: SessionId,
}

/// Anyone with a live personal access token, whatever its scopes and limits: it may ask about itself.
#[derive(Debug)]
pub struct ThisToken {
    pub actor: Actor,
    pub user: Profile,
    pub token: TokenId,
}

/// Whoever has the role in the path's organization, with the scope and with a credential that reaches all of it.
#[derive(Debug)]
pub struct InOrg<R, S> {
    pub actor: Actor,
    pub user: Profile,
    pub org: OrgPlace,
    policy: PhantomData<(R, S)>,
}

/// Whoever has the role in the path's organization, with the scope. A limited token is shown what it reaches, and no more.
#[derive(Debug)]
pub struct InOrgPart<R, S> {
    pub actor: Actor,
    pub user: Profile,
    pub org: OrgPlace,
    /// The projects that may be shown; all of them when none are named.
    pub projects: Option<Vec<ProjectId>>,
    policy: PhantomData<(R, S)>,
}

/// Whoever has the role in the organization of the path's project, with the scope.
#[derive(Debug)]
pub struct InProject<R, S> {
    pub actor: Actor,
    pub user: Profile,
    pub org: OrgPlace,
    pub project: ProjectPlace,
    policy: PhantomData<(R, S)>,
}

/// A node of the platform, on the internal listener.
#[derive(Debug)]
pub struct AsNode {
    pub node: NodeId,
}

/// The organization that a request is about.
#[derive(Debug, Clone)]
pub struct OrgPlace {
    pub id: OrgId,
    pub slug: String,
    pub plan: Plan,
    /// The caller's.
    pub role: Role,
}

/// The project that a request is about.
#[derive(Debug, Clone)]
pub struct ProjectPlace {
    pub id: ProjectId,
    pub name: String,
}

/// Finds the caller and whatever the path names, and counts the request: by its credential, or by the address of
/// whoever has none. Only credentials that exist have a bucket of their own, or made-up ones would fill the memory.
async fn find(request: &HttpRequest, payload: &mut Payload) -> Result<(Actor, Found), Problem> {
    find_by(request, payload, presented(request, &[TokenKind::Session, TokenKind::Access])).await
}

/// The same, by a credential that was taken out of the request already.
pub(super) async fn find_by(
    request: &HttpRequest,
    payload: &mut Payload,
    presented: Result<(TokenKind, Token), Problem>,
) -> Result<(Actor, Found), Problem> {
    let limiters = web::Data::<Limiters>::extract(request, payload).await?;
    let store = web::Data::<Store>::extract(request, payload).await?;
    let (kind, token) = match presented {
        Ok(presented) => presented,
        Err(problem) => return Err(stranger(request, &store, &limiters, problem).await),
    };
    let key = Key::Credential(token.hash());
    let wanted = match limiters.take(request, Limit::General, key, store.world().now())? {
        Taking::Taken => None,
        Taking::Ask(wanted) => Some(wanted),
    };
    let named = |name: &str| request.match_info().get(name);
    let lookup = Lookup { kind, token: token.hash(), org: named("orgSlug"), project: named("projectName"), wanted };
    let found = match resolve(&store, lookup).await {
        // The permits cannot be written down; the caller can be found all the same.
        Err(error) if wanted.is_some() && error.refuses_writes() => {
            resolve(&store, Lookup { wanted: None, ..lookup }).await?
        }
        found => found?,
    };
    let Some(found) = found else {
        return Err(stranger(request, &store, &limiters, invalid()).await);
    };
    if let Some(wanted) = wanted {
        let granted = found.granted.unwrap_or_else(|| limiters.alone(Limit::General, key, wanted));
        limiters.granted(request, Limit::General, key, wanted, granted)?;
    }
    let identity = web::Data::<Identity>::extract(request, payload).await?;
    if identity.is_stale(found.noted) {
        let credential = found.credential;
        // Beside the request: nobody waits for a note, and one that is lost is made by the next request.
        actix_web::rt::spawn(async move {
            if let Err(error) = identity.touch(credential).await {
                tracing::debug!(%error, "the use of a credential was not noted");
            }
        });
    }
    Ok((actor(request, Some(found.user.id), found.credential), found))
}

/// What somebody without a live credential is told: that there is none, or that they came too often.
async fn stranger(request: &HttpRequest, store: &Store, limiters: &Limiters, problem: Problem) -> Problem {
    let counted = limiters.count(request, store, Limit::General, counted_address(request)).await;
    counted.err().unwrap_or(problem)
}

/// Counts a request that needs no credential.
async fn count(request: &HttpRequest, payload: &mut Payload, limit: Limit) -> Result<(), Problem> {
    let limiters = web::Data::<Limiters>::extract(request, payload).await?;
    let store = web::Data::<Store>::extract(request, payload).await?;
    limiters.count(request, &store, limit, counted_address(request)).await
}

impl Found {
    /// Refuses a token that lacks the scope.
    pub(super) fn with_scope(self, needed: Scope) -> Result<Self, Problem> {
        match &self.scopes {
            Some(held) if !held.iter().any(|held| held.covers(needed)) => {
                let message = format!("the token lacks the scope {needed}; make one that has it");
                let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{needed}\"");
                let problem = Problem::new(&protocol::INSUFFICIENT_SCOPE, message);
                Err(problem
                    .with_details(Some(json!({ "required": needed })))
                    .with_header(actix_web::http::header::WWW_AUTHENTICATE, challenge))
            }
            _ => Ok(self),
        }
    }

    /// Whether a token reaches no more than a part of an organization.
    pub(super) fn parts(&self) -> Option<&Vec<ProjectId>> {
        self.only.as_ref().and_then(|only| only.projects.as_ref())
    }
}

fn org_place(org: Option<FoundOrg>, least: Role) -> Result<OrgPlace, Problem> {
    let Some(FoundOrg { id, slug, plan, role }) = org else {
        return Err(Problem::new(&Code::NOT_FOUND, "there is no such organization"));
    };
    let role = role.ok_or_else(not_a_member)?;
    self::least(role, least)?;
    Ok(OrgPlace { id, slug, plan, role })
}

/// Refuses a role that is below the least.
pub(super) fn least(role: Role, least: Role) -> Result<(), Problem> {
    if role >= least {
        return Ok(());
    }
    let message = format!("this needs the role {least}, and you are {role}; ask an admin of the organization");
    Err(Problem::new(&Code::FORBIDDEN, message).with_details(Some(json!({ "required": least }))))
}

/// What an outsider is told, and a token outside of what it is limited to: the same whatever lies within.
fn not_a_member() -> Problem {
    Problem::new(&Code::FORBIDDEN, "you are not a member of this organization, or the token does not reach it")
}

fn actor(request: &HttpRequest, user: Option<kernel::UserId>, credential: Credential) -> Actor {
    Actor { user, credential, request_id: RequestId::text(request), once: None }
}

fn nobody(request: &HttpRequest) -> Actor {
    actor(request, None, Credential::None)
}

impl Describe for Open {
    fn describe(_: &mut Operation) {}
}

impl Extract for Open {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        Ok(Self { actor: nobody(request) })
    }
}

impl Describe for SignIn {
    fn describe(operation: &mut Operation) {
        operation.code(&protocol::RATE_LIMITED);
    }
}

impl Extract for SignIn {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        count(request, payload, Limit::SignIn).await?;
        Ok(Self { actor: nobody(request) })
    }
}

impl Describe for Preview {
    fn describe(operation: &mut Operation) {
        operation.code(&protocol::RATE_LIMITED);
    }
}

impl Extract for Preview {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        count(request, payload, Limit::Preview).await?;
        Ok(Self)
    }
}

impl Describe for Stranger {
    fn describe(operation: &mut Operation) {
        operation.code(&protocol::RATE_LIMITED);
    }
}

impl Extract for Stranger {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        count(request, payload, Limit::General).await?;
        Ok(Self { actor: nobody(request) })
    }
}

impl<S: Needs> Describe for SignedIn<S> {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Account, None, Some(S::SCOPE));
        // A token that is limited to a part of what its user reaches.
        operation.code(&Code::FORBIDDEN);
    }
}

impl<S: Needs> Extract for SignedIn<S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (actor, found) = find(request, payload).await?;
        let found = found.with_scope(S::SCOPE)?;
        if found.only.is_some() {
            let message = "the token is limited to an organization; this concerns the whole account";
            return Err(Problem::new(&Code::FORBIDDEN, message));
        }
        Ok(Self { actor, user: found.user, scope: PhantomData })
    }
}

impl<S: Needs> Describe for SignedInPart<S> {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Account, None, Some(S::SCOPE));
        operation.takes_limited = true;
    }
}

impl<S: Needs> Extract for SignedInPart<S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (actor, found) = find(request, payload).await?;
        let found = found.with_scope(S::SCOPE)?;
        let orgs = found.only.map(|Only { org, projects }| if projects.is_some() { Vec::new() } else { vec![org] });
        Ok(Self { actor, user: found.user, orgs, scope: PhantomData })
    }
}

impl Describe for Session {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Account, None, None);
        operation.session_only = true;
        operation.code(&protocol::SESSION_REQUIRED);
    }
}

impl Extract for Session {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        match find(request, payload).await? {
            (actor, Found { credential: Credential::Session(session), user, .. }) => Ok(Self { actor, user, session }),
            _ => {
                let message = "only a login session serves here; sign in, and send its token instead";
                Err(Problem::new(&protocol::SESSION_REQUIRED, message))
            }
        }
    }
}

impl Describe for ThisToken {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Account, None, None);
        operation.code(&Code::NOT_FOUND);
        operation.takes_limited = true;
    }
}

impl Extract for ThisToken {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        match find(request, payload).await? {
            (actor, Found { credential: Credential::Token(token), user, .. }) => Ok(Self { actor, user, token }),
            _ => Err(Problem::new(&Code::NOT_FOUND, "the request was not made with a personal access token")),
        }
    }
}

impl<R: AtLeast, S: Needs> Describe for InOrg<R, S> {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Org, Some(R::ROLE), Some(S::SCOPE));
        operation.claim_parameter(json!({ "type": "string" }));
    }
}

impl<R: AtLeast, S: Needs> Extract for InOrg<R, S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (actor, found) = find(request, payload).await?;
        let found = found.with_scope(S::SCOPE)?;
        // Of what it does not reach, a token learns not even what it would take.
        if found.parts().is_some() && found.org.is_some() {
            return Err(not_a_member());
        }
        let org = org_place(found.org, R::ROLE)?;
        Ok(Self { actor, user: found.user, org, policy: PhantomData })
    }
}

impl<R: AtLeast, S: Needs> Describe for InOrgPart<R, S> {
    fn describe(operation: &mut Operation) {
        InOrg::<R, S>::describe(operation);
        operation.takes_limited = true;
    }
}

impl<R: AtLeast, S: Needs> Extract for InOrgPart<R, S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (actor, found) = find(request, payload).await?;
        let found = found.with_scope(S::SCOPE)?;
        let projects = found.parts().cloned();
        let org = org_place(found.org, R::ROLE)?;
        Ok(Self { actor, user: found.user, org, projects, policy: PhantomData })
    }
}

impl<R: AtLeast, S: Needs> Describe for InProject<R, S> {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Project, Some(R::ROLE), Some(S::SCOPE));
        operation.claim_parameter(json!({ "type": "string" }));
        operation.claim_parameter(json!({ "type": "string" }));
        operation.takes_limited = true;
    }
}

impl<R: AtLeast, S: Needs> Extract for InProject<R, S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (actor, found) = find(request, payload).await?;
        let found = found.with_scope(S::SCOPE)?;
        // Of what it does not reach, a token learns not even whether it exists.
        let missing = match found.parts() {
            Some(_) => not_a_member(),
            None => Problem::new(&Code::NOT_FOUND, "there is no such project in this organization"),
        };
        if found.parts().is_some() && found.project.is_none() && found.org.is_some() {
            return Err(missing);
        }
        let org = org_place(found.org, R::ROLE)?;
        let (id, name) = found.project.ok_or(missing)?;
        Ok(Self { actor, user: found.user, org, project: ProjectPlace { id, name }, policy: PhantomData })
    }
}

impl Describe for AsNode {
    fn describe(operation: &mut Operation) {
        operation.place = Place::Node;
        operation.code(&Code::UNAUTHENTICATED);
    }
}

impl Extract for AsNode {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (_, token) = presented(request, &[TokenKind::Node])?;
        let nodes = web::Data::<Convergence>::extract(request, payload).await?;
        Ok(Self { node: nodes.nodes().authenticate(&token).await? })
    }
}

impl From<&OrgPlace> for projects::Org {
    fn from(org: &OrgPlace) -> Self {
        Self { id: org.id, slug: org.slug.clone(), plan: org.plan }
    }
}

impl Policy for Open {}
impl Policy for SignIn {}
impl Policy for Preview {}
impl Policy for Stranger {}
impl Policy for AsNode {}

macro_rules! of_a_caller {
    ($([$($generics:tt)*] $policy:ty;)+) => { $(
        impl<$($generics)*> Policy for $policy {
            fn actor(&mut self) -> Option<&mut Actor> {
                Some(&mut self.actor)
            }
        }
    )+ };
}

of_a_caller! {
    [S: Needs] SignedIn<S>;
    [S: Needs] SignedInPart<S>;
    [] Session;
    [] ThisToken;
    [R: AtLeast, S: Needs] InOrg<R, S>;
    [R: AtLeast, S: Needs] InOrgPart<R, S>;
    [R: AtLeast, S: Needs] InProject<R, S>;
}
