//! Who may call the PowerDNS-compatible face: types that state the least role and the scope, of whoever's personal
//! access token comes as `X-API-Key`.
//!
//! The path names no organization: it follows from the zone, or for a new one from the token. A zone that the token
//! does not reach is answered like one that is nowhere (404).

use std::marker::PhantomData;

use actix_web::dev::Payload;
use actix_web::{HttpRequest, web};
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text, Uuid};
use diesel_async::RunQueryDsl;
use dns::ZoneName;
use kernel::audit::Actor;
use kernel::{Code, OrgId, Role, Token, TokenKind, UserId};
use store::{Cached, Store};

use super::refusal::unprocessable;
use crate::authority::role::AtLeast;
use crate::authority::scope::Needs;
use crate::authority::{Found, find_by, invalid, least, policies_of_callers};
use crate::http::{Describe, Extract, Matched, Operation, Place};
use crate::problem::Problem;
use crate::require::RequireDns;
use crate::v1::ZoneParameter;

/// Anyone with a live token that has the scope.
#[derive(Debug)]
pub struct Keyed<S> {
    pub actor: Actor,
    /// By slug.
    pub orgs: Vec<KeyedOrgPlace>,
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

/// An organization that the token reaches.
#[derive(Debug, Clone, QueryableByName)]
pub struct KeyedOrgPlace {
    #[diesel(sql_type = Uuid)]
    pub id: OrgId,
    #[diesel(sql_type = Text)]
    pub slug: String,
    #[diesel(sql_type = Text)]
    role: Role,
}

const OF_USER: &str = "\
    SELECT o.id, o.slug, m.role FROM orgs.members m JOIN orgs.orgs o ON o.id = m.org_id \
    WHERE m.user_id = $1 AND ($2 IS NULL OR m.org_id = $2) ORDER BY o.slug";

const OF_ZONE: &str = "\
    SELECT o.id, o.slug, m.role FROM dns.zones z \
    JOIN orgs.members m ON m.org_id = z.org_id AND m.user_id = $1 JOIN orgs.orgs o ON o.id = z.org_id \
    WHERE z.name = $3 AND ($2 IS NULL OR z.org_id = $2)";

/// Whom the key belongs to, and what it is limited to.
struct Holder {
    actor: Actor,
    user: UserId,
    only_org: Option<OrgId>,
    /// It is limited to parts of the organization, none of which is a zone.
    in_parts: bool,
}

async fn holder<S: Needs>(request: &HttpRequest, payload: &mut Payload) -> Result<Holder, Problem> {
    let (actor, found) = find_by(request, payload, key(request)).await?;
    let found: Found = found.with_scope(S::SCOPE)?;
    // Nobody learns which zones there are where none are hosted.
    RequireDns::extract(request, payload).await?;
    let in_parts = found.parts().is_some();
    Ok(Holder { actor, user: found.user.id, only_org: found.only.map(|only| only.org), in_parts })
}

/// The token in the header that PowerDNS names so.
fn key(request: &HttpRequest) -> Result<(TokenKind, Token), Problem> {
    let mut sent = request.headers().get_all("x-api-key");
    let Some(first) = sent.next() else {
        return Err(Problem::new(&Code::UNAUTHENTICATED, "Unauthorized: send a personal access token as X-API-Key"));
    };
    let text = first.to_str().ok().filter(|_| sent.next().is_none()).unwrap_or_default();
    Token::parse(TokenKind::Access, text.trim()).map(|token| (TokenKind::Access, token)).ok_or_else(invalid)
}

fn no_zone() -> Problem {
    Problem::new(&Code::NOT_FOUND, "Not Found: there is no such zone, or the token does not reach it")
}

async fn orgs_of(
    request: &HttpRequest,
    payload: &mut Payload,
    holder: &Holder,
    zone: Option<&ZoneName>,
) -> Result<Vec<KeyedOrgPlace>, Problem> {
    if holder.in_parts {
        return Ok(Vec::new());
    }
    let store = web::Data::<Store>::extract(request, payload).await?;
    let mut connection = store.connection().await?;
    let by_user = |text: &'static str| {
        diesel::sql_query(text).bind::<Uuid, _>(holder.user).bind::<Nullable<Uuid>, _>(holder.only_org)
    };
    let found: store::Result<_> = match zone {
        None => Cached(by_user(OF_USER)).get_results(&mut *connection).await,
        Some(zone) => Cached(by_user(OF_ZONE).bind::<Text, _>(zone.as_str())).get_results(&mut *connection).await,
    }
    .map_err(store::Error::from);
    Ok(found?)
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
        let holder = holder::<S>(request, payload).await?;
        let orgs = orgs_of(request, payload, &holder, None).await?;
        Ok(Self { actor: holder.actor, orgs, scope: PhantomData })
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
        let holder = holder::<S>(request, payload).await?;
        let mut orgs = orgs_of(request, payload, &holder, None).await?;
        let (Some(org), true) = (orgs.pop(), orgs.is_empty()) else {
            return Err(unprocessable(if holder.in_parts {
                "the token is limited to projects; a new zone needs one that reaches the whole organization"
            } else {
                "which organization is the new zone of? Make a token that is restricted to one ({\"restrict\": {\"org\": …}})"
            }));
        };
        least(org.role, R::ROLE)?;
        Ok(Self { actor: holder.actor, org, policy: PhantomData })
    }
}

impl<R: AtLeast, S: Needs> Describe for KeyedZone<R, S> {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Org, Some(R::ROLE), Some(S::SCOPE));
        operation.claim_parameter::<ZoneParameter>();
        operation.takes_limited = true;
        RequireDns::describe(operation);
    }
}

impl<R: AtLeast, S: Needs> Extract for KeyedZone<R, S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let holder = holder::<S>(request, payload).await?;
        let matched = Matched::of(request);
        let named = matched.as_ref().and_then(|matched| matched.get("zone"));
        let zone = ZoneName::parse(named.unwrap_or_default()).map_err(|_| no_zone())?;
        let org = orgs_of(request, payload, &holder, Some(&zone)).await?.pop();
        let org = org.ok_or_else(no_zone)?;
        least(org.role, R::ROLE)?;
        Ok(Self { actor: holder.actor, org, zone, policy: PhantomData })
    }
}

policies_of_callers! {
    [S: Needs] Keyed<S>;
    [R: AtLeast, S: Needs] KeyedOrg<R, S>;
    [R: AtLeast, S: Needs] KeyedZone<R, S>;
}
