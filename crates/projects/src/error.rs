//! What can go wrong with projects and bundles.

use kernel::{Code, Failure, Kind, Malformed, Plan};
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
    #[error("the project has no such hostname")]
    HostnameNotFound,
    #[error("the hostname that came with the project stays with it; delete or rename the project")]
    DefaultHostname,
    #[error("no project is served under this hostname")]
    UnknownHostname,
    #[error("confirm must be the project's name, {0}; nothing was deleted")]
    ConfirmMismatch(String),
    #[error(transparent)]
    Field(#[from] Malformed),
    #[error("you are not a member of the organization that this hostname belongs to")]
    Outsider,
    #[error("this project is for members of its organization; you are {0} there, and member is the least")]
    MembersOnly(kernel::Role),
    #[error("the code is unknown, used or expired; open the page again")]
    InvalidCode,
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
    /// 400: a deletion that was not meant.
    pub const CONFIRM_MISMATCH: Code =
        Code::new("confirm_mismatch", Kind::Invalid, "`confirm` is not the project's name; nothing was deleted.");
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
            Self::NotFound
            | Self::VersionNotFound
            | Self::BundleNotFound
            | Self::HostnameNotFound
            | Self::UnknownHostname => &Code::NOT_FOUND,
            Self::ConfirmMismatch(_) => &Self::CONFIRM_MISMATCH,
            Self::DefaultHostname | Self::Field(_) | Self::InvalidCode => &Code::BAD_REQUEST,
            Self::Outsider | Self::MembersOnly(_) => &Code::FORBIDDEN,
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
            Self::Field(malformed) => Some(malformed.details()),
            _ => None,
        }
    }
}
