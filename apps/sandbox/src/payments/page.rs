//! The pages: the overview, the checkout of a buyer, and the portal of a customer.

use serde_json::Value;

use super::state::{Card, Order, Subscription, default_email, time};
use super::{FAULTS, PRO_PRODUCT, Payments};
use crate::faults;
use crate::html::{Html, page};
use crate::http::{Request, Response};
use crate::values::dollars;

const OVERVIEW: &str = "/payments";

impl Payments {
    pub(super) fn page(&self, request: &Request) -> Response {
        let segments: Vec<&str> = request.path.split('/').skip(2).collect();
        let found = match (request.method.as_str(), segments.as_slice()) {
            ("GET", []) => Some(self.overview()),
            ("POST", []) => self.act(request),
            ("GET", ["checkouts", id]) => self.checkout(id, None),
            ("POST", ["checkouts", id]) => self.buy(id, request.parameter("action"), request.parameter("email")),
            ("GET", ["portal", token]) => self.portal(token),
            ("POST", ["portal", token]) => self.change(token, request),
            _ => None,
        };
        found.unwrap_or_else(|| Response::new(404, "text/plain; charset=utf-8", "This page does not exist."))
    }

    /// Pays a checkout. Returns the page to which the buyer returns, or `None` if the checkout is not open or the
    /// provider rejects the email.
    pub(super) fn pay(&self, id: &str, email: Option<&str>) -> Option<String> {
        let (success_url, events) = self.state().pay(id, email)?;
        for (event, data) in events {
            self.send(event, &data);
        }
        Some(success_url)
    }

    /// Changes the status of a subscription, and sends the events.
    pub(super) fn set_status(&self, id: &str, status: &str) -> Option<()> {
        let data = self.state().set_status(id, status)?;
        if status == "canceled" {
            self.send("subscription.revoked", &data);
        }
        self.send("subscription.updated", &data);
        Some(())
    }

    fn checkout(&self, id: &str, fault: Option<&str>) -> Option<Response> {
        let checkout = self.state().checkouts.get(id)?.clone();
        let mut html = Html::default();
        if let Some(fault) = fault {
            html.fault(fault);
        }
        let (product, saved) = if checkout.product == PRO_PRODUCT {
            ("The pro plan, for a month", "The payment saves the card.")
        } else {
            ("AI credit", "The payment does not save the card. You can save one in the portal.")
        };
        html.raw("<p>").text(product).raw(": <strong>").text(&dollars(checkout.cents)).raw("</strong></p>");
        if checkout.status == "open" {
            html.raw("<p>").text(saved).raw("</p><form method=post>");
            if checkout.customer.is_none() {
                html.raw("<label>Email <input name=email value=\"").text(&default_email(&checkout.external_id));
                html.raw("\"></label>");
            }
            html.raw("<button name=action value=pay>Pay</button> ");
            html.raw("<button name=action value=decline>Pay with a card that is declined</button> ");
            html.raw("<button name=action value=abandon>Abandon</button></form>");
        } else {
            html.raw("<p>This checkout is ").text(checkout.status).raw(".</p>");
        }
        Some(page("Checkout", &html))
    }

    fn buy(&self, id: &str, action: &str, email: &str) -> Option<Response> {
        match action {
            "pay" => {
                let paid = self.pay(id, Some(email).filter(|email| !email.is_empty())).map(Response::redirect);
                paid.or_else(|| self.checkout(id, Some("The email is not accepted, or the checkout is not open.")))
            }
            "decline" => self.checkout(id, Some("The card was declined.")),
            "abandon" => {
                let closed = self.state().close(id);
                self.checkout(id, closed.is_none().then_some("The checkout is not open."))
            }
            _ => None,
        }
    }

    fn portal(&self, token: &str) -> Option<Response> {
        let state = self.state();
        let portal = state.portals.get(token)?;
        let customer = state.customers.iter().find(|customer| customer.id == portal.customer)?;
        let mut html = Html::default();
        let external_id = customer.external_id.as_deref().unwrap_or_default();
        html.raw("<p>Customer <code>").text(external_id).raw("</code>, card: ").text(card(customer.card));
        html.raw("</p><form method=post><button name=action value=card>Save a card that works</button> ");
        html.raw("<button name=action value=declined>Save a card that is declined</button> ");
        html.raw("<button name=action value=remove>Remove the card</button></form><h2>Plan</h2>");
        for subscription in state.subscriptions.iter().filter(|found| found.customer == portal.customer) {
            add_subscription(&mut html, subscription);
            if subscription.status != "canceled" {
                let (value, text) = match subscription.cancel_at_period_end {
                    true => ("resume", "Resume"),
                    false => ("cancel", "Cancel"),
                };
                html.raw("<form method=post><input type=hidden name=subscription value=\"").text(&subscription.id);
                html.raw("\"><button name=action value=").raw(value).raw(">").raw(text).raw("</button></form>");
            }
        }
        html.raw("<h2>Receipts</h2><ul>");
        for order in state.orders.iter().filter(|order| order.paid && order.customer == portal.customer) {
            html.raw("<li>").text(&time(order.created_at)).raw(" ");
            add_amounts(&mut html, order);
            html.raw("</li>");
        }
        html.raw("</ul>");
        if let Some(url) = &portal.return_url {
            html.raw("<p>").link(url, "Back").raw("</p>");
        }
        Some(page("Customer portal", &html))
    }

