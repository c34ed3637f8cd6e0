//! The payments provider: Polar's API for checkouts, customers and subscriptions, its pages for buyers, and its
//! webhooks.

mod page;
mod state;

use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::AUTHORIZATION;
use ring::hmac;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::faults;
use crate::http::{self, Request, Response};
use crate::values::{new_id, now};
use crate::webhooks::{Delivery, Headers, Webhooks};
use state::{ApiError, Card, State, time};

/// The path of the API, with its version.
pub const PAYMENTS_PATH: &str = "/polar/v1";
/// The access token of the service.
pub const PAYMENTS_TOKEN: &str = "polar_oat_sandbox";
/// The secret of the webhooks. The key is the bytes of this text without decoding, as at the real provider.
pub const PAYMENTS_WEBHOOK_SECRET: &str = "polar_whs_sandbox";
/// The subscription of the pro plan.
pub const PRO_PRODUCT: &str = "c2d3a1b0-0000-4000-8000-000000000001";
/// AI credit, whose buyer selects the price.
pub const CREDIT_PRODUCT: &str = "c2d3a1b0-0000-4000-8000-000000000002";
/// Domains, which the service charges by orders.
pub const DOMAIN_PRODUCT: &str = "c2d3a1b0-0000-4000-8000-000000000003";
/// Automatic top-ups of AI credit, which the service charges by orders.
pub const TOPUP_PRODUCT: &str = "c2d3a1b0-0000-4000-8000-000000000004";

/// A fault that affects all following requests to the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentsFault {
    /// Responds with 503.
    Unavailable,
    /// Responds with 200 and a page.
    Html,
    /// Responds with this status and a page.
    HtmlError(u16),
    /// Responds with 429 and `Retry-After: 1` once, and then without a fault.
    TooManyRequestsOnce,
    /// Responds with 429 and a `Retry-After` of a minute.
    TooManyRequests,
    /// Does not respond while the fault lasts.
    Hang,
    /// Executes a request, and does not respond while the fault lasts.
    HangAfter,
    /// Executes a request, and closes the connection without a response.
    LostResponse,
    /// Like [`Self::LostResponse`], but responds to a request that it refuses.
    LostSuccess,
    /// Responds with 409 when an order is finalized, because another request is finalizing it.
    InProgress,
    /// Responds with 412 when an order is finalized, because the provider ended the draft without a payment.
    NotDraft,
    /// Responds with 412 when an order is finalized, because its payment is in progress. The payment succeeds when the
    /// fault ends.
    Pending,
    /// Responds with 403 when an order is created or finalized, because the organization lacks the flag
    /// `off_session_charges_enabled`.
    OffSessionForbidden,
}

/// The page of a proxy in front of the provider.
const PAGE: &str = "<!DOCTYPE html><title>Maintenance</title>";

/// The faults with their names on the page.
const FAULTS: [(&str, Option<PaymentsFault>); 14] = [
    ("none", None),
    ("unavailable", Some(PaymentsFault::Unavailable)),
    ("html", Some(PaymentsFault::Html)),
    ("html 404", Some(PaymentsFault::HtmlError(404))),
    ("429 once", Some(PaymentsFault::TooManyRequestsOnce)),
    ("429", Some(PaymentsFault::TooManyRequests)),
    ("hang", Some(PaymentsFault::Hang)),
    ("hang after the effect", Some(PaymentsFault::HangAfter)),
    ("lost response", Some(PaymentsFault::LostResponse)),
    ("lost response of a success", Some(PaymentsFault::LostSuccess)),
    ("order in progress", Some(PaymentsFault::InProgress)),
    ("order not a draft", Some(PaymentsFault::NotDraft)),
    ("order pending", Some(PaymentsFault::Pending)),
    ("off-session charges forbidden", Some(PaymentsFault::OffSessionForbidden)),
];

/// The provider behind a listener.
#[derive(Debug)]
pub(crate) struct Payments {
    /// The base URL of the pages.
    base: String,
    state: Mutex<State>,
    /// The current fault, and the suffix of the paths that it affects.
    fault: watch::Sender<Option<(&'static str, PaymentsFault)>>,
    webhooks: Webhooks,
}

impl Payments {
    /// Creates the provider. `base` is the address at which browsers reach the pages, and `webhook_url` is the endpoint
    /// of the service. The caller must be in a tokio runtime.
    pub fn new(base: &str, webhook_url: Option<String>) -> Self {
        Self {
            base: base.to_owned(),
            state: Mutex::default(),
            fault: watch::Sender::new(None),
            webhooks: Webhooks::start(
                webhook_url,
                |delivery| Ok(sign(delivery)),
                |status| !(200..300).contains(&status),
            ),
        }
    }

