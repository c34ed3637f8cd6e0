//! The charges for purchases and renewals. They are not part of the API.

kernel::words! {
    /// The purpose of a charge.
    pub enum ChargePurpose {
        Purchase = "purchase",
        Renewal = "renewal",
    } example Purchase
}

kernel::words! {
    /// The state of a charge.
    pub enum ChargeState {
        /// The order is not finalized yet.
        Pending = "pending",
        Paid = "paid",
        Declined = "declined",
        Refunded = "refunded",
        /// The charge was canceled before the order was finalized.
        Canceled = "canceled",
    } example Paid
}
