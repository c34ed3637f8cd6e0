//! Billing of organizations: plans, the webhook of the payments provider, AI credit, and calls of AI models.
//!
//! Owns the Postgres schema `billing`. Only the webhook changes a plan or credits an order, except for an
//! operator who credits a top-up whose webhook had no effect. Each webhook message is recorded in the same transaction as
//! its effect. So the message takes effect exactly once, even if a process dies while it handles the message.

mod catalog;
mod error;
mod event;
mod model;
mod ports;
mod repository;
mod schema;
mod service;

pub use catalog::{Catalog, CatalogEntry, InvalidCatalog};
pub use error::{BillingError, WebhookError};
pub use model::*;
pub use ports::{
    Charge, Checkout, CustomerSession, NewOrder, Notice, Organizations, Payments, PaymentsError, Ports,
    RemoteSubscription,
};
pub use repository::*;
pub use service::{
    AdjustmentError, Adjustments, Billing, BillingConfig, CallAdmission, CallRefusal, CallRequest, CallResult,
    Products, TOP_UP_TOPIC, TopUpError, TopUpMessage,
};

/// The number of microcents in a cent (providers.md section 1).
pub const MICRO_CENTS_PER_CENT: i64 = 1_000_000;