    /// Returns whether a request is for the API or the pages of the provider.
    pub fn serves(path: &str) -> bool {
        http::is_within(path, PAYMENTS_PATH) || http::is_within(path, "/payments")
    }

    /// Responds to a request. Returns `None` to close the connection without a response.
    pub async fn respond(&self, request: &Request) -> Option<Response> {
        let Some(path) = request.path.strip_prefix(PAYMENTS_PATH) else { return Some(self.page(request)) };
        let fault = self.current_fault(request);
        if let Some(response) = self.fail(fault).await {
            return response;
        }
        if request.header(AUTHORIZATION) != format!("Bearer {PAYMENTS_TOKEN}") {
            return Some(error(ApiError { status: 401, error: "Unauthorized", detail: "invalid access token".into() }));
        }
        let response = self.call(request, path).unwrap_or_else(error);
        match fault {
            Some(PaymentsFault::LostResponse) => None,
            Some(PaymentsFault::LostSuccess) if response.status < 400 => None,
            Some(PaymentsFault::HangAfter) => {
                faults::wait_for_change(&self.fault).await;
                None
            }
            _ => Some(response),
        }
    }

    /// Returns the current fault of a request.
    fn current_fault(&self, request: &Request) -> Option<PaymentsFault> {
        let fault = *self.fault.borrow();
        fault.filter(|(path_end, _)| request.path.ends_with(path_end)).map(|(_, fault)| fault)
    }

    /// Returns the response of a fault that prevents the effect of a request. Returns `None` if there is no such fault.
    async fn fail(&self, fault: Option<PaymentsFault>) -> Option<Option<Response>> {
        let too_many =
            |seconds| Response { retry_after: Some(seconds), ..Response::new(429, "application/json", "{}") };
        Some(Some(match fault? {
            PaymentsFault::Unavailable => Response::new(503, "text/plain", "out of service"),
            PaymentsFault::Html => Response::new(200, "text/html", PAGE),
            PaymentsFault::HtmlError(status) => Response::new(status, "text/html", PAGE),
            PaymentsFault::TooManyRequestsOnce => {
                self.inject("", None);
                too_many(1)
            }
            PaymentsFault::TooManyRequests => too_many(60),
            PaymentsFault::Hang => {
                faults::wait_for_change(&self.fault).await;
                return Some(None);
            }
            PaymentsFault::HangAfter
            | PaymentsFault::LostResponse
            | PaymentsFault::LostSuccess
            | PaymentsFault::InProgress
            | PaymentsFault::NotDraft
            | PaymentsFault::Pending
            | PaymentsFault::OffSessionForbidden => return None,
        }))
    }

    fn inject(&self, path_end: &'static str, fault: Option<PaymentsFault>) {
        self.fault.send_replace(fault.map(|fault| (path_end, fault)));
        if fault != Some(PaymentsFault::Pending) {
            let paid = self.state().pay_pending();
            for order in &paid {
                self.send("order.paid", order);
            }
        }
    }

    fn call(&self, request: &Request, path: &str) -> Result<Response, ApiError> {
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let body = || Body::parse(&request.body);
        let state = &mut *self.state();
        let (status, json) = match (request.method.as_str(), segments.as_slice()) {
            ("POST", ["checkouts", ""]) => (201, state.create_checkout(&body()?, &self.base)?),
            ("POST", ["customer-sessions", ""]) => (201, state.create_customer_session(&body()?, &self.base)?),
            ("GET", ["subscriptions", id]) => (200, state.subscription(id)?),
            ("PATCH", ["subscriptions", id]) => {
                let subscription = state.change_subscription(id, &body()?)?;
                self.send("subscription.updated", &subscription);
                (200, subscription)
            }
            ("GET", ["customers", "external", id]) => (200, state.customer(id)?),
            ("GET", ["customers", "external", id, "payment-methods"]) => (200, state.payment_methods(id)?),
            ("POST", ["orders", ""] | ["orders", _, "finalize"])
                if self.current_fault(request) == Some(PaymentsFault::OffSessionForbidden) =>
            {
                let detail = "Off-session charges are not enabled for this organization.".into();
                return Err(ApiError { status: 403, error: "NotPermitted", detail });
            }
            ("POST", ["orders", ""]) => (201, state.create_order(&body()?)?),
            ("GET", ["orders", id]) => (200, state.order(id)?),
            ("POST", ["orders", _, "finalize"]) if self.current_fault(request) == Some(PaymentsFault::InProgress) => {
                let detail = "Order is being processed.".into();
                return Err(ApiError { status: 409, error: "OrderInProgress", detail });
            }
            ("POST", ["orders", id, "finalize"]) if self.current_fault(request) == Some(PaymentsFault::NotDraft) => {
                state.set_unpaid_status(id, "void")?;
                return Err(ApiError::not_draft());
            }
            ("POST", ["orders", id, "finalize"]) if self.current_fault(request) == Some(PaymentsFault::Pending) => {
                state.set_unpaid_status(id, "pending")?;
                return Err(ApiError::not_draft());
            }
            ("POST", ["orders", id, "finalize"]) => {
                body()?.expect(&[])?;
                let order = state.finalize_order(id)?;
                self.send("order.paid", &order);
                (200, order)
            }
            ("POST", ["refunds", ""]) => {
                let (refund, order) = state.refund(&body()?)?;
                self.send("order.refunded", &order);
                (201, refund)
            }
            _ => return Err(ApiError::not_found()),
        };
        Ok(Response { status, ..Response::json(&json) })
    }

