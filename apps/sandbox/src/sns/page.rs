//! The page of the notification service.

use super::{FAULTS, SNS_TOPIC, Service, Subscription};
use crate::faults;
use crate::html::{Html, page};
use crate::http::{Request, Response};

/// The path of the page.
const PATH: &str = "/sns";
const VERSIONS: [&str; 2] = ["1", "2"];

impl Service {
    pub(super) fn page(&self, request: &Request) -> Response {
        match request.method.as_str() {
            "GET" => self.overview(),
            "POST" => self.act(request).unwrap_or_else(|| Response::new(400, "text/plain", "unknown value")),
            _ => Response::new(405, "text/plain", "not allowed"),
        }
    }

    fn overview(&self) -> Response {
        let mut html = Html::default();
        html.raw("<p>This service reports what happens to relayed mail. The recipient selects the outcome: ");
        html.raw("<code>bounce@…</code>, <code>softbounce@…</code> and <code>complain@…</code>. Mail to all other ");
        html.raw("recipients is delivered. The SMTP server refuses <code>refuse@…</code>, and refuses ");
        html.raw("<code>defer@…</code> temporarily.</p><p>Topic: <code>").text(SNS_TOPIC);
        html.raw("</code>, certificate: <code>").text(&self.certificate_url()).raw("</code></p>");
        let (current, version) = (*self.fault.borrow(), self.state().version);
        html.select_fault("Fault of the service", FAULTS.map(|(name, fault)| (name, fault == current)));
        html.raw("<form method=post><label>Version of signatures <select name=version>");
        for offered in VERSIONS {
            html.raw(if offered == version { "<option selected>" } else { "<option>" }).raw(offered).raw("</option>");
        }
        html.raw("</select></label><button>Set</button></form><form method=post>The subscription is ");
        html.raw(match *self.subscription.borrow() {
            Subscription::Pending => "not confirmed",
            Subscription::Confirmed => "confirmed",
            Subscription::Ended => "ended",
        });
        html.raw(". <button name=subscription value=subscribe>Ask for confirmation</button> ");
        html.raw("<button name=subscription value=unsubscribe>Unsubscribe</button></form><h2>Messages</h2>");
        self.webhooks.add_table(&mut html);
        page("Delivery notifications", &html)
    }

    /// Executes a form. Returns `None` if a value is unknown.
    fn act(&self, request: &Request) -> Option<Response> {
        let parameter = |name: &str| Some(request.parameter(name)).filter(|value| !value.is_empty());
        if let Some(name) = parameter("fault") {
            self.fault.send_replace(faults::find(FAULTS, name)?);
        }
        if let Some(version) = parameter("version") {
            self.state().version = VERSIONS.into_iter().find(|known| *known == version)?;
        }
        match parameter("subscription") {
            Some("subscribe") => self.subscribe(),
            Some("unsubscribe") => {
                self.subscription.send_replace(Subscription::Ended);
                self.send(self.confirmation("UnsubscribeConfirmation"));
            }
            Some(_) => return None,
            None => {}
        }
        if let Some(id) = parameter("redeliver") {
            self.webhooks.redeliver(id);
        }
        Some(Response::redirect(PATH))
    }
}
