//! The policies of routes about an organization, a project or a zone.

use std::marker::PhantomData;
use std::rc::Rc;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use dns::ZoneName;
use identity::Profile;
use kernel::audit::{Actor, RequiredRole};
use kernel::{CallerError, Code, OrgId, Plan, ProjectId, ResourceSet, Role, ZoneId};
use orgs::Slug;
use projects::ProjectName;

use super::authenticate::authenticate;
use super::caller::impl_caller_policies;
use super::resolve::{ResolvedCaller, ResolvedOrg, ResolvedProject, RestrictedTargets};
use super::role::MinimumRole;
use super::scope::RequiredScope;
use super::statement::Target;
use crate::http::{Describe, Extract, Operation, Policy, PolicyTarget, RouteMatch, path_parameters};
use crate::problem::Problem;

/// A member with at least the role `R` in the path's organization. The credential has the scope `S` and covers the
/// whole organization.
#[derive(Debug)]
pub struct InOrg<R, S> {
    pub actor: Actor,
    pub user: Profile,
    pub org: TargetOrg,
    policy: PhantomData<(R, S)>,
}

/// A member with at least the role `R` in the path's organization, and a credential with the scope `S`. A restricted
/// token lists only the targets of its restriction, and is rejected if the restriction has no targets of the kind `T`.
#[derive(Debug)]
pub struct InOrgFiltered<R, S, T> {
    pub actor: Actor,
    pub user: Profile,
    pub org: TargetOrg,
    /// The targets that the listing may show; `None` for all.
    pub targets: Option<Vec<T>>,
    policy: PhantomData<(R, S)>,
}

/// A kind of target to which tokens can be restricted: [`ProjectId`] or [`ZoneId`].
pub trait ListedTarget: Sized + 'static {
    /// Selects the targets of this kind from a restriction. `None` if the restriction has none of this kind.
    fn of_restriction(projects: Option<Vec<ProjectId>>, zones: Option<Vec<ZoneId>>) -> Option<Vec<Self>>;
}

impl ListedTarget for ProjectId {
    fn of_restriction(projects: Option<Vec<Self>>, _: Option<Vec<ZoneId>>) -> Option<Vec<Self>> {
        projects
    }
}

impl ListedTarget for ZoneId {
    fn of_restriction(_: Option<Vec<ProjectId>>, zones: Option<Vec<Self>>) -> Option<Vec<Self>> {
        zones
    }
}

/// A member with at least the role `R` in the organization of the path's project, and a credential with the scope `S`.
#[derive(Debug)]
pub struct InProject<R, S> {
    pub actor: Actor,
    pub user: Profile,
    pub org: TargetOrg,
    pub project: TargetProject,
    /// The zones of the organization that the credential may access; `None` for all.
    pub zones: Option<Vec<ZoneId>>,
    policy: PhantomData<(R, S)>,
}

/// A member with at least the role `R` in the organization of the path's zone, and a credential with the scope `S`. For
/// a token that is restricted to projects or zones, the policy also checks that the zone exists. For all other callers,
/// the service checks that.
#[derive(Debug)]
pub struct InZone<R, S> {
    pub actor: Actor,
    pub org: TargetOrg,
    policy: PhantomData<(R, S)>,
}

/// The organization that a request targets.
#[derive(Debug, Clone)]
pub struct TargetOrg {
    pub id: OrgId,
    pub slug: String,
    pub plan: Plan,
    /// The caller's role.
    pub role: Role,
}

/// The project that a request targets.
#[derive(Debug, Clone)]
pub struct TargetProject {
    pub id: ProjectId,
    pub name: String,
    /// The granted resources.
    pub granted_resources: ResourceSet,
}

/// Requires the role in the target's organization. Returns the organization, and the caller as the actor of an
/// operation that needs the role.
fn require_org_role(
    request: &HttpRequest,
    caller: &mut ResolvedCaller,
    minimum: Role,
) -> Result<(Actor, TargetOrg), Problem> {
    let Some(ResolvedOrg { id, slug, plan, role }) = caller.org.take() else {
        return Err(Problem::new(&Code::NOT_FOUND, "there is no such organization"));
    };
    let role = role.ok_or(CallerError::NotAMember)?;
    let actor = caller.require_role(request, role, RequiredRole { org: id, minimum })?;
    Ok((actor, TargetOrg { id, slug, plan, role }))
}

impl<R: MinimumRole, S: RequiredScope> Describe for InOrg<R, S> {
    fn describe(operation: &mut Operation) {
        operation.require_caller(PolicyTarget::Org, Some(R::ROLE), Some(S::SCOPE));
        operation.claim_parameter::<Slug>();
    }
}

impl<R: MinimumRole, S: RequiredScope> Extract for InOrg<R, S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let caller = authenticate_in_org(request, payload).await?;
        let mut caller = caller.with_scope(request, S::SCOPE)?;
        caller.require_access(false)?;
        let (actor, org) = require_org_role(request, &mut caller, R::ROLE)?;
        Ok(Self { actor, user: caller.user, org, policy: PhantomData })
    }
}

