//! The lookup behind every policy: one statement follows the credential to the user, the membership and the target. If
//! this process holds no permits of the caller's rate limits, the statement also takes some.

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Binary, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use identity::Profile;
use kernel::audit::Credential;
use kernel::{
    KeyId, OrgId, Plan, ProjectId, Provider, Resource, ResourceSet, Role, Scope, SessionId, Time, TokenId, UserId,
    ZoneId,
};
use store::{Prepared, Store};

use super::credential::PresentedCredential;
use super::statement::{Target, statement};
use crate::limits::{CallerGrant, CallerRequest, PermitGrant, PermitRequest};

/// A credential and the target of its request.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub(super) credential: PresentedCredential,
    pub(super) target: Target<'a>,
    /// The permits to take from the caller's rate limits, if any.
    pub(super) permit_request: Option<CallerRequest>,
}

/// The result of a lookup with a live credential.
pub(crate) struct ResolvedCaller {
    pub(crate) credential: Credential,
    /// The last recorded use of the credential.
    pub(crate) last_used_at: Option<Time>,
    /// A token's scopes; `None` for a session, which has all scopes.
    pub(crate) scopes: Option<Vec<Scope>>,
    /// A token's restriction. `None` for an unrestricted credential.
    pub(crate) restriction: Option<TokenRestriction>,
    pub(crate) user: Profile,
    pub(crate) org: Option<ResolvedOrg>,
    pub(crate) project: Option<ResolvedProject>,
    pub(crate) zone: Option<ZoneId>,
    pub(crate) permit_grant: Option<CallerGrant>,
}

/// A token's restriction to an organization, or to parts of it.
#[derive(Debug, Clone)]
pub(crate) struct TokenRestriction {
    pub(crate) org: OrgId,
    /// The projects and zones of the restriction; `None` for the whole organization.
    pub(crate) targets: Option<RestrictedTargets>,
}

/// The projects and zones of an organization that a token is restricted to. The token accesses no target of a kind that
/// is `None`, and no list of that kind.
#[derive(Debug, Clone)]
pub(crate) struct RestrictedTargets {
    pub(crate) projects: Option<Vec<ProjectId>>,
    pub(crate) zones: Option<Vec<ZoneId>>,
}

/// The target's project.
pub(crate) struct ResolvedProject {
    pub(crate) id: ProjectId,
    pub(crate) name: String,
    /// The granted resources.
    pub(crate) granted_resources: ResourceSet,
}

/// The target's organization. A caller who is not a member, or whose token is restricted to another organization, has
/// no role.
pub(crate) struct ResolvedOrg {
    pub(crate) id: OrgId,
    pub(crate) slug: String,
    pub(crate) plan: Plan,
    pub(crate) role: Option<Role>,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Uuid)]
    credential_id: uuid::Uuid,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_used_at: Option<Time>,
    #[diesel(sql_type = Nullable<Array<Text>>)]
    scopes: Option<Vec<Scope>>,
    #[diesel(sql_type = Nullable<Uuid>)]
    restricted_org_id: Option<OrgId>,
    #[diesel(sql_type = Nullable<Array<Uuid>>)]
    restricted_project_ids: Option<Vec<ProjectId>>,
    #[diesel(sql_type = Nullable<Array<Uuid>>)]
    restricted_zone_ids: Option<Vec<ZoneId>>,
    #[diesel(sql_type = Uuid)]
    user_id: UserId,
    #[diesel(sql_type = Text)]
    provider: Provider,
    #[diesel(sql_type = Text)]
    subject: String,
    #[diesel(sql_type = Nullable<Text>)]
    name: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    email: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    avatar_url: Option<String>,
    #[diesel(sql_type = Timestamptz)]
    created_at: Time,
    #[diesel(sql_type = Nullable<Uuid>)]
    org_id: Option<OrgId>,
    #[diesel(sql_type = Nullable<Text>)]
    slug: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    plan: Option<Plan>,
    #[diesel(sql_type = Nullable<Text>)]
    role: Option<Role>,
    #[diesel(sql_type = Nullable<Uuid>)]
    project_id: Option<ProjectId>,
    #[diesel(sql_type = Nullable<Text>)]
    project_name: Option<String>,
    #[diesel(sql_type = Nullable<Array<Text>>)]
    granted_resources: Option<Vec<Resource>>,
    #[diesel(sql_type = Nullable<Uuid>)]
    zone_id: Option<ZoneId>,
    #[diesel(sql_type = Nullable<BigInt>)]
    granted: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    reset_at: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    user_granted: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    user_reset_at: Option<i64>,
}

