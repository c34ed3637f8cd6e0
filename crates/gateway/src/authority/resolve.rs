//! Credential → user → membership → project, in one statement across the contexts' tables.

use diesel::prelude::*;
use diesel::sql_types::{Binary, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use identity::Profile;
use kernel::{OrgId, Plan, ProjectId, Provider, Role, SessionId, Time, TokenHash, UserId};
use store::{Cached, Store};

/// What a request names.
pub(super) struct Lookup<'a> {
    pub(super) token: TokenHash,
    pub(super) org: Option<&'a str>,
    pub(super) project: Option<&'a str>,
}

/// What was found of it, behind a live credential.
pub(super) struct Found {
    pub(super) session: SessionId,
    /// When the session began, and when it was last noted to be in use.
    pub(super) used: (Time, Option<Time>),
    pub(super) user: Profile,
    pub(super) org: Option<FoundOrg>,
    pub(super) project: Option<(ProjectId, String)>,
}

/// The organization that the path names; no role for a caller who is not of it.
pub(super) struct FoundOrg {
    pub(super) id: OrgId,
    pub(super) slug: String,
    pub(super) plan: Plan,
    pub(super) role: Option<Role>,
}

const STATEMENT: &str = "\
    SELECT s.id AS session_id, s.last_used_at, s.created_at AS session_at, u.id AS user_id, u.provider, u.subject, u.name, u.email, u.avatar_url, u.created_at, \
           o.id AS org_id, o.slug, o.plan, m.role, p.id AS project_id, p.name AS project_name \
    FROM identity.sessions s \
    JOIN identity.users u ON u.id = s.user_id \
    LEFT JOIN orgs.orgs o ON o.slug = $2 \
    LEFT JOIN orgs.members m ON m.org_id = o.id AND m.user_id = u.id \
    LEFT JOIN projects.projects p ON p.org_id = m.org_id AND p.name = $3 \
    WHERE s.token_hash = $1 AND s.expires_at > $4";

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Uuid)]
    session_id: SessionId,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_used_at: Option<Time>,
    #[diesel(sql_type = Timestamptz)]
    session_at: Time,
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
}

/// Looks up what a request names; none when the credential is not live. A failure is a failure, never "nobody".
pub(super) async fn resolve(store: &Store, lookup: Lookup<'_>) -> store::Result<Option<Found>> {
    let query = diesel::sql_query(STATEMENT)
        .bind::<Binary, _>(lookup.token)
        .bind::<Nullable<Text>, _>(lookup.org)
        .bind::<Nullable<Text>, _>(lookup.project)
        .bind::<Timestamptz, _>(store.world().now());
    let row: Option<Row> = Cached(query).get_result(&mut *store.connection().await?).await.optional()?;
    Ok(row.map(Found::from))
}

impl From<Row> for Found {
    fn from(row: Row) -> Self {
        let Row { session_id, user_id, provider, subject, name, email, avatar_url, created_at, .. } = row;
        let org = row.org_id.zip(row.slug).zip(row.plan);
        Self {
            session: session_id,
            used: (row.session_at, row.last_used_at),
            user: Profile { id: user_id, provider, subject, name, email, avatar_url, created_at },
            org: org.map(|((id, slug), plan)| FoundOrg { id, slug, plan, role: row.role }),
            project: row.project_id.zip(row.project_name),
        }
    }
}
