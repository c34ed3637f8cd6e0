//! The lookup behind every policy: credential → user → membership → target in one statement, which also takes permits of
//! the rate limit when this process holds none of the caller.

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Binary, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use identity::Profile;
use kernel::audit::Credential;
use kernel::{
    OrgId, Plan, ProjectId, Provider, Resource, ResourceSet, Role, Scope, SessionId, Time, TokenId, UserId, ZoneId,
};
use store::{Cached, Store};

use super::credential::Presented;
use super::statement::{Target, statement};
use crate::limits::{Granted, Wanted};

/// A credential and the target of its request.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub(super) presented: Presented,
    pub(super) target: Target<'a>,
    /// Permits of the rate limit to take.
    pub(super) wanted: Option<Wanted>,
}

/// The result of a lookup with a live credential.
pub(crate) struct Found {
    pub(crate) credential: Credential,
    /// When the credential was last noted to be in use.
    pub(crate) noted: Option<Time>,
    /// Of a token; a session has all of them.
    pub(crate) scopes: Option<Vec<Scope>>,
    /// A token's restriction.
    pub(crate) restriction: Option<TokenRestriction>,
    pub(crate) user: Profile,
    pub(crate) org: Option<FoundOrg>,
    pub(crate) project: Option<FoundProject>,
    pub(crate) zone: Option<ZoneId>,
    pub(crate) granted: Option<Granted>,
}

/// The organization that a token is restricted to, or parts of it.
#[derive(Debug, Clone)]
pub(crate) struct TokenRestriction {
    pub(crate) org: OrgId,
    /// Nothing else of the organization; none for the whole of it.
    pub(crate) parts: Option<Parts>,
}

/// The projects and zones of an organization that a token is restricted to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    pub(crate) projects: Vec<ProjectId>,
    pub(crate) zones: Vec<ZoneId>,
}

/// The target's project.
pub(crate) struct FoundProject {
    pub(crate) id: ProjectId,
    pub(crate) name: String,
    /// The resources that it is granted.
    pub(crate) granted: ResourceSet,
}

/// The target's organization; no role for a caller who is not a member, or whose token is restricted to another one.
pub(crate) struct FoundOrg {
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
    noted: Option<Time>,
    #[diesel(sql_type = Nullable<Array<Text>>)]
    scopes: Option<Vec<Scope>>,
    #[diesel(sql_type = Nullable<Uuid>)]
    only_org: Option<OrgId>,
    #[diesel(sql_type = Nullable<Array<Uuid>>)]
    only_projects: Option<Vec<ProjectId>>,
    #[diesel(sql_type = Nullable<Array<Uuid>>)]
    only_zones: Option<Vec<ZoneId>>,
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
    full_at: Option<i64>,
}

/// Looks up a credential and a target; `None` when the credential is not live. A lookup that fails is an error,
/// never an anonymous caller.
pub(super) async fn resolve(store: &Store, lookup: Lookup<'_>) -> store::Result<Option<Found>> {
    let Lookup { presented, target, wanted } = lookup;
    let text = statement(presented, target).text(wanted.is_some());
    let mut query = diesel::sql_query(text)
        .into_boxed::<Pg>()
        .bind::<Binary, _>(presented.hash())
        .bind::<Timestamptz, _>(store.world().now());
    for name in target.names().into_iter().flatten() {
        query = query.bind::<Nullable<Text>, _>(name);
    }
    if let Some(Wanted { now, permits, cost, bucket }) = wanted {
        query = query.bind::<BigInt, _>(now).bind::<BigInt, _>(permits);
        query = query.bind::<BigInt, _>(cost).bind::<BigInt, _>(bucket);
    }
    let row: Option<Row> = Cached(query).get_result(&mut *store.connection().await?).await.optional()?;
    Ok(row.map(|row| Found::new(presented, row)))
}

impl Found {
    fn new(presented: Presented, row: Row) -> Self {
        let Row { credential_id, user_id, provider, subject, name, email, avatar_url, created_at, .. } = row;
        let org = row.org_id.zip(row.slug).zip(row.plan);
        let credential = match presented {
            Presented::Session(_) => Credential::Session(SessionId::from_uuid(credential_id)),
            Presented::AccessToken(_) => Credential::Token(TokenId::from_uuid(credential_id)),
        };
        let parts = match (row.only_projects, row.only_zones) {
            (None, None) => None,
            (projects, zones) => {
                Some(Parts { projects: projects.unwrap_or_default(), zones: zones.unwrap_or_default() })
            }
        };
        Self {
            credential,
            noted: row.noted,
            scopes: row.scopes,
            restriction: row.only_org.map(|org| TokenRestriction { org, parts }),
            user: Profile { id: user_id, provider, subject, name, email, avatar_url, created_at },
            org: org.map(|((id, slug), plan)| FoundOrg { id, slug, plan, role: row.role }),
            project: row.project_id.zip(row.project_name).map(|(id, name)| {
                let granted = row.granted_resources.unwrap_or_default();
                FoundProject { id, name, granted: ResourceSet::which(|resource| granted.contains(&resource)) }
            }),
            zone: row.zone_id,
            granted: row.granted.zip(row.full_at).map(|(permits, full_at)| Granted { permits, full_at }),
        }
    }
}
