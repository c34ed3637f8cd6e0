//! The policies: first arguments of handlers.

use std::marker::PhantomData;

use actix_web::dev::Payload;
use actix_web::{HttpRequest, web};
use convergence::Convergence;
use identity::{Identity, Profile};
use kernel::audit::{Actor, Credential};
use kernel::{Code, NodeId, OrgId, Plan, ProjectId, Role, SessionId, TokenKind};
use serde_json::json;
use store::Store;

use super::credential::{bearer, counted_address, invalid};
use super::resolve::{Found, FoundOrg, Lookup, resolve};
use super::role::AtLeast;
use super::scope::Needs;
use crate::http::{Describe, Extract, Operation, Place, Policy, RequestId};
use crate::limits::{Key, Limit, Limiters};
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

/// Anyone with a live credential that has the scope.
#[derive(Debug)]
pub struct SignedIn<S> {
    pub actor: Actor,
    pub user: Profile,
    scope: PhantomData<S>,
}

/// Anyone with a login session; no token serves.
#[derive(Debug)]
pub struct Session {
    pub actor: Actor,
    pub user: Profile,
    pub session: SessionId,
}

/// Whoever has the role in the path's organization, with the scope.
#[derive(Debug)]
pub struct InOrg<R, S> {
    pub actor: Actor,
    pub user: Profile,
    pub org: OrgPlace,
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
/// whoever has none.
async fn find(request: &HttpRequest, payload: &mut Payload) -> Result<(Actor, Found), Problem> {
    let limiters = web::Data::<Limiters>::extract(request, payload).await?;
    let stranger = |problem| {
        let counted = limiters.count(request, Limit::Credential, Key::Address(counted_address(request)));
        counted.err().unwrap_or(problem)
    };
    let token = bearer(request, TokenKind::Session).map_err(stranger)?;
    let store = web::Data::<Store>::extract(request, payload).await?;
    let named = |name: &str| request.match_info().get(name);
    let lookup = Lookup { token: token.hash(), org: named("orgSlug"), project: named("projectName") };
    let found = resolve(&store, lookup).await?.ok_or_else(|| stranger(invalid()))?;
    // Only credentials that exist have a bucket of their own, or made-up ones would fill the memory.
    limiters.count(request, Limit::Credential, Key::Credential(token.hash()))?;
    let (began, last_used) = found.used;
    let identity = web::Data::<Identity>::extract(request, payload).await?;
    if identity.is_stale(last_used, began) {
        let session = found.session;
        // Beside the request: nobody waits for a note, and one that is lost is made by the next request.
        actix_web::rt::spawn(async move {
            if let Err(error) = identity.session_touch(session).await {
                tracing::debug!(%error, "the use of a session was not noted");
            }
        });
    }
    let credential = Credential::Session(found.session);
    Ok((Actor { user: Some(found.user.id), credential, request_id: RequestId::text(request) }, found))
}

fn org_place(org: Option<FoundOrg>, least: Role) -> Result<OrgPlace, Problem> {
    let Some(FoundOrg { id, slug, plan, role }) = org else {
        return Err(Problem::new(&Code::NOT_FOUND, "there is no such organization"));
    };
    match role {
        Some(role) if role >= least => Ok(OrgPlace { id, slug, plan, role }),
        Some(role) => {
            let message = format!("this needs the role {least}, and you are {role}; ask an admin of the organization");
            Err(Problem::new(&Code::FORBIDDEN, message).with_details(Some(json!({ "required": least }))))
        }
        None => Err(Problem::new(&Code::FORBIDDEN, "you are not a member of this organization")),
    }
}

fn nobody(request: &HttpRequest) -> Actor {
    Actor { user: None, credential: Credential::None, request_id: RequestId::text(request) }
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
        let limiters = web::Data::<Limiters>::extract(request, payload).await?;
        limiters.count(request, Limit::SignIn, Key::Address(counted_address(request)))?;
        Ok(Self { actor: nobody(request) })
    }
}

impl<S: Needs> Describe for SignedIn<S> {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Account, None, Some(S::SCOPE));
    }
}

impl<S: Needs> Extract for SignedIn<S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (actor, found) = find(request, payload).await?;
        Ok(Self { actor, user: found.user, scope: PhantomData })
    }
}

impl Describe for Session {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Account, None, None);
    }
}

impl Extract for Session {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (actor, found) = find(request, payload).await?;
        Ok(Self { actor, user: found.user, session: found.session })
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
        let org = org_place(found.org, R::ROLE)?;
        Ok(Self { actor, user: found.user, org, policy: PhantomData })
    }
}

impl<R: AtLeast, S: Needs> Describe for InProject<R, S> {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Project, Some(R::ROLE), Some(S::SCOPE));
        operation.claim_parameter(json!({ "type": "string" }));
        operation.claim_parameter(json!({ "type": "string" }));
    }
}

impl<R: AtLeast, S: Needs> Extract for InProject<R, S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (actor, found) = find(request, payload).await?;
        let org = org_place(found.org, R::ROLE)?;
        let no_project = || Problem::new(&Code::NOT_FOUND, "there is no such project in this organization");
        let (id, name) = found.project.ok_or_else(no_project)?;
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
        let token = bearer(request, TokenKind::Node)?;
        let nodes = web::Data::<Convergence>::extract(request, payload).await?;
        Ok(Self { node: nodes.authenticate(&token).await? })
    }
}

impl From<&OrgPlace> for projects::Org {
    fn from(org: &OrgPlace) -> Self {
        Self { id: org.id, slug: org.slug.clone(), plan: org.plan }
    }
}

impl Policy for Open {}
impl Policy for SignIn {}
impl<S: Needs> Policy for SignedIn<S> {}
impl Policy for Session {}
impl<R: AtLeast, S: Needs> Policy for InOrg<R, S> {}
impl<R: AtLeast, S: Needs> Policy for InProject<R, S> {}
impl Policy for AsNode {}
