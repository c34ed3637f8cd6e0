//! The statements that change the observed roles and privileges of a database into the desired ones.
//!
//! A login can change its own password and settings, and grant membership in itself (up to Postgres 15). The owner can
//! change the privileges and the limits of its database. Postgres cannot forbid that, so the node repairs it.

use std::collections::{BTreeMap, BTreeSet};

use super::admin::{quote_ident, quote_literal};
use super::connections::MAX_CONNECTIONS;
use super::logins::{DesiredLogin, DesiredRoles, Logins};
use super::snapshot::{ObservedDatabase, ObservedRole, Snapshot};

/// The attributes of roles that the node sets. Connection limit, expiry and verifier are separate.
const ATTRIBUTES: [&str; 7] = ["LOGIN", "INHERIT", "BYPASSRLS", "SUPERUSER", "CREATEROLE", "CREATEDB", "REPLICATION"];

/// A plan for one database.
#[derive(Debug, Default)]
pub struct Plan {
    /// The statements that refuse logins. They are executed first, each in its own transaction.
    pub refusals: Vec<String>,
    /// The statements that are executed in one transaction. Revocations come first.
    pub statements: Vec<String>,
    /// Whether the database does not exist.
    pub is_missing: bool,
    /// Whether a statement changes the default access mode of sessions.
    pub changes_access_mode: bool,
    /// The revoked roles that cannot log in and have no session, but still own objects or have privileges. A later
    /// plan drops them, after the module `revoked_roles` has removed these.
    pub unused: Vec<String>,
}

impl Plan {
    /// Plans the statements that change the observed state `seen` into the desired one.
    pub fn new(desired: &DesiredRoles, seen: &Snapshot) -> Self {
        let mut plan = Self::default();
        let owner = desired.names.database();
        plan.refuse_logins(desired, seen);
        plan.revoke_logins(desired, seen);
        plan.revoke_memberships(desired, seen);
        plan.repair_owner(&owner, seen.roles.get(&owner));
        for login in &desired.logins {
            plan.repair_login(login, seen.roles.get(&login.name));
        }
        match seen.databases.get(&owner) {
            Some(database) => plan.repair_database(&owner, desired, database),
            None => plan.is_missing = true,
        }
        plan
    }

    /// Returns whether the states differ. Roles in [`Self::unused`] do not count.
    pub fn is_needed(&self) -> bool {
        self.is_missing || !self.refusals.is_empty() || !self.statements.is_empty()
    }

    pub fn add(&mut self, statement: String) {
        self.statements.push(statement);
    }

    /// Refuses logins first, because later statements of the plan may have to wait for a transaction of a tenant.
    fn refuse_logins(&mut self, desired: &DesiredRoles, seen: &Snapshot) {
        let closed = desired.logins.iter().filter(|login| !login.attributes.contains("LOGIN"));
        let closed = closed.filter_map(|login| seen.roles.get_key_value(&login.name));
        let owner = desired.names.database();
        let revoked = seen.members(&owner).filter(|(name, _)| desired.is_revoked(name));
        // Only a restore may open the login of restores, and only in the state `NodeOnly`. In the other states, the
        // login is closed here.
        let load = (desired.state != Logins::NodeOnly).then(|| desired.names.load());
        let load = load.and_then(|name| seen.roles.get_key_value(&name));
        for (name, _) in revoked.chain(closed).chain(load).filter(|(_, role)| role.attributes.contains("LOGIN")) {
            self.refusals.push(format!("ALTER ROLE {} NOLOGIN", quote_ident(name)));
        }
    }

    /// Drops the logins that are not desired. They must be closed and have no session.
    fn revoke_logins(&mut self, desired: &DesiredRoles, seen: &Snapshot) {
        let owner = desired.names.database();
        let unused = |role: &ObservedRole| !role.attributes.contains("LOGIN") && !role.has_session;
        for (name, role) in seen.members(&owner).filter(|(name, _)| desired.is_revoked(name)) {
            if unused(role) && role.is_referenced {
                self.unused.push(name.clone());
            } else if unused(role) {
                self.add(format!("DROP ROLE {}", quote_ident(name)));
            }
        }
    }

    fn repair_owner(&mut self, owner: &str, seen: Option<&ObservedRole>) {
        let quoted = quote_ident(owner);
        let attributes = BTreeSet::from(["INHERIT"]);
        let Some(seen) = seen else {
            return self.add(format!("CREATE ROLE {quoted} {}", write_attributes(&attributes)));
        };
        if !is_equal(&seen.attributes, &attributes) || seen.verifier.is_some() {
            self.add(format!("ALTER ROLE {quoted} {} PASSWORD NULL", write_attributes(&attributes)));
        }
        self.repair_settings(owner, &[], seen);
    }