impl<R: MinimumRole, S: RequiredScope, T: ListedTarget> Describe for InOrgFiltered<R, S, T> {
    fn describe(operation: &mut Operation) {
        InOrg::<R, S>::describe(operation);
        operation.accepts_restricted_tokens = true;
    }
}

impl<R: MinimumRole, S: RequiredScope, T: ListedTarget> Extract for InOrgFiltered<R, S, T> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let caller = authenticate_in_org(request, payload).await?;
        let mut caller = caller.with_scope(request, S::SCOPE)?;
        let targets = caller.restricted_targets().cloned();
        let targets = targets.and_then(|RestrictedTargets { projects, zones }| T::of_restriction(projects, zones));
        caller.require_access(targets.is_some())?;
        let (actor, org) = require_org_role(request, &mut caller, R::ROLE)?;
        Ok(Self { actor, user: caller.user, org, targets, policy: PhantomData })
    }
}

impl<R: MinimumRole, S: RequiredScope> Describe for InProject<R, S> {
    fn describe(operation: &mut Operation) {
        operation.require_caller(PolicyTarget::Project, Some(R::ROLE), Some(S::SCOPE));
        operation.claim_parameter::<Slug>();
        operation.claim_parameter::<ProjectName>();
        operation.accepts_restricted_tokens = true;
    }
}

impl<R: MinimumRole, S: RequiredScope> Extract for InProject<R, S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let path = RouteMatch::of(request);
        let target = Target::Project { org: path_value(&path, "orgSlug")?, project: path_value(&path, "projectName")? };
        let caller = authenticate(request, payload, target).await?;
        let mut caller = caller.with_scope(request, S::SCOPE)?;
        caller.require_access(caller.project.is_some())?;
        let zones = caller.accessible_zones();
        let (actor, org) = require_org_role(request, &mut caller, R::ROLE)?;
        let not_found = || Problem::new(&Code::NOT_FOUND, "there is no such project in this organization");
        let ResolvedProject { id, name, granted_resources } = caller.project.ok_or_else(not_found)?;
        let project = TargetProject { id, name, granted_resources };
        Ok(Self { actor, user: caller.user, org, project, zones, policy: PhantomData })
    }
}

impl<R: MinimumRole, S: RequiredScope> Describe for InZone<R, S> {
    fn describe(operation: &mut Operation) {
        operation.require_caller(PolicyTarget::Zone, Some(R::ROLE), Some(S::SCOPE));
        operation.claim_parameter::<Slug>();
        operation.accepts_restricted_tokens = true;
    }
}

impl<R: MinimumRole, S: RequiredScope> Extract for InZone<R, S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let path = RouteMatch::of(request);
        let zone = ZoneName::parse(path_value(&path, "zone")?).ok();
        let zone = zone.as_ref().map(ZoneName::as_str);
        let target = Target::Zone { org: path_value(&path, "orgSlug")?, zone };
        let caller = authenticate(request, payload, target).await?;
        let mut caller = caller.with_scope(request, S::SCOPE)?;
        caller.require_access(caller.zone.is_some())?;
        let (actor, org) = require_org_role(request, &mut caller, R::ROLE)?;
        Ok(Self { actor, org, policy: PhantomData })
    }
}

/// Authenticates the caller of a route about the path's organization.
async fn authenticate_in_org(request: &HttpRequest, payload: &mut Payload) -> Result<ResolvedCaller, Problem> {
    let path = RouteMatch::of(request);
    authenticate(request, payload, Target::Org { org: path_value(&path, "orgSlug")? }).await
}

/// Returns the value of a path parameter that every route of the policy has.
fn path_value<'a>(path: &'a Option<Rc<RouteMatch>>, name: &str) -> Result<&'a str, Problem> {
    let value = path.as_ref().and_then(|path| path.get(name));
    value.ok_or_else(|| Problem::internal(format!("the route has no parameter {name}")))
}

path_parameters! {
    Slug: "The organization's slug.", "acme";
    ProjectName: "The project's name.", "site";
}

impl From<&TargetOrg> for projects::Org {
    fn from(org: &TargetOrg) -> Self {
        Self { id: org.id, slug: org.slug.clone(), plan: org.plan }
    }
}

impl<R: MinimumRole, S: RequiredScope> Policy for InProject<R, S> {
    fn actor(&mut self) -> Option<&mut Actor> {
        Some(&mut self.actor)
    }

    fn plan(&self) -> Option<Plan> {
        Some(self.org.plan)
    }
}

impl_caller_policies! {
    [R: MinimumRole, S: RequiredScope] InOrg<R, S>;
    [R: MinimumRole, S: RequiredScope, T: ListedTarget] InOrgFiltered<R, S, T>;
    [R: MinimumRole, S: RequiredScope] InZone<R, S>;
}
