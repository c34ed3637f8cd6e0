//! Identity providers.

crate::words! {
    /// An identity provider. Provider and subject together identify a user permanently.
    pub enum Provider {
        /// The development login.
        Dev = "dev",
        /// The code host.
        Codehost = "codehost",
    } example Dev
}
