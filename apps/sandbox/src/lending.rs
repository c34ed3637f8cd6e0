//! The model-lending service. It receives messages about ended grants, with the signatures of Standard Webhooks.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::Value;
use tokio::sync::watch;

use crate::faults;
use crate::html::{Html, page};
use crate::http::{Request, Response};
use crate::values::now;

/// The path of the service.
pub const LENDING_PATH: &str = "/lending";
/// The secret of the signatures.
pub const LENDING_SECRET: &str = "whsec_c2FuZGJveCBsZW5kaW5nIHNlY3JldA==";

/// The service.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    revocations: Mutex<Vec<Revocation>>,
    fault: watch::Sender<Option<Fault>>,
}

/// A fault that affects all following requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Responds with 503.
    Unavailable,
    /// Responds with 502 and a page, like a proxy.
    Html,
    /// Does not respond while the fault lasts.
    Hang,
    /// Closes the connection without a response.
    Close,
    /// Accepts the message after [`SLOW`].
    Slow,
}

/// The faults with their names on the page.
const FAULTS: [(&str, Option<Fault>); 6] = [
    ("none", None),
    ("unavailable", Some(Fault::Unavailable)),
    ("html", Some(Fault::Html)),
    ("hang", Some(Fault::Hang)),
    ("close", Some(Fault::Close)),
    ("slow", Some(Fault::Slow)),
];

/// The delay of a slow response. It is shorter than the sender's timeout.
const SLOW: Duration = Duration::from_secs(2);

/// The maximum difference between a timestamp and the clock.
const TOLERANCE_SECONDS: u64 = 300;

/// An accepted message.
#[derive(Debug, Clone)]
struct Revocation {
    message_id: String,
    sid: String,
    /// The number of times that the message arrived.
    deliveries: usize,
}

impl Lending {
    /// Accepts a message with a valid signature. Accepts each id only once. Returns `None` to close the connection
    /// without a response.
    pub async fn receive(&self, request: &Request) -> Option<Response> {
        let mut faults = self.fault.subscribe();
        let fault = *faults.borrow_and_update();
        match fault {
            None => {}
            Some(Fault::Slow) => tokio::time::sleep(SLOW).await,
            Some(Fault::Close) => return None,
            Some(Fault::Hang) => {
                faults.wait_for(|fault| *fault != Some(Fault::Hang)).await.unwrap();
                return None;
            }
            Some(Fault::Unavailable) => {
                return Some(Response::new(503, "text/plain; charset=utf-8", "out of service"));
            }
            Some(Fault::Html) => {
                return Some(Response::new(502, "text/html", "<!DOCTYPE html><title>Bad gateway</title>"));
            }
        }
        Some(self.accept(request))
    }

    /// Selects the fault that a submitted form contains.
    pub fn inject(&self, request: &Request) -> Response {
        let Some(fault) = faults::find(FAULTS, request.parameter("fault")) else {
            return Response::new(400, "text/plain; charset=utf-8", "unknown fault");
        };
        self.fault.send_replace(fault);
        Response::redirect(LENDING_PATH)
    }

    fn accept(&self, request: &Request) -> Response {
        let header = |name: &str| request.named_header(name).to_owned();
        let (id, timestamp, signatures) =
            (header("webhook-id"), header("webhook-timestamp"), header("webhook-signature"));
        let key = STANDARD.decode(LENDING_SECRET.trim_start_matches("whsec_")).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let signed = [format!("{id}.{timestamp}.").as_bytes(), &request.body].concat();
        let is_valid = signatures
            .split(' ')
            .filter_map(|signature| signature.strip_prefix("v1,"))
            .any(|signature| STANDARD.decode(signature).is_ok_and(|tag| hmac::verify(&key, &signed, &tag).is_ok()));
        let now = now().timestamp();
        let is_recent = timestamp.parse::<i64>().is_ok_and(|sent| sent.abs_diff(now) <= TOLERANCE_SECONDS);
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        match body["sid"].as_str() {
            _ if !is_recent => Response::new(401, "text/plain; charset=utf-8", "the timestamp is not recent"),
            _ if !is_valid => Response::new(401, "text/plain; charset=utf-8", "the signature is not valid"),
            None => Response::new(400, "text/plain; charset=utf-8", "no sid"),
            Some(sid) => {
                let mut revocations = self.revocations();
                match revocations.iter_mut().find(|known| known.message_id == id) {
                    Some(known) => known.deliveries += 1,
                    None => revocations.push(Revocation { message_id: id, sid: sid.to_owned(), deliveries: 1 }),
                }
                Response::new(204, "text/plain", "")
            }
        }
    }

    /// Returns the number of ended grants.
    pub fn count(&self) -> usize {
        self.revocations().len()
    }

    pub fn page(&self) -> Response {
        let mut html = Html::default();
        html.raw("<p>The service reports every grant that ended to the model-lending service.</p>");
        let current = *self.fault.borrow();
        html.select_fault("Fault of the service", FAULTS.map(|(name, fault)| (name, fault == current)));
        // Each request in progress subscribes to the fault, so the number of subscribers is the number of requests.
        html.raw("<p>").text(&format!("Requests in progress: {}", self.fault.receiver_count())).raw("</p>");
        html.raw("<table><tr><th>Grant</th><th>Message</th><th>Deliveries</th></tr>");
        for Revocation { message_id, sid, deliveries } in self.revocations().iter().rev() {
            html.raw("<tr><td>").text(sid).raw("</td><td>").text(message_id).raw("</td><td>");
            html.text(&deliveries.to_string()).raw("</td></tr>");
        }
        html.raw("</table>");
        page("Model-lending service", &html)
    }

    fn revocations(&self) -> MutexGuard<'_, Vec<Revocation>> {
        self.revocations.lock().unwrap()
    }
}
