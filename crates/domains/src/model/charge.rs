//! The charges of purchases and renewals. Not part of the API.

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
        /// The order may be finalized.
        Pending = "pending",
        Paid = "paid",
        Declined = "declined",
        Refunded = "refunded",
        /// The charge ended before the order was finalized.
        Canceled = "canceled",
    } example Paid
}
