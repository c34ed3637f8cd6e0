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
    /// Whether this scope includes `needed`: a scope includes itself, and a write scope also the read scope of its area.
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

#[cfg(test)]
mod tests {
    use super::Scope;

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
}
