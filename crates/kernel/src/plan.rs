//! Plans and what they allow.

use serde::Deserialize;

crate::words! {
    /// An organization's plan. Only the payments webhook changes it.
    pub enum Plan {
        /// What everybody starts with.
        Free = "free",
        /// Paid.
        Pro = "pro",
    } example Free
}

/// The limits of each plan (contract section 1, "Plan limits"); settings of the server with these defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Limits of [`Plan::Free`].
    pub free: PlanLimits,
    /// Limits of [`Plan::Pro`].
    pub pro: PlanLimits,
}

/// What one plan allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanLimits {
    /// Projects per organization.
    pub projects: u32,
    /// Invitations that may be pending at once: a guard against abuse, the same for every plan unless set otherwise.
    #[serde(default = "invites")]
    pub invites: u32,
    /// Bundles of its projects.
    pub bundle: BundleLimits,
}

/// How large one bundle may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleLimits {
    /// Bytes as uploaded.
    pub compressed: u64,
    /// Bytes once unpacked.
    pub unpacked: u64,
    /// Entries of the archive.
    pub entries: u64,
}

impl Limits {
    /// What `plan` allows.
    #[must_use]
    pub fn of(&self, plan: Plan) -> &PlanLimits {
        match plan {
            Plan::Free => &self.free,
            Plan::Pro => &self.pro,
        }
    }
}

const fn invites() -> u32 {
    50
}

const MIB: u64 = 1024 * 1024;

impl Default for Limits {
    fn default() -> Self {
        let bundle = |compressed, unpacked| BundleLimits { compressed, unpacked, entries: 20_000 };
        Self {
            free: PlanLimits { projects: 3, invites: invites(), bundle: bundle(50 * MIB, 250 * MIB) },
            pro: PlanLimits { projects: 100, invites: invites(), bundle: bundle(200 * MIB, 1024 * MIB) },
        }
    }
}
