//! Repositories: each file contains a trait on [`store::Connection`] and its SQL.

mod access;
mod bundle;
mod claim;
mod deployment;
mod holder;
mod hostname;
mod project;
mod purge;

pub use access::*;
pub use bundle::*;
pub use claim::*;
pub use deployment::*;
pub use holder::*;
pub use hostname::*;
pub use project::*;
pub use purge::*;
