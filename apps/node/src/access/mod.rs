//! The access gate of sites (specification, "Access control"; contract section 5).
//!
//! A request to a protected site must carry the policy's bypass key or a valid access cookie. Otherwise the visitor
//! must sign in through the dashboard or with the password form. The cookie has no effect on writes and upgrades that a
//! page of another origin caused. Under a policy that this release does not know, only the bypass key is accepted.

mod attempts;
mod cookie;
mod cross_origin;
mod form;
mod gate;
mod policy;
mod verifications;

pub use attempts::AttemptLimiter;
pub use cross_origin::is_cross_origin_action;
pub use gate::AccessGate;