    /// Sends a webhook.
    fn send(&self, event: &str, data: &Value) {
        let body = json!({ "type": event, "timestamp": time(now()), "data": data });
        self.webhooks.send(format!("msg_{}", new_id()), event, body.to_string());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// Returns the headers of Standard Webhooks. Each attempt has its own timestamp and signature.
fn sign(delivery: &Delivery) -> Headers {
    let timestamp = now().timestamp().to_string();
    let key = hmac::Key::new(hmac::HMAC_SHA256, PAYMENTS_WEBHOOK_SECRET.as_bytes());
    let tag = hmac::sign(&key, format!("{}.{timestamp}.{}", delivery.id, delivery.body).as_bytes());
    vec![
        ("webhook-id", delivery.id.clone()),
        ("webhook-timestamp", timestamp),
        ("webhook-signature", format!("v1,{}", STANDARD.encode(tag))),
        ("content-type", "application/json".to_owned()),
    ]
}

fn error(error: ApiError) -> Response {
    let ApiError { status, error, detail } = error;
    Response { status, ..Response::json(&json!({ "error": error, "detail": detail })) }
}

/// The JSON object in the body of a request.
struct Body(serde_json::Map<String, Value>);

impl Body {
    fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(object)) => Ok(Self(object)),
            _ => Err(ApiError::invalid("body", "not an object")),
        }
    }

    /// Rejects members with other names, like the real API.
    fn expect(&self, names: &[&str]) -> Result<(), ApiError> {
        match self.0.keys().find(|name| !names.contains(&name.as_str())) {
            Some(name) => Err(ApiError::invalid(name, "Extra inputs are not permitted")),
            None => Ok(()),
        }
    }

    fn text(&self, name: &str) -> Result<String, ApiError> {
        let text = self.0.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        text.map(str::to_owned).ok_or_else(|| ApiError::invalid(name, "Field required"))
    }
}

/// A payments provider for tests.
#[derive(Debug)]
pub struct PaymentsServer {
    base: String,
    payments: Arc<Payments>,
    _task: JoinSet<()>,
}

impl PaymentsServer {
    /// Starts a provider on a free port. It sends webhooks to this URL.
    ///
    /// # Panics
    /// Panics if no port is free.
    pub async fn start(webhook_url: Option<String>) -> Self {
        let create = |base: &str| Payments::new(base, webhook_url);
        let respond = |payments: Arc<Payments>, request| async move { payments.respond(&request).await };
        let (base, payments, task) = http::serve_on_free_port(create, respond).await;
        Self { base, payments, _task: task }
    }

