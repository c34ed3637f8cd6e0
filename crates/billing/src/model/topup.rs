//! The state of an automatic top-up.

kernel::words! {
    /// The state of an automatic top-up.
    pub enum TopUpState {
        /// Not charged yet, as far as known.
        Pending = "pending",
        /// Charged; the event that credits it is awaited.
        Charged = "charged",
        /// Its event arrived.
        Credited = "credited",
        /// The charge was declined.
        Declined = "declined",
        /// Auto top-up was turned off before the charge.
        Canceled = "canceled",
    } example Pending
}
