//! The payments provider: Polar's API (providers.md section 1).

use std::fmt;

use chrono::{DateTime, Utc};
use kernel::Secret;
use reqwest::Method;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::outbound::{
    Call, Credential, Exchange, Limits, OutboundClient, OutboundConfigError, OutboundError, with_path,
};

const MICRO_CENTS_PER_CENT: i128 = 1_000_000;

/// The statuses of a subscription that has not ended.
const LIVE_STATUSES: [&str; 3] = ["trialing", "active", "past_due"];

/// The client of the payments provider.
pub struct PaymentsClient {
    url: Url,
    token: Secret,
    client: OutboundClient,
}

/// The parameters of a checkout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCheckout<'a> {
    pub product: &'a str,
    /// Our id of the customer.
    pub external_customer_id: &'a str,
    pub success_url: &'a str,
    pub embed_origin: &'a str,
    /// The amount in cents, for AI credit.
    pub credit_cents: Option<i64>,
}

/// An order that is charged without the customer's presence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOrder<'a> {
    /// The provider's id of the customer.
    pub customer_id: &'a str,
    pub product_id: &'a str,
    pub amount_cents: i64,
    /// Our id of the customer.
    pub org: &'a str,
    /// The purpose of the order.
    pub purpose: &'a str,
    /// The platform's id of the charge.
    pub reference: &'a str,
}

/// The result of finalizing an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finalized {
    Paid,
    /// The payment method is missing or was declined. The order stays a draft.
    Declined,
    /// The provider forbids charges without the customer's presence. The order stays a draft.
    Forbidden,
}

/// The result of refunding an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refunded {
    Refunded,
    /// The order was never paid.
    NotPaid,
}

/// A session of a customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomerSession {
    /// The credential of the customer.
    pub token: Secret,
    pub customer_id: String,
    pub expires_at: DateTime<Utc>,
    /// The URL of the portal. It contains the token.
    pub portal_url: Secret,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Subscription {
    pub status: String,
    pub current_period_end: Option<DateTime<Utc>>,
    pub cancel_at_period_end: bool,
    pub modified_at: Option<DateTime<Utc>>,
}

#[derive(Deserialize)]
struct Checkout {
    url: String,
}

#[derive(Deserialize)]
struct Session {
    token: String,
    customer_id: String,
    expires_at: DateTime<Utc>,
    customer_portal_url: String,
}

#[derive(Deserialize)]
struct Customer {
    id: String,
}

#[derive(Deserialize)]
struct DraftOrder {
    id: String,
}

/// The response that an order was finalized. Its status means that the order is paid.
#[derive(Deserialize)]
struct FinalizedOrder {
    paid: Option<bool>,
}

#[derive(Deserialize)]
struct Order {
    paid: bool,
    status: String,
    /// The amount in cents, without tax, that can still be refunded.
    refundable_amount: Option<i64>,
}

#[derive(Deserialize)]
struct PaymentMethods {
    items: Vec<Value>,
}

/// The body of an error.
#[derive(Deserialize)]
struct ErrorBody {
    error: String,
}

type Result<T> = std::result::Result<T, OutboundError>;

impl PaymentsClient {
    /// Creates a client. `url` is the base URL with the version of the API.
    ///
    /// # Errors
    /// Returns an error for an address that is not http or https, or contains credentials.
    pub fn new(url: &Url, token: Secret) -> std::result::Result<Self, OutboundConfigError> {
        Self::with_limits(url, token, Limits::default())
    }

    /// Creates a client with custom limits.
    ///
    /// # Errors
    /// Returns the errors of [`PaymentsClient::new`].
    pub fn with_limits(url: &Url, token: Secret, limits: Limits) -> std::result::Result<Self, OutboundConfigError> {
        let client = OutboundClient::with_limits("payments", [url], limits)?;
        Ok(Self { url: url.clone(), token, client })
    }

    /// Creates a checkout, and returns its URL.
    ///
    /// # Errors
    /// Returns [`OutboundError`].
    pub async fn create_checkout(&self, checkout: &NewCheckout<'_>) -> Result<Url> {
        let NewCheckout { product, external_customer_id, success_url, embed_origin, credit_cents } = checkout;
        let amount = credit_cents.map(|cents| ("amount".to_owned(), json!(cents)));
        let micro_cents = credit_cents.map(|cents| (i128::from(cents) * MICRO_CENTS_PER_CENT).to_string());
        let mut metadata = Map::from_iter([("org".to_owned(), json!(external_customer_id))]);
        metadata.extend(micro_cents.map(|micro_cents| ("microCents".to_owned(), json!(micro_cents))));
        let mut body = Map::from_iter([
            ("products".to_owned(), json!([product])),
            ("external_customer_id".to_owned(), json!(external_customer_id)),
            ("success_url".to_owned(), json!(success_url)),
            ("embed_origin".to_owned(), json!(embed_origin)),
            ("metadata".to_owned(), metadata.into()),
        ]);
        body.extend(amount);
        let created: Checkout = self.call(Method::POST, &["checkouts", ""], Some(&body.into())).await?;
        parse_page_url(&created.url)
    }

