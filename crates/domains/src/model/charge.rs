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
        /// A renewal by the registrar that the organization did not order. It is charged when the organization renews the
        /// domain, or turns its auto-renewal on.
        Unbilled = "unbilled",
        Refunded = "refunded",
        /// The charge was canceled before it was made.
        Canceled = "canceled",
    } example Paid
}
