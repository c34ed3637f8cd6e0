//! The state of an automatic top-up.

kernel::words! {
    /// The state of an automatic top-up.
    pub enum TopUpState {
        /// The top-up is not charged yet, or the result of the charge is not known.
        Pending = "pending",
        /// The top-up is charged. The event that credits it has not arrived.
        Charged = "charged",
        /// The event `order.paid` arrived, and the amount was credited.
        Credited = "credited",
        /// The charge was declined.
        Declined = "declined",
        /// Auto top-up was turned off or got other settings before the charge, or an operator ended the top-up without
        /// credit.
        Canceled = "canceled",
    } example Pending
}
