//! Roles within an organization.

crate::words! {
    /// A member's role, in ascending order: each role has all permissions of the lower ones (specification, general
    /// conventions 2).
    pub enum Role {
        /// Reads everything except secrets.
        Viewer = "viewer",
        /// Creates projects, deploys, and sets secrets.
        Member = "member",
        /// Manages members, billing and irreversible operations.
        Admin = "admin",
    } example Admin
}
