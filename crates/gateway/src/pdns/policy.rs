//! The policies of the PowerDNS-compatible API: types that state the minimum role and the scope. The caller is the user of
//! the personal access token in `X-API-Key`.
//!
//! The path names no organization: it follows from the zone, or for a new zone from the token. A zone that the token may not
//! access is 404, like one that does not exist.

use std::marker::PhantomData;

use actix_web::dev::Payload;
use actix_web::{HttpRequest, web};
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text, Uuid};
use diesel_async::RunQueryDsl;
use dns::ZoneName;
use kernel::audit::Actor;
use kernel::{Code, OrgId, Role, ZoneId};
use store::{Cached, Store};

use super::refusal::unprocessable;
use crate::authority::role::AtLeast;
use crate::authority::scope::Needs;
use crate::authority::{Found, FoundOrg, Presented, Target, find_by, invalid, least, policies_of_callers};
use crate::http::{Describe, Extract, Matched, Operation, Place};
use crate::problem::Problem;
use crate::require::RequireDns;
use crate::v1::ZoneParameter;

/// Anyone with a live token that has the scope.
#[derive(Debug)]
pub struct Keyed<S> {
    pub actor: Actor,
    /// The organizations that the token may access, by slug.
    pub orgs: Vec<KeyedOrgPlace>,
    /// The zones that a listing may show; `None` for all of the organizations'.
    pub zones: Option<Vec<ZoneId>>,
    scope: PhantomData<S>,
}

/// Whoever has the role in the one organization that a new zone can be meant for: that which the token is restricted
/// to, or else the user's only one.
#[derive(Debug)]
pub struct KeyedOrg<R, S> {
    pub actor: Actor,
    pub org: KeyedOrgPlace,
    policy: PhantomData<(R, S)>,
}

/// Whoever has the role in the organization of the path's zone.
#[derive(Debug)]
pub struct KeyedZone<R, S> {
    pub actor: Actor,
    pub org: KeyedOrgPlace,
    pub zone: ZoneName,
    policy: PhantomData<(R, S)>,
}

/// An organization that the token may access.
#[derive(Debug, Clone, QueryableByName)]
pub struct KeyedOrgPlace {
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
async fn authenticate<S: Needs>(
    request: &HttpRequest,
    payload: &mut Payload,
    target: Target<'_>,
) -> Result<(Actor, Found), Problem> {
    let (actor, found) = find_by(request, payload, key(request), target).await?;
    let found = found.with_scope(S::SCOPE)?;
    // A deployment that hosts no zones reveals nothing about zones.
    RequireDns::extract(request, payload).await?;
    Ok((actor, found))
}

/// The token in PowerDNS's header.
fn key(request: &HttpRequest) -> Result<Presented, Problem> {
    let mut sent = request.headers().get_all("x-api-key");
    let Some(first) = sent.next() else {
        return Err(Problem::new(&Code::UNAUTHENTICATED, "Unauthorized: send a personal access token as X-API-Key"));
    };
    let text = first.to_str().ok().filter(|_| sent.next().is_none()).unwrap_or_default();
    Presented::access_token(text).ok_or_else(invalid)
}

fn no_zone() -> Problem {
    Problem::new(&Code::NOT_FOUND, "Not Found: there is no such zone, or the token does not reach it")
}

/// The organizations that the token may access, by slug.
async fn orgs_of(request: &HttpRequest, payload: &mut Payload, found: &Found) -> Result<Vec<KeyedOrgPlace>, Problem> {
    let store = web::Data::<Store>::extract(request, payload).await?;
    let only = found.restriction.as_ref().map(|restriction| restriction.org);
    let query = diesel::sql_query(ORGS_OF_USER).bind::<Uuid, _>(found.user.id).bind::<Nullable<Uuid>, _>(only);
    let orgs: store::Result<_> =
        Cached(query).get_results(&mut *store.connection().await?).await.map_err(store::Error::from);
    Ok(orgs?)
}

impl<S: Needs> Describe for Keyed<S> {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Account, None, Some(S::SCOPE));
        operation.takes_limited = true;
        RequireDns::describe(operation);
    }
}

impl<S: Needs> Extract for Keyed<S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (actor, found) = authenticate::<S>(request, payload, Target::Account).await?;
        let zones = found.parts().map(|parts| parts.zones.clone());
        let orgs = if zones.as_ref().is_some_and(Vec::is_empty) {
            Vec::new()
        } else {
            orgs_of(request, payload, &found).await?
        };
        Ok(Self { actor, orgs, zones, scope: PhantomData })
    }
}

impl<R: AtLeast, S: Needs> Describe for KeyedOrg<R, S> {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Org, Some(R::ROLE), Some(S::SCOPE));
        operation.takes_limited = true;
        RequireDns::describe(operation);
    }
}

impl<R: AtLeast, S: Needs> Extract for KeyedOrg<R, S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (actor, found) = authenticate::<S>(request, payload, Target::Account).await?;
        if found.parts().is_some() {
            return Err(unprocessable(
                "the token is limited to projects or zones; a new zone needs one that reaches the whole organization",
            ));
        }
        let mut orgs = orgs_of(request, payload, &found).await?;
        let (Some(org), true) = (orgs.pop(), orgs.is_empty()) else {
            return Err(unprocessable(
                "which organization is the new zone of? Make a token that is restricted to one ({\"restrict\": {\"org\": …}})",
            ));
        };
        least(org.role, R::ROLE)?;
        Ok(Self { actor, org, policy: PhantomData })
    }
}

impl<R: AtLeast, S: Needs> Describe for KeyedZone<R, S> {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Zone, Some(R::ROLE), Some(S::SCOPE));
        operation.claim_parameter::<ZoneParameter>();
        operation.takes_limited = true;
        RequireDns::describe(operation);
    }
}

impl<R: AtLeast, S: Needs> Extract for KeyedZone<R, S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let path = Matched::of(request);
        let name = path.as_ref().and_then(|path| path.get("zone"));
        let zone = ZoneName::parse(name.unwrap_or_default());
        let target = zone.as_ref().map_or(Target::Account, |zone| Target::HostedZone { zone: zone.as_str() });
        let (actor, found) = authenticate::<S>(request, payload, target).await?;
        let Some(FoundOrg { id, slug, role: Some(role), .. }) = found.org else { return Err(no_zone()) };
        least(role, R::ROLE)?;
        let zone = zone.map_err(|_| no_zone())?;
        Ok(Self { actor, org: KeyedOrgPlace { id, slug, role }, zone, policy: PhantomData })
    }
}

policies_of_callers! {
    [S: Needs] Keyed<S>;
    [R: AtLeast, S: Needs] KeyedOrg<R, S>;
    [R: AtLeast, S: Needs] KeyedZone<R, S>;
}
