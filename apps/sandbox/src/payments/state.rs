//! The provider's data, in the format of its API.

use std::collections::BTreeMap;

use chrono::{DateTime, Duration, SecondsFormat, Utc};
use serde_json::{Value, json};

use super::{Body, CREDIT_PRODUCT, DOMAIN_PRODUCT, PRO_PRODUCT, TOPUP_PRODUCT};
use crate::sessions::random_text;
use crate::values::{new_id, now};

/// The price of the pro plan for a month, in cents.
pub(super) const PRO_CENTS: i64 = 2_000;

/// An error of the API.
#[derive(Debug)]
pub(super) struct ApiError {
    pub status: u16,
    pub error: &'static str,
    pub detail: String,
}

impl ApiError {
    /// 422: a member of the body is invalid.
    pub fn invalid(name: &str, message: &str) -> Self {
        Self { status: 422, error: "RequestValidationError", detail: format!("{name}: {message}") }
    }

    pub fn not_found() -> Self {
        Self { status: 404, error: "ResourceNotFound", detail: "Not found".into() }
    }

    /// 412: an order that is not a draft cannot be finalized.
    pub fn not_draft() -> Self {
        Self { status: 412, error: "OrderNotDraft", detail: "Order is not a draft.".into() }
    }
}

/// The data of the provider.
#[derive(Debug, Default)]
pub(super) struct State {
    pub checkouts: BTreeMap<String, Checkout>,
    /// The customers, oldest first.
    pub customers: Vec<Customer>,
    pub subscriptions: Vec<Subscription>,
    pub orders: Vec<Order>,
    pub portals: BTreeMap<String, Portal>,
    /// The tax that the prices of new orders include.
    pub tax_percent: u8,
}

#[derive(Debug, Clone)]
pub(super) struct Checkout {
    pub product: String,
    /// The service's id of the customer.
    pub external_id: String,
    /// The provider's id of the customer, if the customer existed when the checkout was created.
    pub customer: Option<String>,
    pub cents: i64,
    pub success_url: String,
    pub metadata: Value,
    pub status: &'static str,
}

