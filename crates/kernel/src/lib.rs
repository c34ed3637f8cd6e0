//! What every context shares and nothing else.
//!
//! Ids, time, paging, roles and scopes, plans, error kinds, secrets and the audit event. No I/O: the clock and the
//! source of randomness are values ([`World`]) that a process hands in, so that expiry and token tests are exact.

mod access;
pub mod audit;
pub mod domain;
mod email;
mod failure;
mod hex;
mod id;
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
mod world;

pub use access::AccessMode;
pub use email::Email;
pub use failure::{Code, Failure, Kind, Malformed};
pub use hex::hex;
pub use id::{
    AuditId, DeploymentId, InvalidId, InviteId, KeyId, NodeId, NotificationId, OrgId, ProjectId, SessionId, TokenId,
    UserId, ZoneId,
};
pub use page::{Page, Paging};
pub use plan::{BundleLimits, Limits, Plan, PlanLimits};
pub use provider::Provider;
pub use redirect::{AllowList, ForbiddenAddress, InvalidAllowList};
pub use resource::{Resource, ResourceSet};
pub use role::Role;
pub use scope::Scope;
pub use secret::{Secret, Token, TokenHash, TokenKind};
pub use sha256::{Digest, Digester, InvalidDigest};
pub use text::InvalidText;
pub use time::Time;
pub use world::{Clock, Random, World};

/// What the macros of this crate expand to; not for use by hand.
#[doc(hidden)]
pub mod macro_support {
    #[cfg(feature = "openapi")]
    pub use utoipa;
    pub use {diesel, regex_lite, serde};
}
