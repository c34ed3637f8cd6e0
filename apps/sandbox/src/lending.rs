//! The model-lending service: receives ended grants, signed as Standard Webhooks.

use std::sync::{Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::Value;

use crate::html::{Html, page};
use crate::http::{Request, Response};

/// The path of the service.
pub const LENDING_PATH: &str = "/lending";
/// The secret of the signatures.
pub const LENDING_SECRET: &str = "whsec_c2FuZGJveCBsZW5kaW5nIHNlY3JldA==";

/// The service.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    revocations: Mutex<Vec<Revocation>>,
}

/// An accepted message.
#[derive(Debug, Clone)]
struct Revocation {
    message_id: String,
    sid: String,
    /// How often the message arrived.
    deliveries: usize,
}

impl Lending {
    /// Accepts a message with a valid signature, each id once.
    pub fn receive(&self, request: &Request) -> Response {
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
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        match body["sid"].as_str() {
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

    /// The number of ended grants.
    pub fn count(&self) -> usize {
        self.revocations().len()
    }

    pub fn page(&self) -> Response {
        let mut html = Html::default();
        html.raw("<p>The model-lending service is told of every grant that ended.</p>");
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
