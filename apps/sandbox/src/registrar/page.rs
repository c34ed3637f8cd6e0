//! The page: the account with its domains, orders and calls, and the faults.

use chrono::Duration;

use super::state::{Domain, State};
use super::{REGISTRAR_PATH, REGISTRAR_USER, Registrar, RegistrarFault};
use crate::faults;
use crate::html::{Html, page};
use crate::http::{Request, Response};
use crate::values::{dollars, now};

const MAX_CALLS: usize = 50;

/// Returns the faults with their names on the page.
fn named_faults() -> [(&'static str, Option<RegistrarFault>); 12] {
    [
        ("none", None),
        ("unavailable", Some(RegistrarFault::refusal(503))),
        ("html", Some(RegistrarFault::html(200))),
        ("429 once", Some(RegistrarFault::TooManyRequestsOnce)),
        ("429", Some(RegistrarFault::TooManyRequests)),
        ("402", Some(RegistrarFault::refusal(402))),
        ("409", Some(RegistrarFault::refusal(409))),
        ("422", Some(RegistrarFault::refusal(422))),
        ("hang", Some(RegistrarFault::Hang)),
        ("hang before the effect", Some(RegistrarFault::HangBefore)),
        ("hang after the effect", Some(RegistrarFault::HangAfter)),
        ("lost response", Some(RegistrarFault::LostResponse)),
    ]
}

impl Registrar {
    pub(super) fn page(&self, request: &Request) -> Response {
        let found = match (request.method.as_str(), request.path.as_str()) {
            ("GET", REGISTRAR_PATH) => Some(self.overview()),
            ("POST", REGISTRAR_PATH) => self.act(request),
            _ => None,
        };
        found.unwrap_or_else(|| Response::new(404, "text/plain; charset=utf-8", "This page does not exist."))
    }

    fn overview(&self) -> Response {
        let state = self.state();
        let mut html = Html::default();
        let spent: i64 = state.orders.iter().map(|order| order.cents).sum();
        html.raw("<p>The account <code>").text(REGISTRAR_USER).raw("</code> has spent ").text(&dollars(spent));
        html.raw(". Names select behaviors: for example <code>fail-register-after-1.com</code>.</p>");
        let current = self.fault.borrow().clone().map(|(_, fault)| fault);
        html.select_fault("Fault of the API", named_faults().map(|(name, fault)| (name, fault == current)));
        html.raw("<h2>Domains</h2>");
        for (name, domain) in &state.domains {
            add_domain(&mut html, name, domain);
        }
        add_history(&mut html, &state);
        page("Registrar", &html)
    }

    /// Executes a form.
    fn act(&self, request: &Request) -> Option<Response> {
        let name = request.parameter("domain");
        match request.parameter("action") {
            "transfer" => self.state().transfer_away(name)?,
            "renew" => self.state().renew_automatically(name)?,
            "expire" => self.state().domains.get_mut(name)?.expires_at = now() - Duration::days(1),
            "soon" => self.state().domains.get_mut(name)?.expires_at = now() + Duration::days(7),
            "unlock" => {
                let mut state = self.state();
                let domain = state.domains.get_mut(name)?;
                (domain.locked, domain.transfer_lock_expires_at) = (false, None);
            }
            _ => {
                let fault = faults::find(named_faults(), request.parameter("fault"))?;
                self.inject(fault.map(|fault| (None, fault)));
            }
        }
        Some(Response::redirect(REGISTRAR_PATH))
    }
}

fn add_domain(html: &mut Html, name: &str, domain: &Domain) {
    html.raw("<h3>").text(name).raw("</h3><p>Registered ").text(&domain.registered_at.to_rfc3339());
    html.raw(" for ").text(&domain.registrant).raw(", expires ").text(&domain.expires_at.to_rfc3339());
    html.raw(if domain.locked { ", locked" } else { ", not locked" });
    if let Some(until) = domain.transfer_lock_expires_at {
        html.raw(", not transferable until ").text(&until.to_rfc3339());
    }
    html.raw(".<br>Nameservers: ").text(&domain.nameservers.join(", "));
    for record in &domain.ds {
        html.raw("<br>DS: <code>").text(&record.to_string()).raw("</code>");
    }
    html.raw("</p><form method=post><input type=hidden name=domain value=\"").text(name).raw("\">");
    for (action, text) in [
        ("transfer", "Transfer away"),
        ("expire", "Expire"),
        ("soon", "Expire in seven days"),
        ("renew", "Renew automatically"),
        ("unlock", "Remove both locks"),
    ] {
        html.raw("<button name=action value=").raw(action).raw(">").raw(text).raw("</button> ");
    }
    html.raw("</form>");
}

fn add_history(html: &mut Html, state: &State) {
    html.raw("<h2>Orders</h2><ul>");
    for order in state.orders.iter().rev() {
        let text = format!("{:?} {} for {} years: {}", order.operation, order.name, order.years, dollars(order.cents));
        html.raw("<li>").text(&text).raw("</li>");
    }
    html.raw("</ul><h2>Calls</h2><ul>");
    for call in state.calls.iter().rev().take(MAX_CALLS) {
        html.raw("<li>").text(call).raw("</li>");
    }
    html.raw("</ul>");
}
