//! The minimum role of a route, as a type.

use kernel::Role;

/// A role that a route asks for.
pub trait AtLeast: 'static {
    /// The role.
    const ROLE: Role;
}

/// [`Role::Viewer`] or above.
#[derive(Debug)]
pub struct Viewer;
/// [`Role::Member`] or above.
#[derive(Debug)]
pub struct Member;
/// [`Role::Admin`].
#[derive(Debug)]
pub struct Admin;

impl AtLeast for Viewer {
    const ROLE: Role = Role::Viewer;
}
impl AtLeast for Member {
    const ROLE: Role = Role::Member;
}
impl AtLeast for Admin {
    const ROLE: Role = Role::Admin;
}
