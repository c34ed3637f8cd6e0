//! The desired roles of a database while the node may only restrict them. The part that the previous run saved can be
//! outdated: a later part may have closed some of its logins.

use std::collections::BTreeSet;

use protocol::Verifier;

use super::logins::{DesiredLogin, DesiredRoles, Logins};
use super::names::Names;
use super::snapshot::{ObservedRole, Snapshot};

const LOGIN: &str = "LOGIN";

impl Logins {
    /// Returns the state that the observed logins of the node indicate.
    pub fn observed(names: &Names, seen: &Snapshot) -> Self {
        let role = |name: String| seen.roles.get(&name).filter(|role| role.attributes.contains(LOGIN));
        match (role(names.node()), role(names.dump())) {
            (Some(node), _) => {
                Self::Open { read_only: node.settings.iter().any(|it| it == "default_transaction_read_only=on") }
            }
            (None, Some(_)) => Self::NodeOnly,
            (None, None) => Self::Closed,
        }
    }

    /// Returns the state that admits fewer logins.
    pub fn most_restrictive(self, other: Self) -> Self {
        let rank = |state: Self| match state {
            Self::Open { read_only: false } => 0,
            Self::Open { read_only: true } => 1,
            Self::NodeOnly => 2,
            Self::Closed => 3,
        };
        if rank(self) < rank(other) { other } else { self }
    }
}

impl DesiredRoles {
    /// Changes the desired roles so that no login of the project is created or opened and no password changes. A login
    /// that is not desired is closed, but keeps its privileges, because the desired state may be older than the login.
    #[must_use]
    pub fn restricted_to(mut self, seen: &Snapshot) -> Self {
        let (owner, own) = (self.names.database(), [self.names.node(), self.names.dump(), self.names.auth()]);
        let others = seen.members(&owner).filter(|(name, _)| self.is_revoked(name) && !own.contains(name));
        let settings = self.logins.first().map(|login| login.settings.clone()).unwrap_or_default();
        let closed: Vec<DesiredLogin> = others
            .map(|(name, role)| DesiredLogin {
                name: name.clone(),
                attributes: BTreeSet::new(),
                verifier: Verifier::new(role.verifier.clone().unwrap_or_default()),
                expires_at: expiry(role),
                connection_limit: role.connection_limit,
                member_of: BTreeSet::from([owner.clone()]),
                settings: settings.clone(),
            })
            .collect();
        self.logins.retain_mut(|login| own.contains(&login.name) || restrict(login, seen.roles.get(&login.name)));
        self.logins.extend(closed);
        // Omit a login whose observed role has no password, so that the role does not get one.
        self.logins.retain(|login| !login.verifier.reveal().is_empty());
        let names: BTreeSet<String> = self.logins.iter().map(|login| login.name.clone()).collect();
        for login in self.logins.iter_mut().filter(|login| login.name == own[1]) {
            login.member_of =
                names.iter().filter(|name| **name != login.name).cloned().chain([owner.clone()]).collect();
        }
        self
    }
}

/// Limits a desired login to what its observed role already permits. Returns whether the role exists.
fn restrict(login: &mut DesiredLogin, seen: Option<&ObservedRole>) -> bool {
    let Some(seen) = seen else { return false };
    if !seen.attributes.contains(LOGIN) {
        login.attributes.remove(LOGIN);
    }
    login.verifier = Verifier::new(seen.verifier.clone().unwrap_or_default());
    let earliest = [expiry(seen), login.expires_at.take()].into_iter().flatten();
    // The texts can be compared, because both times are in UTC. The control plane writes milliseconds, and `.` is less
    // than `Z`.
    login.expires_at = earliest.min();
    true
}

fn expiry(role: &ObservedRole) -> Option<String> {
    role.expires_at.as_ref().filter(|time| time.len() == 19).map(|time| format!("{time}Z"))
}