    fn change(&self, token: &str, request: &Request) -> Option<Response> {
        let (action, subscription) = (request.parameter("action"), request.parameter("subscription"));
        let event = {
            let state = &mut *self.state();
            let customer = state.portals.get(token)?.customer.clone();
            let cancel = match action {
                "card" | "declined" | "remove" => {
                    let card = (action != "remove").then_some(Card { declines: action == "declined" });
                    state.customer_mut(&customer)?.card = card;
                    None
                }
                "cancel" => Some(true),
                "resume" => Some(false),
                _ => return None,
            };
            match cancel {
                None => None,
                Some(cancel) => {
                    let mut all = state.subscriptions.iter();
                    let id = all.find(|found| found.customer == customer && found.id == subscription)?.id.clone();
                    state.schedule(&id, cancel)
                }
            }
        };
        if let Some(data) = event {
            self.send("subscription.updated", &data);
        }
        Some(Response::redirect(format!("/payments/portal/{token}")))
    }

    fn overview(&self) -> Response {
        let state = self.state();
        let mut html = Html::default();
        let current = self.fault.borrow().map(|(_, fault)| fault);
        html.select_fault("Fault of the API", FAULTS.map(|(name, fault)| (name, fault == current)));
        html.raw("<form method=post>").text(&format!("Prices include {}% tax. ", state.tax_percent));
        html.raw(if state.tax_percent == 0 {
            "<button name=tax value=19>Include 19% tax in new orders</button></form>"
        } else {
            "<button name=tax value=0>Include no tax in new orders</button></form>"
        });
        html.raw("<h2>Checkouts</h2><ul>");
        for (id, checkout) in &state.checkouts {
            html.raw("<li>").link(&format!("/payments/checkouts/{id}"), id);
            html.text(&format!(" {} {} of {}", checkout.status, dollars(checkout.cents), checkout.external_id))
                .raw("</li>");
        }
        html.raw("</ul><h2>Customers</h2><ul>");
        for customer in &state.customers {
            let external_id = customer.external_id.as_deref().unwrap_or("no external id");
            html.raw("<li><code>").text(external_id).raw("</code>, ").text(&customer.email).raw(", card: ");
            html.text(card(customer.card)).raw("</li>");
        }
        html.raw("</ul><h2>Subscriptions</h2>");
        for subscription in &state.subscriptions {
            add_subscription(&mut html, subscription);
            html.raw("<form method=post><input type=hidden name=subscription value=\"").text(&subscription.id);
            html.raw("\"><button name=status value=active>Payment succeeds</button> ");
            html.raw("<button name=status value=past_due>Payment fails</button> ");
            html.raw("<button name=status value=canceled>Ends now</button></form>");
        }
        html.raw("<h2>Orders</h2><ul>");
        for order in &state.orders {
            let paid = if order.paid { "paid" } else { order.unpaid_status };
            html.raw("<li><code>").text(&order.id).raw("</code> ");
            html.text(&format!("{paid}, of customer {}: ", order.customer));
            add_amounts(&mut html, order);
            html.raw("</li>");
        }
        html.raw("</ul><h2>Webhooks</h2><form method=post>");
        if self.webhooks.is_held() {
            html.raw("<button name=queue value=release>Deliver what was held back</button> ");
            html.raw("<button name=queue value=reverse>Deliver it in reverse order</button>");
        } else {
            html.raw("<button name=queue value=hold>Hold webhooks back</button>");
        }
        html.raw("</form>");
        self.webhooks.add_table(&mut html);
        page("Payments provider", &html)
    }

    /// Executes a form of the overview.
    fn act(&self, request: &Request) -> Option<Response> {
        let parameter = |name: &str| Some(request.parameter(name)).filter(|value| !value.is_empty());
        if let Some(name) = parameter("fault") {
            self.inject("", faults::find(FAULTS, name)?);
        }
        if let Some(percent) = parameter("tax") {
            self.state().tax_percent = percent.parse().ok()?;
        }
        if let Some(id) = parameter("redeliver") {
            self.webhooks.redeliver(id);
        }
        if let (Some(id), Some(status)) = (parameter("subscription"), parameter("status")) {
            self.set_status(id, status)?;
        }
        match parameter("queue") {
            Some("hold") => self.webhooks.hold(),
            Some(order) => self.webhooks.release(order == "reverse"),
            None => {}
        }
        Some(Response::redirect(OVERVIEW))
    }
}

impl super::State {
    /// Schedules that a subscription ends with its current period, or cancels this schedule. Returns the event, or
    /// `None` if the subscription already had the requested state.
    fn schedule(&mut self, id: &str, cancel: bool) -> Option<Value> {
        let body = super::Body(serde_json::Map::from_iter([("cancel_at_period_end".to_owned(), cancel.into())]));
        self.change_subscription(id, &body).ok()
    }
}

/// Adds the price of an order, with its tax and its refund.
fn add_amounts(html: &mut Html, order: &Order) {
    html.text(&dollars(order.cents));
    if order.tax_cents > 0 {
        html.text(&format!(" with {} tax", dollars(order.tax_cents)));
    }
    if order.refunded_cents > 0 {
        html.text(&format!(", {} refunded", dollars(order.refunded_total_cents())));
    }
}

fn add_subscription(html: &mut Html, subscription: &Subscription) {
    let end = time(subscription.current_period_end);
    let renewal = if subscription.cancel_at_period_end { "ends" } else { "renews" };
    html.raw("<p><strong>")
        .text(&subscription.status)
        .raw("</strong>, ")
        .text(&format!("{renewal} at {end}"))
        .raw("</p>");
}

fn card(card: Option<Card>) -> &'static str {
    match card {
        None => "none",
        Some(Card { declines: false }) => "works",
        Some(Card { declines: true }) => "is declined",
    }
}
