//! Where a user signed in.

crate::words! {
    /// Who vouches for a user. Provider and subject together name one user for good.
    pub enum Provider {
        /// The development login.
        Dev = "dev",
        /// The code host.
        Codehost = "codehost",
    } example Dev
}
