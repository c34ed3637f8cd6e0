//! The statements that repair the memberships of the roles of a database.

use std::collections::BTreeSet;

use super::admin::quote_ident;
use super::logins::{DesiredLogin, DesiredRoles};
use super::plan::Plan;
use super::snapshot::{ObservedRole, Snapshot};

impl Plan {
    /// Revokes memberships that the node did not grant.
    pub fn revoke_memberships(&mut self, desired: &DesiredRoles, seen: &Snapshot) {
        let owner = desired.names.database();
        let mut granted = BTreeSet::new();
        for name in desired.role_names() {
            granted.extend(seen.members(&name).map(|(member, _)| (name.clone(), member.clone())));
            let groups = seen.roles.get(&name).into_iter().flat_map(|role| &role.member_of);
            granted.extend(groups.map(|group| (group.clone(), name.clone())));
        }
        let is_desired = |(group, member): &(String, String)| {
            let login = desired.logins.iter().find(|login| login.name == *member);
            // The memberships of a revoked login end when its role is dropped.
            login.is_some_and(|login| login.member_of.contains(group))
                || (desired.is_revoked(member) || *member == desired.names.load()) && *group == owner
                // While a restore loads `svc_auth`.
                || *member == desired.names.load() && *group == desired.names.auth()
                || desired.is_revoked(group) && *member == desired.names.dump()
        };
        for (group, member) in granted.iter().filter(|it| !is_desired(it)) {
            self.revoke(group, member);
        }
    }

    fn revoke(&mut self, group: &str, member: &str) {
        self.add(format!("REVOKE {} FROM {}", quote_ident(group), quote_ident(member)));
    }

    /// Grants the missing memberships of a login. The attributes must be set before: since Postgres 16, a membership
    /// inherits if the role had `INHERIT` when it was granted.
    pub fn repair_memberships(&mut self, login: &DesiredLogin, seen: &ObservedRole) {
        let inherits = login.attributes.contains("INHERIT");
        for group in &login.member_of {
            let is_member = seen.member_of.contains(group);
            if is_member && seen.inherits_from.contains(group) == inherits {
                continue;
            }
            if is_member {
                self.revoke(group, &login.name);
            }
            self.add(format!("GRANT {} TO {}", quote_ident(group), quote_ident(&login.name)));
        }
    }
}