    /// Returns the base URL of the API, with its version.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}{PAYMENTS_PATH}", self.base)
    }

    /// Returns the settings with which a server uses this provider.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, String); 8] {
        let constants = [
            ("SVC_PAYMENTS_TOKEN", PAYMENTS_TOKEN),
            ("SVC_PAYMENTS_WEBHOOK_SECRET", PAYMENTS_WEBHOOK_SECRET),
            ("SVC_PAYMENTS_PRO_PRODUCT", PRO_PRODUCT),
            ("SVC_PAYMENTS_CREDIT_PRODUCT", CREDIT_PRODUCT),
            ("SVC_PAYMENTS_TOPUP_PRODUCT", TOPUP_PRODUCT),
            ("SVC_PAYMENTS_DOMAIN_PRODUCT", DOMAIN_PRODUCT),
            ("SVC_PAYMENTS_SANDBOX", "on"),
        ];
        let [token, secret, pro, credit, topup, domain, sandbox] =
            constants.map(|(name, value)| (name, value.to_owned()));
        [("SVC_PAYMENTS_URL", self.url()), token, secret, pro, credit, topup, domain, sandbox]
    }

    /// Pays a checkout with a card that works, and returns the page to which the buyer returns. Only the checkout of the
    /// plan saves the card.
    ///
    /// # Panics
    /// Panics if there is no such open checkout.
    #[must_use]
    pub fn pay(&self, checkout_url: &str) -> String {
        let id = checkout_url.rsplit('/').next().unwrap();
        self.payments.pay(id, None).unwrap()
    }

    /// Like [`Self::pay`], with the email that the buyer enters. If the organization was not a customer when the checkout
    /// was created, the customer with this email pays, or a new one.
    ///
    /// # Panics
    /// Panics if there is no such open checkout, or if the provider rejects the email.
    #[must_use]
    pub fn pay_as(&self, checkout_url: &str, email: &str) -> String {
        let id = checkout_url.rsplit('/').next().unwrap();
        self.payments.pay(id, Some(email)).unwrap()
    }

    /// Changes the status of a customer's newest subscription.
    ///
    /// # Panics
    /// Panics if the customer has no subscription.
    pub fn set_subscription_status(&self, external_customer_id: &str, status: &str) {
        self.payments.set_status(external_customer_id, status).unwrap();
    }

    /// Replaces a customer's card with one that works or one that is declined. Creates an unknown customer.
    pub fn set_card(&self, external_customer_id: &str, declines: bool) {
        self.payments.state().set_card(external_customer_id, declines);
    }

    /// Adds a customer without an external id, who has a card that works.
    pub fn add_customer(&self, email: &str) {
        self.payments.state().create_customer(None, email).card = Some(Card { declines: false });
    }

    /// Sets the tax that the prices of new orders include.
    pub fn set_tax(&self, percent: u8) {
        self.payments.state().tax_percent = percent;
    }

    /// Returns the sum of a customer's charges without the refunds, in cents.
    #[must_use]
    pub fn net_cents(&self, external_customer_id: &str) -> i64 {
        let state = self.payments.state();
        let customer = state.find_customer(external_customer_id).ok().map(|customer| &customer.id);
        let paid = state.orders.iter().filter(|order| order.paid && Some(&order.customer) == customer);
        paid.map(|order| order.cents - order.refunded_total_cents()).sum()
    }

    /// Returns the orders that are refunded at least in part, oldest first: their ids and the refunded cents, with the
    /// tax.
    #[must_use]
    pub fn refunds(&self) -> Vec<(String, i64)> {
        let state = self.payments.state();
        let refunded = state.orders.iter().filter(|order| order.refunded_cents > 0);
        refunded.map(|order| (order.id.clone(), order.refunded_total_cents())).collect()
    }

    /// Returns the orders so far, oldest first: their id, and whether they are paid.
    #[must_use]
    pub fn orders(&self) -> Vec<(String, bool)> {
        self.payments.state().orders.iter().map(|order| (order.id.clone(), order.paid)).collect()
    }

    /// Returns the subscriptions, oldest first: their ids, and whether they end with their current period.
    #[must_use]
    pub fn subscriptions(&self) -> Vec<(String, bool)> {
        let state = self.payments.state();
        state.subscriptions.iter().map(|it| (it.id.clone(), it.cancel_at_period_end)).collect()
    }

    /// Injects a fault into the API, or removes it.
    pub fn inject(&self, fault: Option<PaymentsFault>) {
        self.payments.inject("", fault);
    }

    /// Injects a fault into the requests whose path ends with this text, such as `/orders/`, `/finalize` or
    /// `/refunds/`.
    pub fn inject_into(&self, path_end: &'static str, fault: PaymentsFault) {
        self.payments.inject(path_end, Some(fault));
    }

    /// Returns the number of requests that wait for the end of a fault.
    #[must_use]
    pub fn hanging(&self) -> usize {
        self.payments.fault.receiver_count()
    }

    /// Returns the webhooks so far, oldest first.
    #[must_use]
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.payments.webhooks.deliveries()
    }

    /// Holds webhooks back until they are released.
    pub fn hold(&self) {
        self.payments.webhooks.hold();
    }

    /// Delivers the webhooks that were held back. If `reversed` is set, delivers the newest first.
    pub fn release(&self, reversed: bool) {
        self.payments.webhooks.release(reversed);
    }

    /// Delivers a webhook again, under its id.
    pub fn redeliver(&self, id: &str) {
        self.payments.webhooks.redeliver(id);
    }
}
