//! Policies: the types that state a route's target, minimum role and scope, and authorize its caller with one
//! statement.
//!
//! The order of the checks is fixed, so that a rejection reveals as little as possible: the credential (401), the scope
//! (403), the organization (404), the membership and the role (403, the same for every target in the organization), the
//! project (404; the service looks up a zone).

mod account;
mod anonymous;
mod authenticate;
mod caller;
mod caller_check;
mod credential;
mod deploy;
mod org;
mod repository;
mod resolve;
pub mod role;
pub mod scope;
mod statement;

pub use account::{CurrentToken, Session, SignedIn, SignedInFiltered};
pub use anonymous::{
    Anonymous, DeviceCaller, GitNodeCaller, MailNodeCaller, NodeCaller, Open, Preview, RevokeCaller, SignIn,
    TokenCaller,
};
pub(crate) use authenticate::authenticate_with;
pub(crate) use caller::impl_caller_policies;
pub use caller_check::find_caller_check;
pub(crate) use credential::{PresentedCredential, invalid_credential, rate_limit_address};
pub(crate) use deploy::{DeployDecision, Deployer, authorize_deploy};
pub use org::{InOrg, InOrgFiltered, InProject, InZone, ListedTarget, TargetOrg, TargetProject};
pub use repository::RepositoryReader;
pub(crate) use repository::{
    AllowedGitAccess, GitAuthorizer, GitCredential, GitDecision, GitUser, authorize_push_again,
};
pub(crate) use resolve::{ResolvedCaller, ResolvedOrg};
pub(crate) use statement::Target;
