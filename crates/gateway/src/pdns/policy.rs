//! The policies of the PowerDNS-compatible API: types that state the minimum role and the scope. The caller is the user
//! whose personal access token is in the header `X-API-Key`.
//!
//! The path does not name the organization. A request about an existing zone concerns the zone's organization, and a
//! new zone is created in the token's organization. The response for a zone that the token may not access is 404, as
//! for a zone that does not exist.

use std::marker::PhantomData;

use actix_web::dev::Payload;
use actix_web::{HttpRequest, web};
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text, Uuid};
use diesel_async::RunQueryDsl;
use dns::ZoneName;
use kernel::audit::{Actor, RequiredRole};
use kernel::{Code, OrgId, Role, ZoneId};
use store::{Prepared, Store};

use super::error::unprocessable;
use crate::authority::role::MinimumRole;
use crate::authority::scope::RequiredScope;
use crate::authority::{
    PresentedCredential, ResolvedCaller, ResolvedOrg, Target, authenticate_with, impl_caller_policies,
    invalid_credential,
};
use crate::http::{Describe, Extract, Operation, PolicyTarget, RouteMatch};
use crate::problem::Problem;
use crate::require::RequireDns;
use crate::v1::ZoneParameter;

/// A caller with a valid token that has the scope.
#[derive(Debug)]
pub struct ApiKeyCaller<S> {
    pub actor: Actor,
    /// The organizations that the token may access, sorted by slug.
    pub orgs: Vec<AccessibleOrg>,
    /// The zones that a listing may show; `None` for all zones of the organizations.
    pub zones: Option<Vec<ZoneId>>,
    scope: PhantomData<S>,
}

/// A member with at least the role `R` in the organization of a new zone. This is the organization to which the token
/// is restricted; without a restriction, it is the user's only organization.
#[derive(Debug)]
pub struct ApiKeyOrg<R, S> {
    pub actor: Actor,
    pub org: AccessibleOrg,
    policy: PhantomData<(R, S)>,
}

/// A member with at least the role `R` in the organization of the path's zone.
#[derive(Debug)]
pub struct ApiKeyZone<R, S> {
    pub actor: Actor,
    pub org: AccessibleOrg,
    pub zone: ZoneName,
    policy: PhantomData<(R, S)>,
}

/// An organization that the token may access.
#[derive(Debug, Clone, QueryableByName)]
pub struct AccessibleOrg {
    #[diesel(sql_type = Uuid)]
    pub id: OrgId,
    #[diesel(sql_type = Text)]
    pub slug: String,
    #[diesel(sql_type = Text)]
    role: Role,
}

const ORGS_OF_USER: &str = "\
    SELECT o.id, o.slug, m.role FROM orgs.members m JOIN orgs.orgs o ON o.id = m.org_id \
    WHERE m.user_id = $1 AND ($2 IS NULL OR m.org_id = $2) ORDER BY o.slug";

/// Authenticates the token, and requires its scope and that zones are hosted.
async fn authenticate<S: RequiredScope>(
    request: &HttpRequest,
    payload: &mut Payload,
    target: Target<'_>,
) -> Result<ResolvedCaller, Problem> {
    let caller = authenticate_with(request, payload, read_api_key(request), target).await?;
    let caller = caller.with_scope(request, S::SCOPE)?;
    // The check of DNS hosting comes first, so that the response of an installation without it reveals nothing about
    // zones.
    RequireDns::extract(request, payload).await?;
    Ok(caller)
}

/// Reads the token in PowerDNS's header.
fn read_api_key(request: &HttpRequest) -> Result<PresentedCredential, Problem> {
    let mut sent = request.headers().get_all("x-api-key");
    let Some(first) = sent.next() else {
        return Err(Problem::new(&Code::UNAUTHENTICATED, "Unauthorized: send a personal access token as X-API-Key"));
    };
    let text = first.to_str().ok().filter(|_| sent.next().is_none()).unwrap_or_default();
    PresentedCredential::access_token(text).ok_or_else(invalid_credential)
}

fn zone_not_found() -> Problem {
    Problem::new(&Code::NOT_FOUND, "Not Found: the zone does not exist, or the token has no access to it")
}

