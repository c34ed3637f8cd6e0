//! The policies of routes about an organization, a project or a zone.

use std::marker::PhantomData;
use std::rc::Rc;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use dns::ZoneName;
use identity::Profile;
use kernel::audit::Actor;
use kernel::{Code, OrgId, Plan, ProjectId, ResourceSet, Role, ZoneId};
use orgs::Slug;
use projects::ProjectName;

use super::caller::policies_of_callers;
use super::find::{find, least, not_a_member};
use super::resolve::{Found, FoundOrg, FoundProject, Parts};
use super::role::AtLeast;
use super::scope::Needs;
use super::statement::Target;
use crate::http::{Describe, Extract, Matched, Operation, Place, path_parameters};
use crate::problem::Problem;

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
    /// The projects that a listing may show; `None` for all.
    pub projects: Option<Vec<ProjectId>>,
    /// The zones that a listing may show; `None` for all.
    pub zones: Option<Vec<ZoneId>>,
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

/// A member with at least the role in the organization of the path's zone, with the scope. Only a token that is restricted to parts
/// of the organization needs the zone to exist: to every other caller the service answers whether it does.
#[derive(Debug)]
pub struct InZone<R, S> {
    pub actor: Actor,
    pub org: OrgPlace,
    policy: PhantomData<(R, S)>,
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
    /// The resources that it is granted.
    pub granted: ResourceSet,
}

fn org_place(org: Option<FoundOrg>, least: Role) -> Result<OrgPlace, Problem> {
    let Some(FoundOrg { id, slug, plan, role }) = org else {
        return Err(Problem::new(&Code::NOT_FOUND, "there is no such organization"));
    };
    let role = role.ok_or_else(not_a_member)?;
    self::least(role, least)?;
    Ok(OrgPlace { id, slug, plan, role })
}

impl<R: AtLeast, S: Needs> Describe for InOrg<R, S> {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Org, Some(R::ROLE), Some(S::SCOPE));
        operation.claim_parameter::<Slug>();
    }
}

impl<R: AtLeast, S: Needs> Extract for InOrg<R, S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (actor, found) = find_org(request, payload).await?;
        let found = found.with_scope(S::SCOPE)?;
        found.require_reach(false)?;
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
        let (actor, found) = find_org(request, payload).await?;
        let found = found.with_scope(S::SCOPE)?;
        let (projects, zones) = found.parts().cloned().map(|Parts { projects, zones }| (projects, zones)).unzip();
        let org = org_place(found.org, R::ROLE)?;
        Ok(Self { actor, user: found.user, org, projects, zones, policy: PhantomData })
    }
}

impl<R: AtLeast, S: Needs> Describe for InProject<R, S> {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Project, Some(R::ROLE), Some(S::SCOPE));
        operation.claim_parameter::<Slug>();
        operation.claim_parameter::<ProjectName>();
        operation.takes_limited = true;
    }
}

impl<R: AtLeast, S: Needs> Extract for InProject<R, S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let path = Matched::of(request);
        let target = Target::Project { org: named(&path, "orgSlug")?, project: named(&path, "projectName")? };
        let (actor, found) = find(request, payload, target).await?;
        let found = found.with_scope(S::SCOPE)?;
        found.require_reach(found.project.is_some())?;
        let org = org_place(found.org, R::ROLE)?;
        let missing = || Problem::new(&Code::NOT_FOUND, "there is no such project in this organization");
        let FoundProject { id, name, granted } = found.project.ok_or_else(missing)?;
        let project = ProjectPlace { id, name, granted };
        Ok(Self { actor, user: found.user, org, project, policy: PhantomData })
    }
}

impl<R: AtLeast, S: Needs> Describe for InZone<R, S> {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Zone, Some(R::ROLE), Some(S::SCOPE));
        operation.claim_parameter::<Slug>();
        operation.takes_limited = true;
    }
}

impl<R: AtLeast, S: Needs> Extract for InZone<R, S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let path = Matched::of(request);
        let zone = ZoneName::parse(named(&path, "zone")?).ok();
        let zone = zone.as_ref().map(ZoneName::as_str);
        let target = Target::Zone { org: named(&path, "orgSlug")?, zone };
        let (actor, found) = find(request, payload, target).await?;
        let found = found.with_scope(S::SCOPE)?;
        found.require_reach(found.zone.is_some())?;
        let org = org_place(found.org, R::ROLE)?;
        Ok(Self { actor, org, policy: PhantomData })
    }
}

/// The lookup of a route about the path's organization.
async fn find_org(request: &HttpRequest, payload: &mut Payload) -> Result<(Actor, Found), Problem> {
    let path = Matched::of(request);
    find(request, payload, Target::Org { org: named(&path, "orgSlug")? }).await
}

/// A parameter of the path that the policy's routes have.
fn named<'a>(path: &'a Option<Rc<Matched>>, name: &str) -> Result<&'a str, Problem> {
    let value = path.as_ref().and_then(|path| path.get(name));
    value.ok_or_else(|| Problem::internal(format!("the route has no parameter {name}")))
}

path_parameters! {
    Slug: "The organization's slug.", "acme";
    ProjectName: "The project's name.", "site";
}

impl From<&OrgPlace> for projects::Org {
    fn from(org: &OrgPlace) -> Self {
        Self { id: org.id, slug: org.slug.clone(), plan: org.plan }
    }
}

policies_of_callers! {
    [R: AtLeast, S: Needs] InOrg<R, S>;
    [R: AtLeast, S: Needs] InOrgPart<R, S>;
    [R: AtLeast, S: Needs] InProject<R, S>;
    [R: AtLeast, S: Needs] InZone<R, S>;
}
