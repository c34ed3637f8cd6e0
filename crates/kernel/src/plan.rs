//! Plans and their limits.

use serde::Deserialize;

use crate::Time;

crate::words! {
    /// An organization's plan. Only the webhook of the payments provider changes it.
    pub enum Plan {
        /// The plan of a new organization.
        Free = "free",
        /// The paid plan.
        Pro = "pro",
    } example Free
}

impl Plan {
    /// Returns the plan that determines how long backups and mail are kept, and how much mail a project may store. After
    /// the end of the pro plan, this is still the pro plan until `pro_retention_until`, so that the organization can buy
    /// it again, or download the data.
    #[must_use]
    pub fn for_retention(self, pro_retention_until: Option<Time>, now: Time) -> Self {
        if pro_retention_until.is_some_and(|until| now < until) { Self::Pro } else { self }
    }
}

/// A limit, or a table of limits, of which a settings file overrides a part.
trait Overridable {
    /// The content of the settings file. Its default overrides nothing.
    type Overrides;

    fn overridden(self, overrides: Self::Overrides) -> Self;
}

macro_rules! overridable_numbers {
    ($($number:ty),*) => { $(
        impl Overridable for $number {
            type Overrides = Option<Self>;

            fn overridden(self, overrides: Self::Overrides) -> Self {
                overrides.unwrap_or(self)
            }
        }
    )* };
}

overridable_numbers!(u32, u64, i64);

/// Declares a table of limits, and the type of its overrides.
macro_rules! limits {
    (
        $(#[$doc:meta])*
        pub struct $name:ident overridden by $overrides:ident {
            $($(#[$field_doc:meta])* pub $field:ident: $limit:ty,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $limit,)*
        }

        #[derive(Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct $overrides {
            $($field: <$limit as Overridable>::Overrides,)*
        }

        impl Overridable for $name {
            type Overrides = $overrides;

            fn overridden(self, overrides: Self::Overrides) -> Self {
                Self { $($field: self.$field.overridden(overrides.$field),)* }
            }
        }
    };
}

limits! {
    /// The limits of each plan (contract section 1, "Plan limits"). They are settings of the server; these are the
    /// defaults. A settings file overrides single limits: each plan keeps its own defaults for the others.
    #[derive(Deserialize)]
    #[serde(from = "LimitsOverrides")]
    pub struct Limits overridden by LimitsOverrides {
        /// Limits of [`Plan::Free`].
        pub free: PlanLimits,
        /// Limits of [`Plan::Pro`].
        pub pro: PlanLimits,
    }
}

impl From<LimitsOverrides> for Limits {
    fn from(overrides: LimitsOverrides) -> Self {
        Self::default().overridden(overrides)
    }
}

limits! {
    /// The limits of a plan.
    pub struct PlanLimits overridden by PlanOverrides {
        /// Projects per organization.
        pub projects: u32,
        /// The maximum number of pending invitations per organization. The limit prevents abuse, and is the same for
        /// every plan by default.
        pub invites: u32,
        /// The maximum number of custom hostnames per project.
        pub custom_hostnames: u32,
        /// The maximum number of custom hostnames per project whose ownership is not verified yet.
        pub pending_hostnames: u32,
        /// The maximum number of DNS zones per organization.
        pub zones: u32,
        /// The maximum number of bytes per DNS zone: the names and the data of its rrsets.
        pub zone_bytes: u64,
        /// The maximum number of bytes in a project's object storage: the sum of the sizes of all objects.
        pub storage_bytes: u64,
        /// The maximum number of bytes in a project's database.
        pub database_bytes: u64,
        /// The maximum number of tokens of a project's database.
        pub database_tokens: u32,
        /// The number of days for which scheduled generations of a database are kept.
        pub backup_days: u32,
        /// The maximum number of mails that a project can send per hour.
        pub mails_per_hour: u32,
        /// The number of days for which the mail log is kept.
        pub mail_log_days: u32,
        /// Bytes of stored mail per project. Received and sent mail are limited separately.
        pub mail_bytes: u64,
        /// The maximum number of bytes that the git repositories of an organization use on the disk.
        pub repository_bytes: u64,
        /// The maximum number of bytes of an organization's bundles, which are never deleted.
        pub bundle_bytes: u64,
        /// Calls of AI models that a project may make in a minute.
        pub ai_requests_per_minute: u32,
        /// The maximum spend of a project on AI models in 24 hours, in microcents.
        pub ai_spend_per_day_micro_cents: i64,
        /// The maximum number of input tokens per call of an AI model; 0 means the model's own limit.
        pub ai_max_input_tokens: u32,
        /// The maximum number of output tokens per call of an AI model; 0 means the model's own limit.
        pub ai_max_output_tokens: u32,
        /// The limits of a bundle.
        pub bundle: BundleLimits,
    }
}

limits! {
    /// The limits of a bundle.
    pub struct BundleLimits overridden by BundleOverrides {
        /// The maximum size as uploaded, in bytes.
        pub compressed: u64,
        /// The maximum size after unpacking, in bytes.
        pub unpacked: u64,
        /// The maximum number of entries in the archive.
        pub entries: u64,
    }
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

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

impl Default for Limits {
    fn default() -> Self {
        let bundle = |compressed, unpacked| BundleLimits { compressed, unpacked, entries: 20_000 };
        Self {
            free: PlanLimits {
                projects: 3,
                invites: 50,
                custom_hostnames: 100,
                pending_hostnames: 20,
                zones: 20,
                zone_bytes: 8 * MIB,
                storage_bytes: GIB,
                database_bytes: GIB,
                database_tokens: 20,
                backup_days: 7,
                mails_per_hour: 50,
                mail_log_days: 30,
                mail_bytes: GIB,
                repository_bytes: 10 * GIB,
                bundle_bytes: 20 * GIB,
                ai_requests_per_minute: 60,
                // 10 dollars.
                ai_spend_per_day_micro_cents: 1_000_000_000,
                ai_max_input_tokens: 0,
                ai_max_output_tokens: 0,
                bundle: bundle(50 * MIB, 250 * MIB),
            },
            pro: PlanLimits {
                projects: 100,
                invites: 50,
                custom_hostnames: 100,
                pending_hostnames: 20,
                zones: 1000,
                zone_bytes: 64 * MIB,
                storage_bytes: 100 * GIB,
                database_bytes: 50 * GIB,
                database_tokens: 100,
                backup_days: 30,
                mails_per_hour: 1000,
                mail_log_days: 365,
                mail_bytes: 50 * GIB,
                repository_bytes: 500 * GIB,
                bundle_bytes: 1024 * GIB,
                ai_requests_per_minute: 600,
                ai_spend_per_day_micro_cents: 100_000_000_000,
                ai_max_input_tokens: 0,
                ai_max_output_tokens: 0,
                bundle: bundle(200 * MIB, GIB),
            },
        }
    }
}