#[derive(Debug, Clone)]
pub(super) struct Customer {
    pub id: String,
    /// The service's id. `None` for a customer of another product.
    pub external_id: Option<String>,
    pub email: String,
    pub card: Option<Card>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Card {
    pub declines: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Subscription {
    pub id: String,
    /// The provider's id of the customer, as in orders and portals.
    pub customer: String,
    pub status: String,
    pub current_period_end: DateTime<Utc>,
    pub cancel_at_period_end: bool,
    pub modified_at: DateTime<Utc>,
    pub metadata: Value,
}

#[derive(Debug, Clone)]
pub(super) struct Order {
    pub id: String,
    pub paid: bool,
    /// The status while the order is not paid: `draft`, `pending` while it is charged, or `void`.
    pub unpaid_status: &'static str,
    pub reason: &'static str,
    pub customer: String,
    pub product: String,
    /// The price, with the included tax.
    pub cents: i64,
    pub tax_cents: i64,
    /// The refunded part of the price, without its tax.
    pub refunded_cents: i64,
    pub metadata: Value,
    pub created_at: DateTime<Utc>,
}

#[derive(Debug, Clone)]
pub(super) struct Portal {
    pub customer: String,
    pub return_url: Option<String>,
}

impl State {
    pub fn create_checkout(&mut self, body: &Body, base: &str) -> Result<Value, ApiError> {
        body.expect(&["products", "external_customer_id", "success_url", "embed_origin", "amount", "metadata"])?;
        let product = match body.0.get("products").and_then(Value::as_array).map(Vec::as_slice) {
            Some([Value::String(product)]) => product.clone(),
            _ => return Err(ApiError::invalid("products", "one product is required")),
        };
        let cents = match (product.as_str(), body.0.get("amount").and_then(Value::as_i64)) {
            (PRO_PRODUCT, None) => PRO_CENTS,
            (CREDIT_PRODUCT, Some(cents)) if cents >= 50 => cents,
            (PRO_PRODUCT | CREDIT_PRODUCT, _) => return Err(ApiError::invalid("amount", "does not fit the product")),
            _ => return Err(ApiError::invalid("products", "the product does not exist")),
        };
        let external_id = body.text("external_customer_id")?;
        let checkout = Checkout {
            product,
            customer: self.find_customer(&external_id).ok().map(|customer| customer.id.clone()),
            external_id,
            cents,
            success_url: body.text("success_url")?,
            metadata: body.0.get("metadata").cloned().unwrap_or_else(|| json!({})),
            status: "open",
        };
        body.text("embed_origin")?;
        let id = new_id();
        self.checkouts.insert(id.clone(), checkout);
        Ok(json!({ "id": id, "status": "open", "url": format!("{base}/payments/checkouts/{id}") }))
    }

    pub fn create_customer_session(&mut self, body: &Body, base: &str) -> Result<Value, ApiError> {
        body.expect(&["external_customer_id", "return_url"])?;
        let Ok(found) = self.find_customer(&body.text("external_customer_id")?) else {
            return Err(ApiError::invalid("external_customer_id", "Customer does not exist."));
        };
        let (token, id) = (format!("polar_cst_{}", random_text()), found.id.clone());
        let return_url = body.0.get("return_url").and_then(Value::as_str).map(str::to_owned);
        self.portals.insert(token.clone(), Portal { customer: id.clone(), return_url });
        Ok(json!({
            "token": token, "expires_at": time(now() + Duration::hours(1)), "customer_id": id,
            "customer_portal_url": format!("{base}/payments/portal/{token}"),
        }))
    }

    pub fn subscription(&self, id: &str) -> Result<Value, ApiError> {
        let mut subscriptions = self.subscriptions.iter();
        let found = subscriptions.find(|subscription| subscription.id == id).ok_or_else(ApiError::not_found)?;
        Ok(found.json(&self.customers))
    }

    pub fn change_subscription(&mut self, id: &str, body: &Body) -> Result<Value, ApiError> {
        body.expect(&["cancel_at_period_end"])?;
        let Some(cancel) = body.0.get("cancel_at_period_end").and_then(Value::as_bool) else {
            return Err(ApiError::invalid("cancel_at_period_end", "Input should be a valid boolean"));
        };
        let customers = &self.customers;
        let Some(found) = self.subscriptions.iter_mut().find(|subscription| subscription.id == id) else {
            return Err(ApiError::not_found());
        };
        if !cancel && found.status == "canceled" {
            return Err(ApiError { status: 410, error: "ResourceUnavailable", detail: "Unavailable".into() });
        }
        if !cancel && !found.cancel_at_period_end {
            return Err(ApiError { status: 400, error: "BadRequest", detail: "Bad request".into() });
        }
        if found.status == "canceled" || found.cancel_at_period_end == cancel {
            let detail = "This subscription is already canceled or will be at the end of the period.".into();
            return Err(ApiError { status: 403, error: "AlreadyCanceledSubscription", detail });
        }
        found.cancel_at_period_end = cancel;
        found.modified_at = now();
        Ok(found.json(customers))
    }

    pub fn customer(&self, external_id: &str) -> Result<Value, ApiError> {
        let customer = self.find_customer(external_id)?;
        Ok(json!({ "id": customer.id, "external_id": external_id }))
    }

    pub fn payment_methods(&self, external_id: &str) -> Result<Value, ApiError> {
        let customer = self.find_customer(external_id)?;
        let items: Vec<Value> =
            customer.card.iter().map(|_| json!({ "id": format!("pm_{}", customer.id), "is_default": true })).collect();
        Ok(json!({ "pagination": { "total_count": items.len(), "max_page": 1 }, "items": items }))
    }

    pub fn find_customer(&self, external_id: &str) -> Result<&Customer, ApiError> {
        let mut customers = self.customers.iter();
        customers.find(|customer| customer.external_id.as_deref() == Some(external_id)).ok_or_else(ApiError::not_found)
    }

    /// Returns a customer by the provider's id.
    pub fn customer_mut(&mut self, id: &str) -> Option<&mut Customer> {
        self.customers.iter_mut().find(|customer| customer.id == id)
    }

    /// Creates a draft, which charges nothing.
    pub fn create_order(&mut self, body: &Body) -> Result<Value, ApiError> {
        body.expect(&["customer_id", "product_id", "amount", "currency", "metadata"])?;
        let (customer, product) = (body.text("customer_id")?, body.text("product_id")?);
        if !self.customers.iter().any(|known| known.id == customer) {
            return Err(ApiError::invalid("customer_id", "Customer does not exist."));
        }
        if [PRO_PRODUCT, CREDIT_PRODUCT].contains(&product.as_str()) {
            return Err(ApiError::invalid("product_id", "Off-session charges only support fixed-price products."));
        }
        if ![DOMAIN_PRODUCT, TOPUP_PRODUCT].contains(&product.as_str()) || body.text("currency")? != "usd" {
            return Err(ApiError::invalid("product_id", "Product does not exist, or has no price in this currency."));
        }
        let cents = body.0.get("amount").and_then(Value::as_i64).filter(|cents| *cents >= 50);
        let cents = cents.ok_or_else(|| ApiError::invalid("amount", "Input should be greater than or equal to 50"))?;
        let order = Order {
            id: new_id(),
            paid: false,
            unpaid_status: "draft",
            reason: "purchase",
            customer,
            product,
            cents,
            tax_cents: self.included_tax(cents),
            refunded_cents: 0,
            metadata: body.0.get("metadata").cloned().unwrap_or_else(|| json!({})),
            created_at: now(),
        };
        let created = order.json(&self.customers);
        self.orders.push(order);
        Ok(created)
    }

    /// Returns the tax that a price includes.
    fn included_tax(&self, cents: i64) -> i64 {
        let percent = i64::from(self.tax_percent);
        cents * percent / (100 + percent)
    }

    pub fn order(&self, id: &str) -> Result<Value, ApiError> {
        let order = self.orders.iter().find(|order| order.id == id).ok_or_else(ApiError::not_found)?;
        Ok(order.json(&self.customers))
    }

    /// Charges a draft to the customer's card.
    pub fn finalize_order(&mut self, id: &str) -> Result<Value, ApiError> {
        let order = self.orders.iter_mut().find(|order| order.id == id).ok_or_else(ApiError::not_found)?;
        if order.paid || order.unpaid_status != "draft" {
            return Err(ApiError::not_draft());
        }
        let card = self.customers.iter().find(|customer| customer.id == order.customer).and_then(|found| found.card);
        if card.is_none_or(|card| card.declines) {
            let detail = "The payment method is missing or was declined.".into();
            return Err(ApiError { status: 402, error: "PaymentFailed", detail });
        }
        order.paid = true;
        Ok(order.json(&self.customers))
    }

    /// Completes the payments in progress. Returns the orders, which are now paid.
    pub fn pay_pending(&mut self) -> Vec<Value> {
        let pending = self.orders.iter_mut().filter(|order| !order.paid && order.unpaid_status == "pending");
        pending
            .map(|order| {
                order.paid = true;
                order.json(&self.customers)
            })
            .collect()
    }

    /// Gives an order that is not paid this status.
    pub fn set_unpaid_status(&mut self, id: &str, status: &'static str) -> Result<(), ApiError> {
        let order = self.orders.iter_mut().find(|order| order.id == id).ok_or_else(ApiError::not_found)?;
        order.unpaid_status = status;
        Ok(())
    }

    /// Refunds a part of a paid order. The amount is without the tax, which is refunded in addition. Returns the refund
    /// and the order.
    pub fn refund(&mut self, body: &Body) -> Result<(Value, Value), ApiError> {
        body.expect(&["order_id", "reason", "amount"])?;
        let (id, reason) = (body.text("order_id")?, body.text("reason")?);
        let cents = body.0.get("amount").and_then(Value::as_i64).filter(|cents| *cents > 0);
        let cents = cents.ok_or_else(|| ApiError::invalid("amount", "Input should be greater than 0"))?;
        let order = self.orders.iter_mut().find(|order| order.id == id);
        let order = order.ok_or_else(|| ApiError::invalid("order_id", "Order not found"))?;
        if order.refundable_cents() == 0 {
            let detail = "Order has been refunded fully already.".into();
            return Err(ApiError { status: 403, error: "RefundedAlready", detail });
        }
        if cents > order.refundable_cents() {
            return Err(ApiError::invalid("amount", "Refund amount exceeds refundable amount"));
        }
        if !order.paid {
            let detail = format!("Refund issued for unknown order: {id}");
            return Err(ApiError { status: 404, error: "RefundUnknownPayment", detail });
        }
        order.refunded_cents += cents;
        let refund = json!({
            "id": new_id(), "order_id": id, "reason": reason, "amount": cents, "currency": "usd", "status": "succeeded",
        });
        Ok((refund, order.json(&self.customers)))
    }

    /// Replaces the card of a customer, who is created if necessary.
    pub fn set_card(&mut self, external_id: &str, declines: bool) {
        let card = Some(Card { declines });
        match self.customers.iter_mut().find(|customer| customer.external_id.as_deref() == Some(external_id)) {
            Some(customer) => customer.card = card,
            None => self.create_customer(Some(external_id), &default_email(external_id)).card = card,
        }
    }

    pub fn create_customer(&mut self, external_id: Option<&str>, email: &str) -> &mut Customer {
        let (external_id, email) = (external_id.map(str::to_owned), email.to_owned());
        self.customers.push_mut(Customer { id: new_id(), external_id, email, card: None })
    }

    /// Returns the provider's id of the customer who pays a checkout. If the service's id had no customer when the
    /// checkout was created, this is the customer with the buyer's email, whatever the external id of this customer is,
    /// or a new customer. Returns `None` if the service's id now has a customer with another email.
    fn find_or_create_buyer(&mut self, checkout: &Checkout, email: &str) -> Option<String> {
        if let Some(customer) = &checkout.customer {
            return Some(customer.clone());
        }
        if let Some(customer) = self.customers.iter().find(|customer| customer.email.eq_ignore_ascii_case(email)) {
            return Some(customer.id.clone());
        }
        if self.find_customer(&checkout.external_id).is_ok() {
            return None;
        }
        Some(self.create_customer(Some(&checkout.external_id), email).id.clone())
    }

    /// Pays a checkout. Only that of the plan saves the card, for the later payments. Without an email, the buyer enters
    /// one that no other organization uses. Returns the address to return to and the events, or `None` if the checkout
    /// is not open or the provider rejects the email.
    pub fn pay(&mut self, id: &str, email: Option<&str>) -> Option<(String, Vec<(&'static str, Value)>)> {
        let checkout = self.checkouts.get(id).filter(|checkout| checkout.status == "open")?.clone();
        let email = email.map_or_else(|| default_email(&checkout.external_id), str::to_owned);
        let customer = self.find_or_create_buyer(&checkout, &email)?;
        self.checkouts.get_mut(id)?.status = "succeeded";
        if checkout.product == PRO_PRODUCT {
            self.customer_mut(&customer)?.card = Some(Card { declines: false });
        }
        let now = now();
        let order = Order {
            id: new_id(),
            paid: true,
            unpaid_status: "draft",
            reason: if checkout.product == PRO_PRODUCT { "subscription_create" } else { "purchase" },
            customer: customer.clone(),
            product: checkout.product.clone(),
            cents: checkout.cents,
            tax_cents: self.included_tax(checkout.cents),
            refunded_cents: 0,
            metadata: checkout.metadata.clone(),
            created_at: now,
        };
        let paid = order.json(&self.customers);
        self.orders.push(order);
        let mut events = Vec::new();
        if checkout.product == PRO_PRODUCT {
            let subscription = Subscription {
                id: new_id(),
                customer,
                status: "active".to_owned(),
                current_period_end: now + Duration::days(30),
                cancel_at_period_end: false,
                modified_at: now,
                metadata: checkout.metadata,
            };
            let json = subscription.json(&self.customers);
            self.subscriptions.push(subscription);
            events.extend([("subscription.created", json.clone()), ("subscription.active", json.clone())]);
            events.push(("subscription.updated", json));
        }
        events.extend([("order.created", paid.clone()), ("order.paid", paid)]);
        Some((checkout.success_url, events))
    }

    /// Ends a checkout without a payment. Returns `None` if the checkout is not open.
    pub fn close(&mut self, id: &str) -> Option<()> {
        let checkout = self.checkouts.get_mut(id).filter(|checkout| checkout.status == "open")?;
        checkout.status = "expired";
        Some(())
    }

    /// Changes the status of a subscription, or of the newest one of a customer. Returns the event.
    pub fn set_status(&mut self, id: &str, status: &str) -> Option<Value> {
        let customer = self.find_customer(id).ok().map(|customer| customer.id.clone());
        let mut all = self.subscriptions.iter_mut().rev();
        let found = all.find(|it| it.id == id || Some(&it.customer) == customer.as_ref())?;
        status.clone_into(&mut found.status);
        found.modified_at = now();
        Some(found.json(&self.customers))
    }
}

/// Returns the email that a buyer enters by default.
pub(super) fn default_email(external_id: &str) -> String {
    format!("{external_id}@buyers.example")
}

/// Returns a customer as events contain it.
fn customer_json(customers: &[Customer], id: &str) -> Value {
    let external_id = customers.iter().find(|customer| customer.id == id).map(|customer| &customer.external_id);
    json!({ "id": id, "external_id": external_id })
}

impl Subscription {
    pub fn json(&self, customers: &[Customer]) -> Value {
        json!({
            "id": self.id, "status": self.status, "current_period_end": time(self.current_period_end),
            "cancel_at_period_end": self.cancel_at_period_end, "modified_at": time(self.modified_at),
            "customer_id": self.customer, "product_id": PRO_PRODUCT, "metadata": self.metadata,
            "customer": customer_json(customers, &self.customer),
        })
    }
}

impl Order {
    fn net_cents(&self) -> i64 {
        self.cents - self.tax_cents
    }

    /// Returns the part of the price, without its tax, that can still be refunded.
    fn refundable_cents(&self) -> i64 {
        self.net_cents() - self.refunded_cents
    }

    fn refunded_tax_cents(&self) -> i64 {
        self.tax_cents * self.refunded_cents / self.net_cents()
    }

    /// Returns the refunded part of the price, with its tax.
    pub fn refunded_total_cents(&self) -> i64 {
        self.refunded_cents + self.refunded_tax_cents()
    }

    fn json(&self, customers: &[Customer]) -> Value {
        let status = match (self.paid, self.refunded_cents) {
            (false, _) => self.unpaid_status,
            (true, 0) => "paid",
            (true, _) if self.refundable_cents() > 0 => "partially_refunded",
            (true, _) => "refunded",
        };
        json!({
            "id": self.id, "status": status, "paid": self.paid, "product_id": self.product, "billing_reason": self.reason,
            "net_amount": self.net_cents(), "tax_amount": self.tax_cents, "total_amount": self.cents,
            "currency": "usd", "refunded_amount": self.refunded_cents, "refunded_tax_amount": self.refunded_tax_cents(),
            "refundable_amount": self.refundable_cents(),
            "created_at": time(self.created_at), "customer_id": self.customer, "metadata": self.metadata,
            "customer": customer_json(customers, &self.customer),
        })
    }
}

/// Formats a time. The provider's times have microseconds.
pub(super) fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}
