//! Roles within an organization.

crate::words! {
    /// A member's role, ascending: whatever one may, every higher one may (specification, general conventions 2).
    pub enum Role {
        /// Sees everything but secrets.
        Viewer = "viewer",
        /// Builds: creates projects, deploys, sets secrets.
        Member = "member",
        /// Governs: members, money, whatever cannot be undone.
        Admin = "admin",
    } example Admin
}
