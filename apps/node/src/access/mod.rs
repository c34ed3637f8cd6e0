//! Whom a site lets in (specification, "Access control"; contract section 5).
//!
//! Whoever knocks at a protected site carries the key that passes by its policy, or a [`Pass`] in a cookie, or is shown a
//! way to one: the dashboard's round trip, or the password form. A policy that this release does not know lets nobody in
//! but the key.

mod attempts;
mod door;
mod form;
mod pass;
mod policy;

pub use door::Doors;
