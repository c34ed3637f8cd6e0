//! Scopes of personal access tokens and connected apps (contract section 1).

crate::words! {
    /// A permission of a credential. A login session has all scopes.
    pub enum Scope {
        /// Read the account itself.
        AccountRead = "account:read",
        /// Read organizations and members.
        OrgRead = "org:read",
        /// Change organizations and members.
        OrgWrite = "org:write",
        /// Read projects and their resources.
        ProjectRead = "project:read",
        /// Change projects and their resources.
        ProjectWrite = "project:write",
        /// Upload bundles and roll back.
        Deploy = "deploy",
        /// Read zones and domains.
        DnsRead = "dns:read",
        /// Change zones and domains.
        DnsWrite = "dns:write",
        /// Read billing.
        BillingRead = "billing:read",
        /// Spend money and cancel plans.
        BillingWrite = "billing:write",
        /// Read repositories.
        GitRead = "git:read",
        /// Push to repositories.
        GitWrite = "git:write",
        /// Call AI models.
        AiUse = "ai:use",
    } example Deploy
}

impl Scope {
    /// Returns whether this scope includes `needed`: a scope includes itself, and a write scope also the read scope of
    /// its area.
    #[must_use]
    pub fn covers(self, needed: Self) -> bool {
        use Scope::{BillingRead, BillingWrite, DnsRead, DnsWrite, GitRead, GitWrite};
        use Scope::{OrgRead, OrgWrite, ProjectRead, ProjectWrite};
        self == needed
            || matches!(
                (self, needed),
                (OrgWrite, OrgRead)
                    | (ProjectWrite, ProjectRead)
                    | (DnsWrite, DnsRead)
                    | (BillingWrite, BillingRead)
                    | (GitWrite, GitRead)
            )
    }
}

/// A set of scopes: the value of the parameter `scope` (RFC 6749 section 3.3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScopeSet(u16);

/// A text that names an unknown scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be a space-separated list of scopes")]
pub struct InvalidScope;

impl ScopeSet {
    /// Returns all scopes.
    #[must_use]
    pub fn all() -> Self {
        Scope::ALL.iter().copied().collect()
    }

    /// Returns whether the set has no scope.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether a scope of the set includes `needed` (see [`Scope::covers`]).
    #[must_use]
    pub fn covers(self, needed: Scope) -> bool {
        self.iter().any(|scope| scope.covers(needed))
    }

    /// Returns whether the set includes every scope of `needed`.
    #[must_use]
    pub fn covers_all(self, needed: Self) -> bool {
        needed.iter().all(|scope| self.covers(scope))
    }

    /// Returns the scopes, in the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.iter().copied().filter(move |scope| self.0 & (1 << (*scope as u16)) != 0)
    }
}

impl FromIterator<Scope> for ScopeSet {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | 1 << (scope as u16)))
    }
}

impl std::fmt::Display for ScopeSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, scope) in self.iter().enumerate() {
            let separator = if at == 0 { "" } else { " " };
            write!(f, "{separator}{scope}")?;
        }
        Ok(())
    }
}

impl std::str::FromStr for ScopeSet {
    type Err = InvalidScope;

    /// Parses scopes that are separated by single spaces, in any order. A repeated scope counts once.
    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        text.split(' ').map(|scope| scope.parse().map_err(|_| InvalidScope)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{InvalidScope, Scope, ScopeSet};

    #[test]
    fn write_scope_covers_its_read_scope_and_no_other() {
        for &held in Scope::ALL {
            for &needed in Scope::ALL {
                let (area, verb) = held.as_str().split_once(':').unwrap_or((held.as_str(), ""));
                let expected = held == needed || (verb == "write" && needed.as_str() == format!("{area}:read"));
                assert_eq!(held.covers(needed), expected, "{held} {needed}");
            }
        }
    }

    #[test]
    fn sets_are_read_and_written_as_lists() {
        let text = "account:read org:write deploy";
        let set: ScopeSet = "deploy org:write account:read deploy".parse().unwrap();
        assert_eq!(set.to_string(), text);
        assert_eq!(text.parse(), Ok(set));
        assert_eq!(ScopeSet::all().iter().collect::<Vec<_>>(), Scope::ALL);
        for wrong in ["", " deploy", "deploy ", "deploy  org:read", "Deploy", "deploy,org:read", "deploy\torg:read"] {
            assert_eq!(wrong.parse::<ScopeSet>(), Err(InvalidScope), "{wrong:?}");
        }
        assert!(set.covers(Scope::OrgRead) && !set.covers(Scope::DnsRead));
        assert!(set.covers_all("org:read deploy".parse().unwrap()) && !set.covers_all(ScopeSet::all()));
        assert!(set.covers_all(ScopeSet::default()) && ScopeSet::default().is_empty());
    }
}
