//! Access tokens: JWTs of RFC 9068, signed with ES256.

mod claims;
mod sign;
mod verify;

pub use claims::{Claims, VerifiedToken};
pub(crate) use sign::Signer;
pub(crate) use verify::{Expected, UnverifiedToken};
pub use verify::{InvalidToken, RejectedToken};

/// The media type of access tokens in the header `typ` (RFC 9068 section 2.1).
const TYPE: &str = "at+jwt";
