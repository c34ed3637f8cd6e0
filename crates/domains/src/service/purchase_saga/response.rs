//! The recorded responses of the steps of a purchase.

use kernel::Time;
use serde::{Deserialize, Serialize};

/// The recorded price of a purchase. A resumed purchase does not request the price again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PriceResponse {
    pub(super) first_year_cents: i64,
    pub(super) renewal_cents: i64,
    pub(super) total_cents: i64,
    pub(super) premium: bool,
}

/// The draft order; `None` if domains are free of charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OrderResponse {
    pub(super) order: Option<String>,
}

/// The new domain, as the registrar describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RegisterResponse {
    pub(super) registered_at: Time,
    pub(super) expires_at: Time,
    pub(super) locked: bool,
    pub(super) nameservers: Vec<String>,
    pub(super) transferable_at: Time,
}
