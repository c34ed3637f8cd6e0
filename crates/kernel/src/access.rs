//! Who may see what a project serves.

crate::words! {
    /// Who may see a project's deployments (specification, "Access control", rule 1).
    pub enum AccessMode {
        /// Everybody.
        Public = "public",
        /// Members of the organization, from `member` upward.
        Org = "org",
        /// Whoever knows the password.
        Password = "password",
    } example Org
}
