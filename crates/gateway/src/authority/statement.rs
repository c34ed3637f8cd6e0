//! The SQL that authenticates a caller and finds the target. There is one statement for each kind of credential and
//! target. It is composed once, and reads the tables of several contexts. The parameters of a statement are, in this
//! order: the credential (`$1`: the hash under which it is stored, or for a connected app an array of the ids of grant,
//! client and user), the time (`$2`), the target's id or names, and the parameters of the rate limits of the credential
//! and of its user.

use std::sync::LazyLock;

use kernel::ProjectId;
use store::PermitParameters;

use super::credential::PresentedCredential;

/// The target that a request names.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    /// The caller's account.
    Account,
    /// An organization, by slug.
    Org { org: &'a str },
    /// A project of an organization, by name.
    Project { org: &'a str, project: &'a str },
    /// A project of any organization, by id.
    ProjectById(ProjectId),
    /// A zone of an organization, by its normalized name; `None` when the text is not a domain name.
    Zone { org: &'a str, zone: Option<&'a str> },
    /// A zone of any organization, by its normalized name.
    HostedZone { zone: &'a str },
}

impl<'a> Target<'a> {
    /// Returns the target's id.
    pub(super) fn id(self) -> Option<ProjectId> {
        match self {
            Self::ProjectById(id) => Some(id),
            Self::Account | Self::Org { .. } | Self::Project { .. } | Self::Zone { .. } | Self::HostedZone { .. } => {
                None
            }
        }
    }

    /// Returns the target's names, in the order of the statement's parameters.
    pub(super) fn names(self) -> [Option<Option<&'a str>>; 2] {
        match self {
            Self::Account | Self::ProjectById(_) => [None, None],
            Self::Org { org } => [Some(Some(org)), None],
            Self::Project { org, project } => [Some(Some(org)), Some(Some(project))],
            Self::Zone { org, zone } => [Some(Some(org)), Some(zone)],
            Self::HostedZone { zone } => [Some(Some(zone)), None],
        }
    }
}

const SESSION: &str = "\
    SELECT id, user_id, coalesce(last_used_at, created_at) AS last_used_at, NULL::text[] AS scopes, \
           NULL::uuid AS restricted_org_id, NULL::uuid[] AS restricted_project_ids, NULL::uuid[] AS restricted_zone_ids \
    FROM identity.sessions WHERE token_hash = $1 AND expires_at > $2";

const ACCESS_TOKEN: &str = "\
    SELECT id, user_id, last_used_at, scopes, restricted_org_id, restricted_project_ids, restricted_zone_ids \
    FROM identity.access_tokens \
    WHERE token_hash = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)";

/// Selects no scopes, because those of the access token apply.
const GRANT: &str = "\
    SELECT id, user_id, last_used_at, NULL::text[] AS scopes, \
           NULL::uuid AS restricted_org_id, NULL::uuid[] AS restricted_project_ids, NULL::uuid[] AS restricted_zone_ids \
    FROM oauth.grants \
    WHERE id = ($1::uuid[])[1] AND client_id = ($1::uuid[])[2] AND user_id = ($1::uuid[])[3] AND expires_at > $2";

/// Selects null as the scopes, because an SSH key has all scopes.
const SSH_KEY: &str = "\
    SELECT id, user_id, last_used_at, NULL::text[] AS scopes, \
           NULL::uuid AS restricted_org_id, NULL::uuid[] AS restricted_project_ids, NULL::uuid[] AS restricted_zone_ids \
    FROM identity.ssh_keys \
    WHERE fingerprint = 'SHA256:' || rtrim(encode($1, 'base64'), '=') AND $2::timestamptz IS NOT NULL";

const NO_ORG: &str = "NULL::uuid AS org_id, NULL::text AS slug, NULL::text AS plan, NULL::text AS role";
const ORG: &str = "o.id AS org_id, o.slug, o.plan, m.role";
const NO_PROJECT: &str = "NULL::uuid AS project_id, NULL::text AS project_name, NULL::text[] AS granted_resources";
const PROJECT: &str = "\
    p.id AS project_id, p.name AS project_name, \
    ARRAY( \
        SELECT g.resource FROM resources.grants g WHERE g.project_id = p.id \
        UNION ALL SELECT 'database' FROM databases.databases d WHERE d.project_id = p.id \
    ) AS granted_resources";
const NO_ZONE: &str = "NULL::uuid AS zone_id";
const ZONE: &str = "z.id AS zone_id";

const JOIN_ORG: &str = "\
    LEFT JOIN orgs.orgs o ON o.slug = $3 \
    LEFT JOIN orgs.members m ON m.org_id = o.id AND m.user_id = u.id AND (c.restricted_org_id IS NULL OR c.restricted_org_id = o.id)";

/// A token that is restricted to projects or zones has access only to those.
const JOIN_PROJECT: &str = "\
    LEFT JOIN projects.projects p ON p.org_id = m.org_id AND p.name = $4 AND p.deleted_at IS NULL \
        AND (c.restricted_project_ids IS NULL AND c.restricted_zone_ids IS NULL OR p.id = ANY (c.restricted_project_ids))";

/// Derives the organization from the project.
const JOIN_PROJECT_BY_ID: &str = "\
    LEFT JOIN projects.projects p ON p.id = $3 AND p.deleted_at IS NULL \
        AND (c.restricted_org_id IS NULL OR c.restricted_org_id = p.org_id) \
        AND (c.restricted_project_ids IS NULL AND c.restricted_zone_ids IS NULL OR p.id = ANY (c.restricted_project_ids)) \
    LEFT JOIN orgs.orgs o ON o.id = p.org_id \
    LEFT JOIN orgs.members m ON m.org_id = o.id AND m.user_id = u.id";

const JOIN_ZONE: &str = "\
    LEFT JOIN dns.zones z ON z.org_id = m.org_id AND z.name = $4 \
        AND (c.restricted_project_ids IS NULL AND c.restricted_zone_ids IS NULL OR z.id = ANY (c.restricted_zone_ids))";

/// Derives the organization from the zone.
const JOIN_HOSTED_ZONE: &str = "\
    LEFT JOIN dns.zones z ON z.name = $3 AND (c.restricted_org_id IS NULL OR c.restricted_org_id = z.org_id) \
        AND (c.restricted_project_ids IS NULL AND c.restricted_zone_ids IS NULL OR z.id = ANY (c.restricted_zone_ids)) \
    LEFT JOIN orgs.orgs o ON o.id = z.org_id \
    LEFT JOIN orgs.members m ON m.org_id = o.id AND m.user_id = u.id";

/// A statement, and its variant that also takes permits of the rate limits.
pub(super) struct Statement {
    plain: String,
    with_permits: String,
}

impl Statement {
    /// `targets` is the number of parameters of the target.
    fn new(credential: &str, columns: [&str; 3], joins: &[&str], targets: usize) -> Self {
        let (columns, joins) = (columns.join(", "), joins.join(" "));
        let find = format!(
            "SELECT c.id AS credential_id, c.last_used_at, c.scopes, c.restricted_org_id, c.restricted_project_ids, c.restricted_zone_ids, \
             u.id AS user_id, u.provider, u.subject, u.name, u.email, u.avatar_url, u.created_at, \
             {columns}, l.granted, l.reset_at, s.granted AS user_granted, s.reset_at AS user_reset_at \
             FROM c JOIN identity.users u ON u.id = c.user_id {joins}"
        );
        // These parameters follow the hash, the time and the target.
        let now = 3 + targets;
        let of_credential = PermitParameters { now, permits: now + 1, cost: now + 2, bucket: now + 3 };
        let of_user = PermitParameters { now, permits: now + 4, cost: now + 5, bucket: now + 6 };
        // The statement reads the user's bucket after the credential's, so that concurrent statements lock the rows in
        // the same order.
        let charge = of_credential.charge("'general ' || c.id", "FROM c");
        let charge_user = of_user.charge("'user ' || c.user_id", "FROM c, l");
        Self {
            plain: format!(
                "WITH c AS ({credential}) {find} \
                 CROSS JOIN (SELECT NULL::bigint AS granted, NULL::bigint AS reset_at) l \
                 CROSS JOIN (SELECT NULL::bigint AS granted, NULL::bigint AS reset_at) s"
            ),
            with_permits: format!(
                "WITH c AS ({credential}), l AS ({charge}), s AS ({charge_user}) {find} CROSS JOIN l CROSS JOIN s"
            ),
        }
    }

    pub(super) fn text(&self, with_permits: bool) -> &str {
        if with_permits { &self.with_permits } else { &self.plain }
    }
}

/// The statements of one kind of credential.
struct Statements {
    account: Statement,
    org: Statement,
    project: Statement,
    project_by_id: Statement,
    zone: Statement,
    hosted_zone: Statement,
}

impl Statements {
    fn new(credential: &str) -> Self {
        let statement = |columns, joins: &[&str], targets| Statement::new(credential, columns, joins, targets);
        Self {
            account: statement([NO_ORG, NO_PROJECT, NO_ZONE], &[], 0),
            org: statement([ORG, NO_PROJECT, NO_ZONE], &[JOIN_ORG], 1),
            project: statement([ORG, PROJECT, NO_ZONE], &[JOIN_ORG, JOIN_PROJECT], 2),
            project_by_id: statement([ORG, PROJECT, NO_ZONE], &[JOIN_PROJECT_BY_ID], 1),
            zone: statement([ORG, NO_PROJECT, ZONE], &[JOIN_ORG, JOIN_ZONE], 2),
            hosted_zone: statement([ORG, NO_PROJECT, ZONE], &[JOIN_HOSTED_ZONE], 1),
        }
    }
}

static OF_SESSION: LazyLock<Statements> = LazyLock::new(|| Statements::new(SESSION));
static OF_ACCESS_TOKEN: LazyLock<Statements> = LazyLock::new(|| Statements::new(ACCESS_TOKEN));
static OF_GRANT: LazyLock<Statements> = LazyLock::new(|| Statements::new(GRANT));

static OF_SSH_KEY: LazyLock<Statements> = LazyLock::new(|| Statements::new(SSH_KEY));

/// Returns the statement for a credential and a target.
pub(super) fn statement(presented: PresentedCredential, target: Target<'_>) -> &'static Statement {
    let statements: &'static Statements = match presented {
        PresentedCredential::Session(_) => &OF_SESSION,
        PresentedCredential::AccessToken(_) => &OF_ACCESS_TOKEN,
        PresentedCredential::ConnectedApp(_) => &OF_GRANT,
        PresentedCredential::SshKey(_) => &OF_SSH_KEY,
    };
    match target {
        Target::Account => &statements.account,
        Target::Org { .. } => &statements.org,
        Target::Project { .. } => &statements.project,
        Target::ProjectById(_) => &statements.project_by_id,
        Target::Zone { .. } => &statements.zone,
        Target::HostedZone { .. } => &statements.hosted_zone,
    }
}

#[cfg(test)]
mod tests {
    use kernel::{ClockRng, Token, TokenKind};

    use super::*;

    /// Compares every statement with a snapshot, so that reviews see the SQL.
    #[test]
    fn statements_of_each_credential_and_target() {
        let hash = Token::mint(TokenKind::Access, &ClockRng::system()).hash();
        let (org, project) = ("acme", "site");
        let targets = [
            Target::Account,
            Target::Org { org },
            Target::Project { org, project },
            Target::ProjectById(ProjectId::from_uuid(uuid::Uuid::nil())),
            Target::Zone { org, zone: None },
            Target::HostedZone { zone: "example.org" },
        ];
        let mut text = String::new();
        let clock_rng = ClockRng::system();
        let token = oauth::VerifiedToken {
            user: clock_rng.id(),
            client: clock_rng.id(),
            grant: clock_rng.id(),
            scopes: kernel::ScopeSet::all(),
            expires_at: clock_rng.now(),
        };
        for presented in [
            PresentedCredential::Session(hash),
            PresentedCredential::AccessToken(hash),
            PresentedCredential::ConnectedApp(token),
            PresentedCredential::SshKey(hash),
        ] {
            let credential = match presented {
                PresentedCredential::Session(_) => "session",
                PresentedCredential::AccessToken(_) => "access token",
                PresentedCredential::ConnectedApp(_) => "connected app",
                PresentedCredential::SshKey(_) => "SSH key",
            };
            for target in targets {
                for with_permits in [false, true] {
                    let permits = if with_permits { ", with permits" } else { "" };
                    let sql = statement(presented, target).text(with_permits);
                    text += &format!("-- {credential}, {target:?}{permits}\n{sql};\n\n");
                }
            }
        }
        insta::assert_snapshot!("statements", text);
    }
}
