//! The observed roles and databases: rows of the shared catalogs, which are readable without a session in a project's
//! database.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::{GenericClient, Row};

use super::names;

/// The roles and databases of one project, or of all.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub roles: BTreeMap<String, ObservedRole>,
    pub databases: BTreeMap<String, ObservedDatabase>,
    /// The members of each role.
    members: BTreeMap<String, Vec<String>>,
}

/// A role. `Debug` hides its verifier.
#[derive(Default)]
pub struct ObservedRole {
    /// The attributes that are set, such as `LOGIN` and `INHERIT`.
    pub attributes: BTreeSet<String>,
    pub verifier: Option<String>,
    /// RFC 3339 in UTC, in seconds.
    pub expires_at: Option<String>,
    pub connection_limit: i32,
    /// `name=value`, for all databases.
    pub settings: BTreeSet<String>,
    /// The databases that have settings of this role.
    pub settings_in: Vec<String>,
    /// The roles that this one is a member of.
    pub member_of: BTreeSet<String>,
    /// The roles in `member_of` whose privileges this role inherits. Since Postgres 16, each `GRANT` decides about
    /// this.
    pub inherits_from: BTreeSet<String>,
    /// Whether the role has a session.
    pub has_session: bool,
    /// Whether objects or privileges of any database refer to the role.
    pub is_referenced: bool,
}

/// A database.
#[derive(Debug, Default)]
pub struct ObservedDatabase {
    pub owner: String,
    pub allows_connections: bool,
    pub connection_limit: i32,
    pub is_template: bool,
    /// Grantees with a privilege, such as `("app_…", "CONNECT")`. The empty grantee is `PUBLIC`.
    pub privileges: BTreeSet<(String, String)>,
}

/// A set of roles and databases.
#[derive(Debug)]
pub enum Filter<'a> {
    /// All roles and databases with names of the node.
    All,
    /// A database with its roles, and the members of these roles.
    Project { database: &'a str, roles: &'a [String] },
}

const ROLES: &str = "
    SELECT r.rolname::text AS name, r.rolpassword AS verifier, r.rolconnlimit AS connection_limit,
        to_char(r.rolvaliduntil AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS') AS expires_at,
        ARRAY(SELECT word FROM (VALUES ('LOGIN', r.rolcanlogin), ('INHERIT', r.rolinherit), ('BYPASSRLS', r.rolbypassrls),
            ('SUPERUSER', r.rolsuper), ('CREATEROLE', r.rolcreaterole), ('CREATEDB', r.rolcreatedb),
            ('REPLICATION', r.rolreplication)) AS words (word, is_set) WHERE is_set) AS attributes,
        ARRAY(SELECT unnest(s.setconfig) FROM pg_db_role_setting s WHERE s.setrole = r.oid AND s.setdatabase = 0)
            AS settings,
        ARRAY(SELECT d.datname::text FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
            WHERE s.setrole = r.oid) AS settings_in,
        ARRAY(SELECT o.rolname::text FROM pg_auth_members m JOIN pg_authid o ON o.oid = m.roleid WHERE m.member = r.oid)
            AS member_of,
        ARRAY(SELECT o.rolname::text FROM pg_auth_members m JOIN pg_authid o ON o.oid = m.roleid WHERE m.member = r.oid
            AND coalesce((to_jsonb(m) ->> 'inherit_option')::boolean, r.rolinherit)) AS inherits_from,
        a.usesysid IS NOT NULL AS has_session,
        EXISTS (SELECT FROM pg_shdepend s WHERE s.refclassid = 'pg_authid'::regclass AND s.refobjid = r.oid)
            AS is_referenced
    FROM pg_authid r LEFT JOIN (SELECT DISTINCT usesysid FROM pg_stat_activity) a ON a.usesysid = r.oid
    WHERE ($2::text[] IS NULL AND r.rolname ~ $1) OR r.rolname = ANY ($2)
        OR r.oid IN (SELECT m.member FROM pg_auth_members m JOIN pg_authid o ON o.oid = m.roleid
            WHERE o.rolname = ANY ($2))";

const DATABASES: &str = "
    SELECT d.datname::text AS name, o.rolname::text AS owner, d.datallowconn AS allows_connections,
        d.datconnlimit AS connection_limit, d.datistemplate AS is_template,
        ARRAY(SELECT coalesce(g.rolname::text, '') || ' ' || a.privilege_type
            FROM aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a
            LEFT JOIN pg_authid g ON g.oid = a.grantee) AS privileges
    FROM pg_database d JOIN pg_authid o ON o.oid = d.datdba
    WHERE d.datname = $1 OR ($1::text IS NULL AND d.datname ~ '^(db|new|old)_')";

impl Snapshot {
    /// Reads the catalogs.
    pub async fn read(client: &impl GenericClient, filter: &Filter<'_>) -> Result<Self, tokio_postgres::Error> {
        let (database, roles) = match filter {
            Filter::All => (None, None),
            Filter::Project { database, roles } => (Some(*database), Some(*roles)),
        };
        let roles = client.query(ROLES, &[&names::ROLES, &roles]).await?;
        let databases = client.query(DATABASES, &[&database]).await?;
        let databases = databases.into_iter().map(|row| (row.get("name"), row.into())).collect();
        let mut snapshot = Self { databases, ..Self::default() };
        roles.into_iter().for_each(|row| snapshot.add(row.get("name"), row.into()));
        Ok(snapshot)
    }

    /// Adds a role.
    pub fn add(&mut self, name: String, role: ObservedRole) {
        for group in &role.member_of {
            self.members.entry(group.clone()).or_default().push(name.clone());
        }
        self.roles.insert(name, role);
    }

    /// Returns the roles that are members of this one.
    pub fn members(&self, role: &str) -> impl Iterator<Item = (&String, &ObservedRole)> {
        self.members.get(role).into_iter().flatten().filter_map(|member| self.roles.get_key_value(member))
    }
}

impl From<Row> for ObservedRole {
    fn from(row: Row) -> Self {
        Self {
            attributes: set(&row, "attributes"),
            verifier: row.get("verifier"),
            expires_at: row.get("expires_at"),
            connection_limit: row.get("connection_limit"),
            settings: set(&row, "settings"),
            settings_in: row.get("settings_in"),
            member_of: set(&row, "member_of"),
            inherits_from: set(&row, "inherits_from"),
            has_session: row.get("has_session"),
            is_referenced: row.get("is_referenced"),
        }
    }
}

impl From<Row> for ObservedDatabase {
    fn from(row: Row) -> Self {
        let privileges: Vec<String> = row.get("privileges");
        let pairs = privileges.iter().filter_map(|it| it.split_once(' '));
        Self {
            owner: row.get("owner"),
            allows_connections: row.get("allows_connections"),
            connection_limit: row.get("connection_limit"),
            is_template: row.get("is_template"),
            privileges: pairs.map(|(grantee, privilege)| (grantee.to_owned(), privilege.to_owned())).collect(),
        }
    }
}

fn set(row: &Row, column: &str) -> BTreeSet<String> {
    row.get::<_, Vec<String>>(column).into_iter().collect()
}

impl std::fmt::Debug for ObservedRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { attributes, expires_at, member_of, .. } = self;
        write!(f, "ObservedRole {{ {attributes:?}, {expires_at:?}, {member_of:?} }}")
    }
}
