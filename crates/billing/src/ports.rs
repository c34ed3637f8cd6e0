//! The ports that other contexts and the adapters of providers implement.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use kernel::{OrgId, Plan, Secret, Time};
use store::Connection;

/// The payments provider (providers.md section 1). Call it only outside transactions.
#[async_trait]
pub trait Payments: Send + Sync {
    /// Creates a checkout, and returns its URL for a browser.
    async fn check_out(&self, checkout: &Checkout) -> Result<String, PaymentsError>;

    /// Creates a session of the customer. The portal links back to `return_to`. Returns `None` if the organization is
    /// not a customer.
    async fn customer_session(
        &self,
        org: OrgId,
        return_to: Option<&str>,
    ) -> Result<Option<CustomerSession>, PaymentsError>;

    /// Schedules that subscriptions end with their current periods, or cancels these schedules. Requests the changes
    /// concurrently, so that a provider that hangs delays the caller only once. Returns for each subscription, in the
    /// same order, the changed subscription, or `None` if it already had the requested state.
    async fn set_cancel_at_period_end(
        &self,
        subscriptions: &[&str],
        cancel: bool,
    ) -> Vec<Result<Option<RemoteSubscription>, PaymentsError>>;

    /// Returns whether the organization has a saved payment method.
    async fn has_payment_method(&self, org: OrgId) -> Result<bool, PaymentsError>;

    /// Returns the provider's id of an organization as a customer, or `None` if it is not a customer.
    async fn customer(&self, org: OrgId) -> Result<Option<String>, PaymentsError>;

    /// Creates a draft order, and returns its id. Without [`Self::finalize_order`], a draft has no effect.
    async fn create_order(&self, order: &NewOrder) -> Result<String, PaymentsError>;

    /// Charges the saved payment method for a draft order. An order that is already paid is not charged again.
    async fn finalize_order(&self, order: &str) -> Result<Charge, PaymentsError>;
}

/// An order that is charged without the customer's presence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOrder {
    pub org: OrgId,
    /// The provider's id of the customer.
    pub customer: String,
    /// The provider's id of the product.
    pub product: String,
    /// The amount in US cents.
    pub cents: i64,
    /// The purpose of the order.
    pub purpose: &'static str,
    /// The platform's id of the charge.
    pub reference: String,
}

/// The result of charging an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    Paid,
    /// The payment method is missing or was declined.
    Declined,
}

/// A checkout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkout {
    pub org: OrgId,
    /// The provider's id of the product.
    pub product: String,
    /// The page that the browser returns to.
    pub return_to: String,
    /// The origin of the page that embeds the checkout.
    pub embed_origin: String,
    /// The amount of AI credit, in cents; `None` for a product with its own price.
    pub credit_cents: Option<i64>,
}

/// A session of a customer at the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomerSession {
    pub token: Secret,
    pub customer_id: String,
    pub expires_at: Time,
    /// The URL of the portal. It contains the token.
    pub portal_url: Secret,
}

/// A subscription as the provider's API returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSubscription {
    pub status: String,
    pub current_period_end: Option<DateTime<Utc>>,
    pub cancel_at_period_end: bool,
    /// The provider's modification time, to the microsecond.
    pub modified_at: Option<DateTime<Utc>>,
}

/// An error of the payments provider. It contains no text of the provider's response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PaymentsError {
    /// Another attempt may succeed.
    #[error("the payments provider is not available: {0}")]
    Unavailable(String),
    /// No attempt with the same order can succeed.
    #[error("the payments provider rejected the request: {0}")]
    Rejected(String),
    /// The subscription that must be changed has ended, or is unknown at the provider.
    #[error("the subscription no longer exists at the payments provider: {0}")]
    Gone(String),
}

/// Access to organizations.
#[async_trait]
pub trait Organizations: Send + Sync {
    /// Locks an organization until the transaction ends, and returns its plan, or `None` for an unknown organization.
    async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<Option<Plan>>;

    /// Sets the plan of a locked organization. The limits of the plan apply from the next request.
    async fn set_plan(&self, tx: &mut Connection, org: OrgId, plan: Plan) -> store::Result<()>;

    /// Raises a notification in the caller's transaction.
    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()>;
}

/// The notifications that this context raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The AI credit of the organization ran out.
    AiCreditLimit,
    /// The charge of an automatic top-up was declined.
    TopUpDeclined,
}

/// The implementations of the ports.
#[derive(Clone)]
pub struct Ports {
    /// The payments provider. `None` if there is none.
    pub payments: Option<Arc<dyn Payments>>,
    pub organizations: Arc<dyn Organizations>,
}