/// Looks up a credential and a target. Returns `None` if the credential is not valid. A failed lookup is an error, and
/// never results in an anonymous caller.
pub(super) async fn resolve(store: &Store, lookup: Lookup<'_>) -> store::Result<Option<ResolvedCaller>> {
    let Lookup { credential: presented, target, permit_request } = lookup;
    let text = statement(presented, target).text(permit_request.is_some());
    let query = diesel::sql_query(text).into_boxed::<Pg>();
    let query = match presented {
        PresentedCredential::Session(hash)
        | PresentedCredential::AccessToken(hash)
        | PresentedCredential::SshKey(hash) => query.bind::<Binary, _>(hash),
        PresentedCredential::ConnectedApp(token) => {
            query.bind::<Array<Uuid>, _>(vec![token.grant.as_uuid(), token.client.as_uuid(), token.user.as_uuid()])
        }
    };
    let mut query = query.bind::<Timestamptz, _>(store.clock_rng().now());
    if let Some(id) = target.id() {
        query = query.bind::<Uuid, _>(id);
    }
    for name in target.names().into_iter().flatten() {
        query = query.bind::<Nullable<Text>, _>(name);
    }
    if let Some([of_credential, of_user]) = permit_request {
        query = query.bind::<BigInt, _>(of_credential.now);
        for PermitRequest { permits, cost, bucket, .. } in [of_credential, of_user] {
            query = query.bind::<BigInt, _>(permits).bind::<BigInt, _>(cost).bind::<BigInt, _>(bucket);
        }
    }
    let query = Prepared(query);
    let row: Option<Row> = if permit_request.is_some() {
        query.get_result(&mut *store.connection().await?).await.optional()?
    } else {
        store.lookup(async |lookups| Ok(query.get_result(&mut &*lookups).await.optional()?)).await?
    };
    Ok(row.map(|row| ResolvedCaller::new(presented, row)))
}

impl ResolvedCaller {
    fn new(presented: PresentedCredential, row: Row) -> Self {
        let Row { credential_id, user_id, provider, subject, name, email, avatar_url, created_at, .. } = row;
        let org = row.org_id.zip(row.slug).zip(row.plan);
        let credential = match presented {
            PresentedCredential::Session(_) => Credential::Session(SessionId::from_uuid(credential_id)),
            PresentedCredential::AccessToken(_) => Credential::Token(TokenId::from_uuid(credential_id)),
            PresentedCredential::ConnectedApp(token) => Credential::Grant(token.grant),
            PresentedCredential::SshKey(_) => Credential::SshKey(KeyId::from_uuid(credential_id)),
        };
        let scopes = match presented {
            PresentedCredential::Session(_) | PresentedCredential::AccessToken(_) | PresentedCredential::SshKey(_) => {
                row.scopes
            }
            PresentedCredential::ConnectedApp(token) => Some(token.scopes.iter().collect()),
        };
        let targets = match (row.restricted_project_ids, row.restricted_zone_ids) {
            (None, None) => None,
            (projects, zones) => Some(RestrictedTargets { projects, zones }),
        };
        Self {
            credential,
            last_used_at: row.last_used_at,
            scopes,
            restriction: row.restricted_org_id.map(|org| TokenRestriction { org, targets }),
            user: Profile { id: user_id, provider, subject, name, email, avatar_url, created_at },
            org: org.map(|((id, slug), plan)| ResolvedOrg { id, slug, plan, role: row.role }),
            project: row.project_id.zip(row.project_name).map(|(id, name)| {
                let granted = row.granted_resources.unwrap_or_default();
                ResolvedProject {
                    id,
                    name,
                    granted_resources: ResourceSet::from_fn(|resource| granted.contains(&resource)),
                }
            }),
            zone: row.zone_id,
            permit_grant: grant(row.granted, row.reset_at)
                .zip(grant(row.user_granted, row.user_reset_at))
                .map(|(of_credential, of_user)| [of_credential, of_user]),
        }
    }
}

fn grant(granted: Option<i64>, reset_at: Option<i64>) -> Option<PermitGrant> {
    granted.zip(reset_at).map(|(permits, reset_at)| PermitGrant { permits, reset_at })
}
