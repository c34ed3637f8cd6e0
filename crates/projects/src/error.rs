//! What can go wrong with projects and bundles.

use kernel::{Code, Failure, Kind, Plan};
use serde_json::{Value, json};

/// A refused request, or something this context needs that is away.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    #[error("there is a project of this name in the organization already")]
    NameTaken,
    #[error("the hostname {0} is in use; choose another name")]
    HostnameTaken(String),
    #[error("the {plan} plan allows {limit} projects, and the organization has {count}")]
    Limit { limit: u32, count: i64, plan: Plan },
    #[error("no such project")]
    NotFound,
    #[error("no such version of this project")]
    VersionNotFound,
    #[error("no such bundle")]
    BundleNotFound,
    #[error("the bundle was refused: {0}")]
    Bundle(bundle::Fault),
    #[error("the upload broke off")]
    UploadBroken(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the store of bundles did not answer; try again in a moment")]
    BundleStore(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl ProjectError {
    /// 409: create under a name in use.
    pub const NAME_TAKEN: Code =
        Code::new("project_name_taken", Kind::Conflict, "The organization has a project of this name.");
    /// 409: a hostname in use.
    pub const HOSTNAME_TAKEN: Code = Code::new("hostname_taken", Kind::Conflict, "Another project has the hostname.");
    /// 409: the plan allows no more.
    pub const LIMIT: Code = Code::new(
        "project_limit",
        Kind::Conflict,
        "The plan allows no more projects; `details` holds `limit`, `count` and `plan`.",
    );
    /// 400: not a bundle that can be served.
    pub const INVALID_BUNDLE: Code = Code::new(
        "invalid_bundle",
        Kind::Invalid,
        "The upload is not a bundle; `details.reason` says why, `details.entry` names the entry at fault.",
    );
}

impl Failure for ProjectError {
    fn code(&self) -> &'static Code {
        match self {
            Self::NameTaken => &Self::NAME_TAKEN,
            Self::HostnameTaken(_) => &Self::HOSTNAME_TAKEN,
            Self::Limit { .. } => &Self::LIMIT,
            Self::NotFound | Self::VersionNotFound | Self::BundleNotFound => &Code::NOT_FOUND,
            Self::Bundle(bundle::Fault::TooLarge { .. }) => &Code::PAYLOAD_TOO_LARGE,
            Self::Bundle(bundle::Fault::Invalid { .. }) => &Self::INVALID_BUNDLE,
            // The reader is fed from memory and visits nothing: neither can fail.
            Self::Bundle(bundle::Fault::Io(_) | bundle::Fault::Visit(_)) => &Code::INTERNAL,
            Self::UploadBroken(_) => &Code::BAD_REQUEST,
            Self::BundleStore(_) => &Code::UNAVAILABLE,
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::Limit { limit, count, plan } => Some(json!({ "limit": limit, "count": count, "plan": plan })),
            Self::Bundle(bundle::Fault::TooLarge { limit, max }) => Some(json!({ "limit": max, "of": limit.as_str() })),
            Self::Bundle(bundle::Fault::Invalid { reason, entry }) => {
                Some(json!({ "reason": reason.as_str(), "entry": entry }))
            }
            _ => None,
        }
    }
}
