//! Scopes of personal access tokens and connected apps (contract section 1).

crate::words! {
    /// What a credential may be used for. A login session has all of them.
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
        /// Spend and cancel.
        BillingWrite = "billing:write",
        /// Read repositories.
        GitRead = "git:read",
        /// Push.
        GitWrite = "git:write",
        /// Call AI models.
        AiUse = "ai:use",
    } example Deploy
}

impl Scope {
    /// Whether holding `self` permits what `needed` names: itself, or the read of the write that is held.
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
    fn a_write_covers_its_read_and_nothing_else_covers_another() {
        for &held in Scope::ALL {
            for &needed in Scope::ALL {
                let (area, verb) = held.as_str().split_once(':').unwrap_or((held.as_str(), ""));
                let expected = held == needed || (verb == "write" && needed.as_str() == format!("{area}:read"));
                assert_eq!(held.covers(needed), expected, "{held} {needed}");
            }
        }
    }
}