/// Returns the organizations that the token may access, sorted by slug.
async fn accessible_orgs(
    request: &HttpRequest,
    payload: &mut Payload,
    caller: &ResolvedCaller,
) -> Result<Vec<AccessibleOrg>, Problem> {
    let store = web::Data::<Store>::extract(request, payload).await?;
    let only = caller.restriction.as_ref().map(|restriction| restriction.org);
    let query = diesel::sql_query(ORGS_OF_USER).bind::<Uuid, _>(caller.user.id).bind::<Nullable<Uuid>, _>(only);
    let orgs: store::Result<_> =
        Prepared(query).get_results(&mut *store.connection().await?).await.map_err(store::Error::from);
    Ok(orgs?)
}

impl<S: RequiredScope> Describe for ApiKeyCaller<S> {
    fn describe(operation: &mut Operation) {
        operation.require_caller(PolicyTarget::Account, None, Some(S::SCOPE));
        operation.accepts_restricted_tokens = true;
        RequireDns::describe(operation);
    }
}

impl<S: RequiredScope> Extract for ApiKeyCaller<S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let caller = authenticate::<S>(request, payload, Target::Account).await?;
        let zones = caller.accessible_zones();
        let orgs = if zones.as_ref().is_some_and(Vec::is_empty) {
            Vec::new()
        } else {
            accessible_orgs(request, payload, &caller).await?
        };
        Ok(Self { actor: caller.actor(request, None), orgs, zones, scope: PhantomData })
    }
}

impl<R: MinimumRole, S: RequiredScope> Describe for ApiKeyOrg<R, S> {
    fn describe(operation: &mut Operation) {
        operation.require_caller(PolicyTarget::Org, Some(R::ROLE), Some(S::SCOPE));
        operation.accepts_restricted_tokens = true;
        RequireDns::describe(operation);
    }
}

impl<R: MinimumRole, S: RequiredScope> Extract for ApiKeyOrg<R, S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let caller = authenticate::<S>(request, payload, Target::Account).await?;
        if caller.restricted_targets().is_some() {
            return Err(unprocessable(
                "the token is restricted to projects or zones; use a token for the whole organization to create a zone",
            ));
        }
        let mut orgs = accessible_orgs(request, payload, &caller).await?;
        let (Some(org), true) = (orgs.pop(), orgs.is_empty()) else {
            return Err(unprocessable(
                "the token does not determine the organization of the new zone; use a token that is restricted to one \
                 ({\"restrict\": {\"org\": …}})",
            ));
        };
        let actor = caller.require_role(request, org.role, RequiredRole { org: org.id, minimum: R::ROLE })?;
        Ok(Self { actor, org, policy: PhantomData })
    }
}

impl<R: MinimumRole, S: RequiredScope> Describe for ApiKeyZone<R, S> {
    fn describe(operation: &mut Operation) {
        operation.require_caller(PolicyTarget::Zone, Some(R::ROLE), Some(S::SCOPE));
        operation.claim_parameter::<ZoneParameter>();
        operation.accepts_restricted_tokens = true;
        RequireDns::describe(operation);
    }
}

impl<R: MinimumRole, S: RequiredScope> Extract for ApiKeyZone<R, S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let path = RouteMatch::of(request);
        let name = path.as_ref().and_then(|path| path.get("zone"));
        let zone = ZoneName::parse(name.unwrap_or_default());
        let target = zone.as_ref().map_or(Target::Account, |zone| Target::HostedZone { zone: zone.as_str() });
        let mut caller = authenticate::<S>(request, payload, target).await?;
        let Some(ResolvedOrg { id, slug, role: Some(role), .. }) = caller.org.take() else {
            return Err(zone_not_found());
        };
        let actor = caller.require_role(request, role, RequiredRole { org: id, minimum: R::ROLE })?;
        let zone = zone.map_err(|_| zone_not_found())?;
        Ok(Self { actor, org: AccessibleOrg { id, slug, role }, zone, policy: PhantomData })
    }
}

impl_caller_policies! {
    [S: RequiredScope] ApiKeyCaller<S>;
    [R: MinimumRole, S: RequiredScope] ApiKeyOrg<R, S>;
    [R: MinimumRole, S: RequiredScope] ApiKeyZone<R, S>;
}
