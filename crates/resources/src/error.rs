//! The errors of this context.

use kernel::{ApiError, Code, InvalidField, Kind, Plan};
use serde_json::{Value, json};

use crate::model::SecretName;

/// An error of the resources service. None contains the value of a secret.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    #[error("no such project")]
    ProjectNotFound,
    #[error("the project has no such secret")]
    SecretNotFound,
    #[error("the platform reserves the name {0}; choose a name other than DB and ASSETS that does not begin with SVC_")]
    ReservedName(SecretName),
    #[error("a project can have {limit} secrets, and this project already has {count}; delete a secret first")]
    SecretLimit { limit: u32, count: usize, plan: Plan },
    #[error(
        "the secrets of a project can have {limit} bytes, and those of this project already have {count}; delete or shorten a \
         secret first"
    )]
    SecretSizeLimit { limit: i64, count: i64, plan: Plan },
    #[error(
        "the secrets of an organization on the pro plan, or of all free organizations with the same creator, can have \
         {limit} bytes together; delete or shorten a secret first"
    )]
    SecretTotalLimit { limit: i64, plan: Plan },
    #[error("this installation has no mail domain; ask its operator to set SVC_MAIL_DOMAIN")]
    EmailUnavailable,
    #[error("another project has the address {0}; revoke its grant, or rename this project first")]
    EmailAddressTaken(String),
    #[error("app sign-in needs a database; enable it first, and wait for the end of a deletion")]
    DatabaseRequired,
    #[error("app sign-in is not enabled for the project; enable it first")]
    AuthNotGranted,
    #[error("the provider must be one of: codehost webaccount messenger")]
    UnknownProvider,
    #[error("{0} must not be empty")]
    EmptyClient(&'static str),
    #[error(transparent)]
    Field(#[from] InvalidField),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl ResourceError {
    /// 400: the platform uses the name.
    pub const RESERVED_NAME: Code = Code::new(
        "reserved_name",
        Kind::Invalid,
        "The name of the secret is reserved: `DB`, `ASSETS`, and names that begin with `SVC_`.",
    );
    /// 409: the secrets of the project, of its pro organization, or of all free organizations with its creator, have the
    /// maximum number or size.
    pub const SECRET_LIMIT: Code = Code::new(
        "secret_limit",
        Kind::Conflict,
        "The project has reached the limit of secrets: 200, or 2 MiB of values. Or its pro organization, or \
         all free organizations with the same creator, have 64 MiB of values. `details` contains `limit`, `of`, which is \
         `secrets`, `bytes` or `totalBytes`, `plan`, and `count` except for `totalBytes`.",
    );
    /// 409: the installation has no mail.
    pub const EMAIL_UNAVAILABLE: Code =
        Code::new("email_unavailable", Kind::Conflict, "The installation has no mail domain.");
    /// 409: the address is in use.
    pub const EMAIL_ADDRESS_TAKEN: Code =
        Code::new("email_address_taken", Kind::Conflict, "Another project has the mail address.");
    /// 409: app sign-in has no database for its users. The context `databases` has the same code.
    pub const DATABASE_REQUIRED: Code =
        Code::new("database_required", Kind::Conflict, "The project has no database. Enable it first.");
    /// 404: app sign-in is not enabled.
    pub const NOT_GRANTED: Code =
        Code::new("not_granted", Kind::NotFound, "App sign-in is not enabled for the project. Enable it first.");
    /// 400: no such identity provider, or no usable client of it.
    pub const INVALID_PROVIDER: Code = Code::new(
        "invalid_provider",
        Kind::Invalid,
        "The provider is none of `codehost`, `webaccount` and `messenger`, or `clientId` or `clientSecret` is empty.",
    );
}

impl ApiError for ResourceError {
    fn code(&self) -> &'static Code {
        match self {
            Self::ProjectNotFound | Self::SecretNotFound => &Code::NOT_FOUND,
            Self::ReservedName(_) => &Self::RESERVED_NAME,
            Self::SecretLimit { .. } | Self::SecretSizeLimit { .. } | Self::SecretTotalLimit { .. } => {
                &Self::SECRET_LIMIT
            }
            Self::EmailUnavailable => &Self::EMAIL_UNAVAILABLE,
            Self::EmailAddressTaken(_) => &Self::EMAIL_ADDRESS_TAKEN,
            Self::DatabaseRequired => &Self::DATABASE_REQUIRED,
            Self::AuthNotGranted => &Self::NOT_GRANTED,
            Self::UnknownProvider | Self::EmptyClient(_) => &Self::INVALID_PROVIDER,
            Self::Field(_) => &Code::BAD_REQUEST,
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::SecretLimit { limit, count, plan } => {
                Some(json!({ "limit": limit, "count": count, "of": "secrets", "plan": plan }))
            }
            Self::SecretSizeLimit { limit, count, plan } => {
                Some(json!({ "limit": limit, "count": count, "of": "bytes", "plan": plan }))
            }
            Self::SecretTotalLimit { limit, plan } => Some(json!({ "limit": limit, "of": "totalBytes", "plan": plan })),
            Self::Field(invalid) => Some(invalid.details()),
            Self::Store(error) => error.details(),
            _ => None,
        }
    }
}
