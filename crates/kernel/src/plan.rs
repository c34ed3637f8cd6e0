//! Plans and their limits.

use serde::Deserialize;

crate::words! {
    /// An organization's plan. Only the webhook of the payments provider changes it.
    pub enum Plan {
        /// The plan of a new organization.
        Free = "free",
        /// The paid plan.
        Pro = "pro",
    } example Free
}

/// The limits of each plan (contract section 1, "Plan limits"). They are settings of the server; these are the
/// defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Limits of [`Plan::Free`].
    pub free: PlanLimits,
    /// Limits of [`Plan::Pro`].
    pub pro: PlanLimits,
}

/// The limits of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanLimits {
    /// Projects per organization.
    pub projects: u32,
    /// The maximum number of pending invitations per organization. The limit prevents abuse, and is the same for every
    /// plan by default.
    #[serde(default = "default_invites")]
    pub invites: u32,
    /// The maximum number of custom hostnames per project.
    #[serde(default = "default_custom_hostnames")]
    pub custom_hostnames: u32,
    /// The maximum number of custom hostnames per project whose ownership is not verified yet.
    #[serde(default = "default_pending_hostnames")]
    pub pending_hostnames: u32,
    /// The maximum number of DNS zones per organization.
    #[serde(default = "default_zones")]
    pub zones: u32,
    /// The maximum number of bytes per DNS zone: the names and the data of its rrsets.
    #[serde(default = "default_zone_bytes")]
    pub zone_bytes: u64,
    /// The maximum number of bytes in a project's object storage: the sum of the sizes of all objects.
    #[serde(default = "default_storage_bytes")]
    pub storage_bytes: u64,
    /// The maximum number of bytes in a project's database.
    #[serde(default = "default_database_bytes")]
    pub database_bytes: u64,
    /// The maximum number of tokens of a project's database.
    #[serde(default = "default_database_tokens")]
    pub database_tokens: u32,
    /// The number of days for which scheduled generations of a database are kept.
    #[serde(default = "default_backup_days")]
    pub backup_days: u32,
    /// The maximum number of mails that a project can send per hour.
    #[serde(default = "default_mails_per_hour")]
    pub mails_per_hour: u32,
    /// The number of days for which the mail log is kept.
    #[serde(default = "default_mail_log_days")]
    pub mail_log_days: u32,
    /// Bytes of stored mail per project. Received and sent mail are limited separately.
    #[serde(default = "default_mail_bytes")]
    pub mail_bytes: u64,
    /// Calls of AI models that a project may make in a minute.
    #[serde(default = "default_ai_requests_per_minute")]
    pub ai_requests_per_minute: u32,
    /// The maximum spend of a project on AI models in 24 hours, in microcents.
    #[serde(default = "default_ai_spend_per_day_micro_cents")]
    pub ai_spend_per_day_micro_cents: i64,
    /// The maximum number of input tokens per call of an AI model; 0 means the model's own limit.
    #[serde(default)]
    pub ai_max_input_tokens: u32,
    /// The maximum number of output tokens per call of an AI model; 0 means the model's own limit.
    #[serde(default)]
    pub ai_max_output_tokens: u32,
    /// The limits of a bundle.
    pub bundle: BundleLimits,
}

/// The limits of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleLimits {
    /// The maximum size as uploaded, in bytes.
    pub compressed: u64,
    /// The maximum size after unpacking, in bytes.
    pub unpacked: u64,
    /// The maximum number of entries in the archive.
    pub entries: u64,
}

impl Limits {
    /// Returns the limits of a plan.
    #[must_use]
    pub fn for_plan(&self, plan: Plan) -> &PlanLimits {
        match plan {
            Plan::Free => &self.free,
            Plan::Pro => &self.pro,
        }
    }
}

const fn default_invites() -> u32 {
    50
}

const fn default_custom_hostnames() -> u32 {
    100
}

const fn default_pending_hostnames() -> u32 {
    20
}

/// Returns the free plan's default. A pro plan whose settings file omits this limit gets the same value.
const fn default_zones() -> u32 {
    20
}

/// Returns the free plan's default. A pro plan whose settings file omits this limit gets the same value.
const fn default_zone_bytes() -> u64 {
    8 * MIB
}

/// Returns the free plan's default. A pro plan whose settings file omits this limit gets the same value.
const fn default_storage_bytes() -> u64 {
    GIB
}

/// Returns the free plan's default. A pro plan whose settings file omits this limit gets the same value.
const fn default_database_bytes() -> u64 {
    GIB
}

/// Returns the free plan's default. A pro plan whose settings file omits this limit gets the same value.
const fn default_database_tokens() -> u32 {
    20
}

/// Returns the free plan's default. A pro plan whose settings file omits this limit gets the same value.
const fn default_backup_days() -> u32 {
    7
}

/// Returns the free plan's default. A pro plan whose settings file omits this limit gets the same value.
const fn default_mails_per_hour() -> u32 {
    50
}

/// Returns the free plan's default. A pro plan whose settings file omits this limit gets the same value.
const fn default_mail_log_days() -> u32 {
    30
}

/// Returns the free plan's default. A pro plan whose settings file omits this limit gets the same value.
const fn default_mail_bytes() -> u64 {
    GIB
}

/// Returns the free plan's default. A pro plan whose settings file omits this limit gets the same value.
const fn default_ai_requests_per_minute() -> u32 {
    60
}

/// Returns the free plan's default, 10 dollars. A pro plan whose settings file omits this limit gets the same value.
const fn default_ai_spend_per_day_micro_cents() -> i64 {
    1_000_000_000
}

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

impl Default for Limits {
    fn default() -> Self {
        let bundle = |compressed, unpacked| BundleLimits { compressed, unpacked, entries: 20_000 };
        Self {
            free: PlanLimits {
                projects: 3,
                invites: default_invites(),
                custom_hostnames: default_custom_hostnames(),
                pending_hostnames: default_pending_hostnames(),
                zones: default_zones(),
                zone_bytes: default_zone_bytes(),
                storage_bytes: default_storage_bytes(),
                database_bytes: default_database_bytes(),
                database_tokens: default_database_tokens(),
                backup_days: default_backup_days(),
                mails_per_hour: default_mails_per_hour(),
                mail_log_days: default_mail_log_days(),
                mail_bytes: default_mail_bytes(),
                ai_requests_per_minute: default_ai_requests_per_minute(),
                ai_spend_per_day_micro_cents: default_ai_spend_per_day_micro_cents(),
                ai_max_input_tokens: 0,
                ai_max_output_tokens: 0,
                bundle: bundle(50 * MIB, 250 * MIB),
            },
            pro: PlanLimits {
                projects: 100,
                invites: default_invites(),
                custom_hostnames: default_custom_hostnames(),
                pending_hostnames: default_pending_hostnames(),
                zones: 1000,
                zone_bytes: 64 * MIB,
                storage_bytes: 100 * GIB,
                database_bytes: 50 * GIB,
                database_tokens: 100,
                backup_days: 30,
                mails_per_hour: 1000,
                mail_log_days: 365,
                mail_bytes: 50 * GIB,
                ai_requests_per_minute: 600,
                ai_spend_per_day_micro_cents: 100_000_000_000,
                ai_max_input_tokens: 0,
                ai_max_output_tokens: 0,
                bundle: bundle(200 * MIB, GIB),
            },
        }
    }
}