    /// Creates a session of a customer. Returns `None` for an unknown customer.
    ///
    /// # Errors
    /// Returns [`OutboundError`].
    pub async fn create_customer_session(
        &self,
        external_customer_id: &str,
        return_url: Option<&str>,
    ) -> Result<Option<CustomerSession>> {
        let mut body = Map::from_iter([("external_customer_id".to_owned(), json!(external_customer_id))]);
        body.extend(return_url.map(|return_url| ("return_url".to_owned(), json!(return_url))));
        match self.call(Method::POST, &["customer-sessions", ""], Some(&body.into())).await {
            Ok(Session { token, customer_id, expires_at, customer_portal_url }) => {
                let portal_url = Secret::new(parse_page_url(&customer_portal_url)?.into());
                Ok(Some(CustomerSession { token: Secret::new(token), customer_id, expires_at, portal_url }))
            }
            // The provider's documentation states 404, but its API responds with 422.
            Err(OutboundError::Status(404 | 422)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Schedules the end of a subscription with its period, or reverts that. Returns `None` if the subscription already
    /// had the requested state.
    ///
    /// # Errors
    /// Returns [`OutboundError`]: status 404, 410 or 412 if the subscription has ended.
    pub async fn set_cancel_at_period_end(&self, subscription: &str, cancel: bool) -> Result<Option<Subscription>> {
        let deadline = Instant::now() + Limits::default().timeout;
        let (path, body) = (["subscriptions", subscription], json!({ "cancel_at_period_end": cancel }));
        let exchange = self.exchange(Method::PATCH, &path, Some(&body)).await?;
        if exchange.status != 403 {
            return exchange.success().map(Some);
        }
        if !exchange.parse::<ErrorBody>().is_ok_and(|body| body.error == "AlreadyCanceledSubscription") {
            return Err(OutboundError::Status(403));
        }
        // The provider refuses the cancellation of a subscription that has ended in the same way.
        let read = timeout_at(deadline, self.call::<Subscription>(Method::GET, &path, None)).await;
        match read.unwrap_or(Err(OutboundError::Timeout)) {
            Ok(found) if !LIVE_STATUSES.contains(&found.status.as_str()) => Err(OutboundError::Status(410)),
            Ok(_) => Ok(None),
            // The refusal itself means success (providers.md section 1).
            Err(error) => {
                tracing::warn!(subscription, %error, "failed to read a subscription after its repeated cancellation");
                Ok(None)
            }
        }
    }

    /// Returns whether a customer has a saved payment method, which is false for an unknown customer.
    ///
    /// # Errors
    /// Returns [`OutboundError`].
    pub async fn has_payment_method(&self, external_customer_id: &str) -> Result<bool> {
        let path = ["customers", "external", external_customer_id, "payment-methods"];
        match self.call::<PaymentMethods>(Method::GET, &path, None).await {
            Ok(methods) => Ok(!methods.items.is_empty()),
            Err(OutboundError::Status(404)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the provider's id of a customer, or `None` for an unknown customer.
    ///
    /// # Errors
    /// Returns [`OutboundError`].
    pub async fn customer_id(&self, external_customer_id: &str) -> Result<Option<String>> {
        match self.call::<Customer>(Method::GET, &["customers", "external", external_customer_id], None).await {
            Ok(customer) => Ok(Some(customer.id)),
            Err(OutboundError::Status(404)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a draft order, and returns its id. A draft charges nothing. Returns `None` if the provider forbids charges
    /// without the customer's presence, or rejects this one.
    ///
    /// # Errors
    /// Returns [`OutboundError`].
    pub async fn create_order(&self, order: &NewOrder<'_>) -> Result<Option<String>> {
        let NewOrder { customer_id, product_id, amount_cents, org, purpose, reference } = order;
        let body = json!({
            "customer_id": customer_id, "product_id": product_id, "amount": amount_cents, "currency": "usd",
            "metadata": { "org": org, "purpose": purpose, "ref": reference },
        });
        match self.call::<DraftOrder>(Method::POST, &["orders", ""], Some(&body)).await {
            Ok(created) => Ok(Some(created.id)),
            Err(OutboundError::Status(403)) => {
                log_forbidden();
                Ok(None)
            }
            Err(OutboundError::Status(422)) => {
                tracing::warn!(
                    org,
                    product = product_id,
                    "the payments provider rejected a charge without the customer"
                );
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Charges a draft order. Safe to repeat: an order that is already paid is not charged again.
    ///
    /// # Errors
    /// Returns [`OutboundError`]: status 409 while the order is being charged, and 412 if it is void, so that it can never
    /// be paid.
    pub async fn finalize_order(&self, order: &str) -> Result<Finalized> {
        let exchange = self.exchange(Method::POST, &["orders", order, "finalize"], Some(&json!({}))).await?;
        match exchange.status {
            402 => return Ok(Finalized::Declined),
            // The order is being finalized, or is no longer a draft: the response of an earlier attempt was lost.
            409 | 412 => {
                // The order exists, so an error of the read is not a result.
                let found = self.order(order).await.map_err(|error| match error {
                    OutboundError::Status(_) => OutboundError::Status(409),
                    error => error,
                })?;
                return match found.status.as_str() {
                    _ if found.paid => Ok(Finalized::Paid),
                    "void" => Err(OutboundError::Status(412)),
                    // For example pending: the order may still be paid.
                    _ => Err(OutboundError::Status(409)),
                };
            }
            403 => {
                // An earlier attempt may have charged the order.
                if self.order(order).await?.paid {
                    return Ok(Finalized::Paid);
                }
                log_forbidden();
                return Ok(Finalized::Forbidden);
            }
            _ => {}
        }
        let finalized: FinalizedOrder = exchange.success()?;
        if finalized.paid == Some(false) { Err(OutboundError::NotJson) } else { Ok(Finalized::Paid) }
    }

    /// Refunds an order: its price, with the tax. Safe to repeat: an order that is refunded already is not refunded
    /// again.
    ///
    /// # Errors
    /// Returns [`OutboundError`].
    pub async fn refund_order(&self, order: &str, amount_cents: i64) -> Result<Refunded> {
        let refused = self.refund(order, amount_cents).await;
        let Err(OutboundError::Status(403 | 404 | 422)) = refused else { return refused };
        // Nothing, or less than the amount, is left to refund: the response of an earlier attempt was lost, the price
        // includes tax, or the order was never paid.
        let found = self.order(order).await?;
        match found.status.as_str() {
            "refunded" | "partially_refunded" => Ok(Refunded::Refunded),
            // The order may still be paid, and then needs the refund.
            "pending" => Err(OutboundError::Status(409)),
            _ if !found.paid => Ok(Refunded::NotPaid),
            // The provider adds the tax of the amount.
            _ => match found.refundable_amount.filter(|net_cents| (1..amount_cents).contains(net_cents)) {
                Some(net_cents) => self.refund(order, net_cents).await,
                None => refused,
            },
        }
    }

    async fn refund(&self, order: &str, amount_cents: i64) -> Result<Refunded> {
        let body = json!({ "order_id": order, "reason": "other", "amount": amount_cents });
        self.call::<IgnoredAny>(Method::POST, &["refunds", ""], Some(&body)).await.map(|_| Refunded::Refunded)
    }

    async fn order(&self, id: &str) -> Result<Order> {
        self.call(Method::GET, &["orders", id], None).await
    }

    async fn call<T: DeserializeOwned>(&self, method: Method, path: &[&str], body: Option<&Value>) -> Result<T> {
        self.exchange(method, path, body).await?.success()
    }

    async fn exchange(&self, method: Method, path: &[&str], body: Option<&Value>) -> Result<Exchange> {
        let (url, body) = (with_path(&self.url, path), body.map(Value::to_string));
        let (credential, header, body) = (Credential::Bearer(&self.token), None, body.as_deref());
        let exchange = self.client.exchange(Call { method, url: &url, credential, header, body }).await?;
        // Every JSON object counts as the provider's own refusal, in contrast to the page of a proxy.
        if (400..500).contains(&exchange.status) {
            exchange.object::<IgnoredAny>()?;
        }
        Ok(exchange)
    }
}

/// Parses the URL of a page that a client opens.
fn parse_page_url(url: &str) -> Result<Url> {
    let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or(OutboundError::NotJson)
}

/// Logs that no card can be charged until an operator acts. The provider enables this flag of an organization on request.
fn log_forbidden() {
    tracing::error!(flag = "off_session_charges_enabled", "the payments provider forbids charges without the customer");
}

impl fmt::Debug for PaymentsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaymentsClient").finish_non_exhaustive()
    }
}
