//! The parts that authorization servers share: the code flow with PKCE, the formats of GitHub, the faults of endpoints,
//! and the page on which a user signs in.

mod fault;
pub(crate) mod github;
mod grants;
mod page;

pub use fault::ResponseFault;
pub(crate) use grants::{Grants, TokenError, redirect_back};
pub(crate) use page::{Account, SignInPage};
