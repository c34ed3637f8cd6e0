//! The types that all contexts share.
//!
//! Ids, time, paging, roles and scopes, plans, error kinds, secrets and the audit event. The crate does no I/O: a
//! process injects the clock and the RNG ([`ClockRng`]), so that tests of expiry and tokens are exact.

mod abuse_limits;
mod access;
mod api_error;
pub mod audit;
mod caller_error;
mod clock_rng;
pub mod domain;
mod email;
mod encoded_words;
mod error_chain;
mod id;
mod named_project;
pub mod ownership;
mod page;
mod plan;
mod provider;
mod redirect;
mod resource;
mod role;
mod scope;
pub mod seal;
mod secret;
mod text;
mod time;

pub use abuse_limits::AbuseLimits;
pub use access::AccessMode;
pub use api_error::{ApiError, Code, InvalidField, InvalidFields, Kind, join_first};
pub use caller_error::CallerError;
pub use clock_rng::{Clock, ClockRng, Random};
pub use email::Email;
pub use encoded_words::encoded_words;
pub use error_chain::error_chain;
pub use id::{
    AuditId, CertificateId, ClientId, DatabaseId, DatabaseTokenId, DeploymentId, DomainId, ExportId, GrantId,
    InvalidId, InviteId, KeyId, MailId, NodeId, NotificationId, OperationId, OrgId, ProjectId, RepositoryId, SessionId,
    SigningKeyId, StorageId, TokenId, UserId, ZoneId,
};
pub use named_project::NamedProject;
pub use page::{Page, Paging};
pub use plan::{BundleLimits, Limits, Plan, PlanLimits};
pub use provider::Provider;
pub use redirect::{AllowList, ForbiddenAddress, InvalidAllowList};
pub use resource::{Resource, ResourceSet};
pub use role::Role;
pub use scope::{InvalidScope, Scope, ScopeSet};
pub use secret::{Secret, Token, TokenHash, TokenKind};
pub use semaphores::KeyedSemaphores;
pub use sha256::{Digest, Digester, InvalidDigest, hex};
pub use text::{InvalidText, NAME_PATTERN, is_name};
pub use time::{InvalidTime, Time};

/// Dependencies of the macros of this crate. Do not use directly.
#[doc(hidden)]
pub mod macro_support {
    #[cfg(feature = "openapi")]
    pub use utoipa;
    pub use {diesel, regex, serde};
}
