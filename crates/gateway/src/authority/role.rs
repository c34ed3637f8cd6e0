//! The minimum role of a route, as a type.

use kernel::Role;

/// The minimum role of a route.
pub trait MinimumRole: 'static {
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

impl MinimumRole for Viewer {
    const ROLE: Role = Role::Viewer;
}
impl MinimumRole for Member {
    const ROLE: Role = Role::Member;
}
impl MinimumRole for Admin {
    const ROLE: Role = Role::Admin;
}