    fn repair_login(&mut self, login: &DesiredLogin, seen: Option<&ObservedRole>) {
        let quoted = quote_ident(&login.name);
        let missing = ObservedRole::default();
        if seen.is_none() {
            self.add(format!("CREATE ROLE {quoted} {}", write_attributes(&BTreeSet::new())));
        }
        let seen = seen.unwrap_or(&missing);
        let is_same = is_equal(&seen.attributes, &login.attributes)
            && seen.verifier.as_deref() == Some(login.verifier.reveal())
            && seen.connection_limit == login.connection_limit
            && in_seconds(seen.expires_at.as_deref()) == in_seconds(login.expires_at.as_deref());
        if !is_same {
            let attributes = write_attributes(&login.attributes);
            let (limit, verifier) = (login.connection_limit, quote_literal(login.verifier.reveal()));
            let expiry = quote_literal(login.expires_at.as_deref().unwrap_or("infinity"));
            self.add(format!(
                "ALTER ROLE {quoted} {attributes} CONNECTION LIMIT {limit} PASSWORD {verifier} VALID UNTIL {expiry}"
            ));
        }
        self.repair_memberships(login, seen);
        self.repair_settings(&login.name, &login.settings, seen);
    }

    fn repair_settings(&mut self, role: &str, desired: &[(&'static str, String)], seen: &ObservedRole) {
        let quoted = quote_ident(role);
        for database in &seen.settings_in {
            self.add(format!("ALTER ROLE {quoted} IN DATABASE {} RESET ALL", quote_ident(database)));
        }
        let written: BTreeSet<String> = desired.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if written == seen.settings {
            return;
        }
        let has_changed = |prefix: &str| {
            let find = |settings: &BTreeSet<String>| settings.iter().find(|it| it.starts_with(prefix)).cloned();
            find(&written) != find(&seen.settings)
        };
        self.changes_access_mode |= has_changed("default_transaction_read_only=");
        self.add(format!("ALTER ROLE {quoted} RESET ALL"));
        for (name, value) in desired {
            self.add(format!("ALTER ROLE {quoted} SET {name} = {}", quote_literal(value)));
        }
    }

    fn repair_database(&mut self, name: &str, desired: &DesiredRoles, seen: &ObservedDatabase) {
        let database = quote_ident(name);
        if seen.owner != name {
            self.add(format!("ALTER DATABASE {database} OWNER TO {database}"));
        }
        let privileges = by_grantee(desired.privileges());
        let granted = by_grantee(seen.privileges.clone());
        for (grantee, seen) in &granted {
            if privileges.get(grantee) != Some(seen) && grantee != name {
                let grantee = if grantee.is_empty() { "PUBLIC".to_owned() } else { quote_ident(grantee) };
                self.add(format!("REVOKE ALL ON DATABASE {database} FROM {grantee} CASCADE"));
            }
        }
        for (grantee, privileges) in &privileges {
            if granted.get(grantee) != Some(privileges) {
                let list = privileges.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                self.add(format!("GRANT {list} ON DATABASE {database} TO {}", quote_ident(grantee)));
            }
        }
        // This comes last: a new database refuses logins until its privileges are set.
        if !seen.allows_connections || seen.connection_limit != MAX_CONNECTIONS || seen.is_template {
            let alter = format!("ALLOW_CONNECTIONS true CONNECTION LIMIT {MAX_CONNECTIONS} IS_TEMPLATE false");
            self.add(format!("ALTER DATABASE {database} {alter}"));
        }
    }
}

/// Writes all attributes, such as `LOGIN NOINHERIT …`.
fn write_attributes(set: &BTreeSet<&'static str>) -> String {
    let words = ATTRIBUTES.map(|it| if set.contains(it) { it.to_owned() } else { format!("NO{it}") });
    words.join(" ")
}

fn is_equal(seen: &BTreeSet<String>, desired: &BTreeSet<&'static str>) -> bool {
    seen.iter().map(String::as_str).eq(desired.iter().copied())
}

/// Returns the part of a time that Postgres and the control plane write in the same way.
fn in_seconds(time: Option<&str>) -> Option<&str> {
    time.and_then(|time| time.get(..19))
}

fn by_grantee(privileges: BTreeSet<(String, String)>) -> BTreeMap<String, BTreeSet<String>> {
    let mut grouped = BTreeMap::<_, BTreeSet<_>>::new();
    for (grantee, privilege) in privileges {
        grouped.entry(grantee).or_default().insert(privilege);
    }
    grouped
}

#[cfg(test)]
mod tests;
