//! The errors of projects and bundles.

use kernel::ownership::{TakeoverObstacle, VerifyRecord};
use kernel::{ApiError, Code, InvalidField, Kind, Plan, Time};
use serde_json::{Value, json};

/// A limit of the hostnames of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostnameLimit {
    /// Custom hostnames.
    Custom,
    /// Custom hostnames that are pending.
    Pending,
}

/// A rejected request, or a dependency that is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    #[error("the organization already has a project with this name; choose another name")]
    NameTaken,
    #[error("the hostname {0} is in use; choose another name")]
    HostnameTaken(String),
    #[error("another project uses the hostname {hostname}; {}", obstacle.advice(record))]
    HostnameHeld { hostname: String, record: VerifyRecord, obstacle: TakeoverObstacle },
    #[error("the {plan} plan allows {limit} {of}, and this project already has {count}; {}", of.advice())]
    HostnameLimit { of: HostnameLimit, limit: u32, count: i64, plan: Plan },
    #[error("the token has no access to the organization's zone of this hostname; use a token that has")]
    ZoneForbidden,
    #[error("too many concurrent ownership checks for this organization; try again in a moment")]
    TooManyChecks,
    #[error("the {plan} plan allows {limit} projects, and the organization already has {count}")]
    Limit { limit: u32, count: i64, plan: Plan },
    #[error(
        "the organization deleted {limit} projects in the last 30 days; it can create a project at {purge_at}, when \
         the data of one of them is purged"
    )]
    DeletedLimit { limit: u32, purge_at: Time },
    #[error("no such project")]
    NotFound,
    #[error("the project has no such hostname")]
    HostnameNotFound,
    #[error("the default hostname cannot be deleted; rename or delete the project instead")]
    DefaultHostname,
    #[error("this hostname does not serve a project")]
    UnknownHostname,
    #[error("confirm must equal the project's name, {0}; nothing was deleted")]
    ConfirmMismatch(String),
    #[error(transparent)]
    Field(#[from] InvalidField),
    #[error("you are not a member of the organization that owns this hostname")]
    Outsider,
    #[error("this project requires the role member in its organization, and your role is {0}")]
    MembersOnly(kernel::Role),
    #[error("the code is invalid, used or expired; open the page again")]
    InvalidCode,
    #[error("no such version of this project")]
    VersionNotFound,
    #[error("this push is not the next one to deploy")]
    PushNotPending,
    #[error(
        "the bundles of the organization would use {bytes} bytes, and the {plan} plan allows {limit}; bundles are \
         never deleted, so upgrade the plan, or ask the operator to raise the limit"
    )]
    BundleBytes { limit: u64, bytes: i64, plan: Plan },
    #[error("the limit of {limit} deployments of a project in 24 hours is reached; retry in {retry_after} s")]
    DeploymentLimit { limit: u32, retry_after: i64 },
    #[error("no such bundle")]
    BundleNotFound,
    #[error("the bundle was rejected: {0}")]
    Bundle(bundle::BundleError),
    #[error("the upload was interrupted; try again")]
    UploadBroken(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the bundle store did not answer; try again in a moment")]
    BundleStore(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl ProjectError {
    /// 409: the name is in use.
    pub const NAME_TAKEN: Code =
        Code::new("project_name_taken", Kind::Conflict, "The organization already has a project with this name.");
    /// 409: the hostname is in use.
    pub const HOSTNAME_TAKEN: Code = Code::new(
        "hostname_taken",
        Kind::Conflict,
        "Another project uses the hostname. For a custom hostname, `details.verify` is the TXT record that proves your \
         ownership. Publish it, then send the same request again with a new `Idempotency-Key`, if it has one.",
    );
    /// 409: a limit of hostnames is reached.
    pub const HOSTNAME_LIMIT: Code = Code::new(
        "hostname_limit",
        Kind::Conflict,
        "The project has reached the limit of custom hostnames, or of pending ones. `details` contains `limit`, \
         `count`, `plan`, and `of`, which is `custom` or `pending`.",
    );
    /// 409: the plan's project limit is reached.
    pub const LIMIT: Code = Code::new(
        "project_limit",
        Kind::Conflict,
        "The organization has reached the project limit of its plan. `details` contains `limit`, `count` and `plan`.",
    );
    /// 409: the organization deleted too many projects, against abuse.
    pub const DELETED_LIMIT: Code = Code::new(
        "deleted_project_limit",
        Kind::Conflict,
        "The organization deleted too many projects in the last 30 days, whose data is not purged yet. `details` \
         contains `limit`, and `purgeAt`: the time at which the organization can create a project again.",
    );
    /// 409: the plan's limit of bundles is reached.
    pub const BUNDLE_BYTES_LIMIT: Code = Code::new(
        "bundle_bytes_limit",
        Kind::Conflict,
        "The bundles of the organization would exceed the bytes that its plan allows. `details` contains `limit`, \
         `bytes` and `plan`.",
    );
    /// 400: the deletion is not confirmed.
    pub const CONFIRM_MISMATCH: Code = Code::new(
        "confirm_mismatch",
        Kind::Invalid,
        "`confirm` does not equal the project's name. Nothing was deleted.",
    );
    /// 400: an invalid bundle.
    pub const INVALID_BUNDLE: Code = Code::new(
        "invalid_bundle",
        Kind::Invalid,
        "The upload is not a valid bundle. `details.reason` is the violated rule, `details.entry` the invalid entry.",
    );
}

impl ApiError for ProjectError {
    fn code(&self) -> &'static Code {
        match self {
            Self::NameTaken => &Self::NAME_TAKEN,
            Self::HostnameTaken(_) | Self::HostnameHeld { .. } => &Self::HOSTNAME_TAKEN,
            Self::HostnameLimit { .. } => &Self::HOSTNAME_LIMIT,
            Self::TooManyChecks => &Code::UNAVAILABLE,
            Self::Limit { .. } => &Self::LIMIT,
            Self::DeletedLimit { .. } => &Self::DELETED_LIMIT,
            Self::BundleBytes { .. } => &Self::BUNDLE_BYTES_LIMIT,
            Self::DeploymentLimit { .. } => &Code::RATE_LIMITED,
            Self::NotFound
            | Self::VersionNotFound
            | Self::PushNotPending
            | Self::BundleNotFound
            | Self::HostnameNotFound
            | Self::UnknownHostname => &Code::NOT_FOUND,
            Self::ConfirmMismatch(_) => &Self::CONFIRM_MISMATCH,
            Self::DefaultHostname | Self::Field(_) | Self::InvalidCode => &Code::BAD_REQUEST,
            Self::ZoneForbidden | Self::Outsider | Self::MembersOnly(_) => &Code::FORBIDDEN,
            Self::Bundle(bundle::BundleError::TooLarge { .. }) => &Code::PAYLOAD_TOO_LARGE,
            Self::Bundle(bundle::BundleError::Invalid { .. }) => &Self::INVALID_BUNDLE,
            // The reader reads from memory and its visitor does nothing, so neither can fail.
            Self::Bundle(bundle::BundleError::Io(_) | bundle::BundleError::Visit(_)) => &Code::INTERNAL,
            Self::UploadBroken(_) => &Code::BAD_REQUEST,
            Self::BundleStore(_) => &Code::UNAVAILABLE,
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::Limit { limit, count, plan } => Some(json!({ "limit": limit, "count": count, "plan": plan })),
            Self::DeletedLimit { limit, purge_at } => Some(json!({ "limit": limit, "purgeAt": purge_at })),
            Self::BundleBytes { limit, bytes, plan } => Some(json!({ "limit": limit, "bytes": bytes, "plan": plan })),
            Self::DeploymentLimit { limit, .. } => Some(json!({ "limit": limit })),
            Self::HostnameHeld { record, .. } => Some(json!({ "verify": record })),
            Self::HostnameLimit { of, limit, count, plan } => {
                Some(json!({ "limit": limit, "count": count, "plan": plan, "of": of.as_str() }))
            }
            Self::Bundle(bundle::BundleError::TooLarge { limit, max }) => {
                Some(json!({ "limit": max, "of": limit.as_str() }))
            }
            Self::Bundle(bundle::BundleError::Invalid { reason, entry }) => {
                Some(json!({ "reason": reason.as_str(), "entry": entry }))
            }
            Self::Field(invalid) => Some(invalid.details()),
            Self::Store(error) => error.details(),
            _ => None,
        }
    }

    fn retry_after(&self) -> Option<i64> {
        match self {
            Self::DeploymentLimit { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}

impl HostnameLimit {
    /// Returns the name of the limit in error details.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Custom => "custom",
            Self::Pending => "pending",
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::Custom => "remove a hostname first",
            Self::Pending => "verify or remove a pending hostname first",
        }
    }
}

impl std::fmt::Display for HostnameLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Custom => "custom hostnames per project",
            Self::Pending => "unverified custom hostnames per project",
        })
    }
}
