//! Policies: the types that state a route's target, minimum role and scope, and authenticate its caller in one
//! statement.
//!
//! The order of the checks is fixed, so that a refusal reveals no more than it must: the credential (401), the scope
//! (403), the organization (404), the membership and the role (403, the same for every target in the organization), the
//! project (404; the service looks up a zone).

mod account;
mod anyone;
mod caller;
mod credential;
mod find;
mod place;
mod resolve;
pub mod role;
pub mod scope;
mod statement;

pub use account::{Session, SignedIn, SignedInPart, ThisToken};
pub use anyone::{AsNode, Open, Preview, SignIn, Stranger};
pub(crate) use caller::policies_of_callers;
pub(crate) use credential::{Presented, invalid};
pub(crate) use find::{find_by, least};
pub use place::{InOrg, InOrgPart, InProject, InZone, OrgPlace, ProjectPlace};
pub(crate) use resolve::{Found, FoundOrg};
pub(crate) use statement::Target;
