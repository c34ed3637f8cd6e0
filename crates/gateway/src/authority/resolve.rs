//! Credential → user → membership → project, in one statement across the contexts' tables; and, when this process holds
//! no permits of the caller any more, the next ones in the same statement.

use std::sync::LazyLock;

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Binary, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use identity::Profile;
use kernel::audit::Credential;
use kernel::{OrgId, Plan, ProjectId, Provider, Role, Scope, SessionId, Time, TokenHash, TokenId, TokenKind, UserId};
use store::{Cached, Store};

use crate::limits::{Granted, Wanted, grant};

/// What a request names.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub(super) kind: TokenKind,
    pub(super) token: TokenHash,
    pub(super) org: Option<&'a str>,
    pub(super) project: Option<&'a str>,
    /// Permits to ask for on the way.
    pub(super) wanted: Option<Wanted>,
}

/// What was found of it, behind a live credential.
pub(crate) struct Found {
    pub(crate) credential: Credential,
    /// When the credential was last noted to be in use.
    pub(crate) noted: Option<Time>,
    /// Of a token; a session has all of them.
    pub(crate) scopes: Option<Vec<Scope>>,
    /// Of a token that is limited.
    pub(crate) only: Option<Only>,
    pub(crate) user: Profile,
    pub(crate) org: Option<FoundOrg>,
    pub(crate) project: Option<(ProjectId, String)>,
    pub(crate) granted: Option<Granted>,
}

/// What a token is limited to.
#[derive(Debug, Clone)]
pub(crate) struct Only {
    pub(crate) org: OrgId,
    /// Nothing else of the organization; none for the whole of it.
    pub(crate) projects: Option<Vec<ProjectId>>,
}

/// The organization that the path names; no role for a caller who is not of it, or whose token does not reach it.
pub(crate) struct FoundOrg {
    pub(crate) id: OrgId,
    pub(crate) slug: String,
    pub(crate) plan: Plan,
    pub(crate) role: Option<Role>,
}

const SESSION: &str = "\
    SELECT id, user_id, coalesce(last_used_at, created_at) AS noted, NULL::text[] AS scopes, \
           NULL::uuid AS only_org, NULL::uuid[] AS only_projects, NULL::uuid[] AS only_zones \
    FROM identity.sessions WHERE token_hash = $1 AND expires_at > $4";

const TOKEN: &str = "\
    SELECT id, user_id, last_used_at AS noted, scopes, only_org, only_projects, only_zones \
    FROM identity.access_tokens \
    WHERE token_hash = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $4)";

/// A token that names projects or zones reaches those and nothing else of its organization.
const REACH: &str = "\
    SELECT c.id AS credential_id, c.noted, c.scopes, c.only_org, \
           CASE WHEN c.only_zones IS NULL THEN c.only_projects ELSE coalesce(c.only_projects, '{}') END AS only_projects, \
           u.id AS user_id, u.provider, u.subject, u.name, u.email, u.avatar_url, u.created_at, \
           o.id AS org_id, o.slug, o.plan, m.role, p.id AS project_id, p.name AS project_name, l.granted, l.full_at \
    FROM c \
    JOIN identity.users u ON u.id = c.user_id \
    LEFT JOIN orgs.orgs o ON o.slug = $2 \
    LEFT JOIN orgs.members m ON m.org_id = o.id AND m.user_id = u.id AND (c.only_org IS NULL OR c.only_org = o.id) \
    LEFT JOIN projects.projects p ON p.org_id = m.org_id AND p.name = $3 AND p.deleted_at IS NULL \
        AND (c.only_projects IS NULL AND c.only_zones IS NULL OR p.id = ANY (c.only_projects)) ";

struct Statements {
    plain: String,
    asking: String,
}

impl Statements {
    fn of(credential: &str) -> Self {
        let grant = grant(5);
        let plain = format!(
            "WITH c AS ({credential}) {REACH} CROSS JOIN (SELECT NULL::bigint AS granted, NULL::bigint AS full_at) l"
        );
        let asking = format!(
            "WITH c AS ({credential}), \
             l AS (INSERT INTO store.rates AS r (key, full_at, granted) SELECT 'general ' || c.id, $5 + $6 * $7, $6 FROM c {grant}) \
             {REACH} CROSS JOIN l"
        );
        Self { plain, asking }
    }
}

static OF_SESSION: LazyLock<Statements> = LazyLock::new(|| Statements::of(SESSION));
static OF_TOKEN: LazyLock<Statements> = LazyLock::new(|| Statements::of(TOKEN));

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
    #[diesel(sql_type = Nullable<BigInt>)]
    granted: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    full_at: Option<i64>,
}

/// Looks up what a request names; none when the credential is not live. A failure is a failure, never "nobody".
pub(super) async fn resolve(store: &Store, lookup: Lookup<'_>) -> store::Result<Option<Found>> {
    let Lookup { kind, token, org, project, wanted } = lookup;
    let statements = if kind == TokenKind::Session { &OF_SESSION } else { &OF_TOKEN };
    let text = if wanted.is_some() { &statements.asking } else { &statements.plain };
    let mut query = diesel::sql_query(text.as_str())
        .into_boxed::<Pg>()
        .bind::<Binary, _>(token)
        .bind::<Nullable<Text>, _>(org)
        .bind::<Nullable<Text>, _>(project)
        .bind::<Timestamptz, _>(store.world().now());
    if let Some(Wanted { now, permits, cost, bucket }) = wanted {
        query = query.bind::<BigInt, _>(now).bind::<BigInt, _>(permits);
        query = query.bind::<BigInt, _>(cost).bind::<BigInt, _>(bucket);
    }
    let row: Option<Row> = Cached(query).get_result(&mut *store.connection().await?).await.optional()?;
    Ok(row.map(|row| Found::new(kind, row)))
}

impl Found {
    fn new(kind: TokenKind, row: Row) -> Self {
        let Row { credential_id, user_id, provider, subject, name, email, avatar_url, created_at, .. } = row;
        let org = row.org_id.zip(row.slug).zip(row.plan);
        let credential = match kind {
            TokenKind::Session => Credential::Session(SessionId::from_uuid(credential_id)),
            _ => Credential::Token(TokenId::from_uuid(credential_id)),
        };
        Self {
            credential,
            noted: row.noted,
            scopes: row.scopes,
            only: row.only_org.map(|org| Only { org, projects: row.only_projects }),
            user: Profile { id: user_id, provider, subject, name, email, avatar_url, created_at },
            org: org.map(|((id, slug), plan)| FoundOrg { id, slug, plan, role: row.role }),
            project: row.project_id.zip(row.project_name),
            granted: row.granted.zip(row.full_at).map(|(permits, full_at)| Granted { permits, full_at }),
        }
    }
}
