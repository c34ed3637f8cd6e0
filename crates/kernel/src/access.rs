//! Access modes of projects.

crate::words! {
    /// The visitors who may see a project's deployments (specification, "Access control", rule 1).
    pub enum AccessMode {
        /// All visitors.
        Public = "public",
        /// Members of the organization, from `member` upward.
        Org = "org",
        /// Visitors who know the password.
        Password = "password",
    } example Org
}
