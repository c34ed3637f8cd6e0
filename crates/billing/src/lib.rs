//! Billing of organizations: plans, the webhook of the payments provider, and AI credit.
//!
//! Owns the Postgres schema `billing`. Only the webhook changes a plan or credits an order. Each of its messages is
//! recorded in the transaction of its effect, so it takes effect once, whatever process dies in between.

mod error;
mod event;
mod model;
mod ports;
mod repository;
mod schema;
mod service;

pub use error::{BillingError, WebhookError};
pub use model::*;
pub use ports::{Checkout, CustomerSession, Organizations, Payments, PaymentsError, Ports, RemoteSubscription};
pub use repository::*;
pub use service::{Billing, BillingConfig, Products};

/// Microcents of a cent (providers.md section 1).
pub const MICRO_CENTS_PER_CENT: i64 = 1_000_000;
