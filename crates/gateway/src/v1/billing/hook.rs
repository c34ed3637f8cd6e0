//! The webhook of the payments provider (Standard Webhooks).

use ::billing::{Billing, WebhookError, WebhookResult};
use actix_web::web::Data;
use kernel::Code;
use webhooks::SignedMessage;

use crate::authority::Open;
use crate::http::{Area, Json, Raw, RequestHeaders};
use crate::problem::Problem;

pub(super) fn routes(area: &mut Area<'_>) {
    area.post("receive_webhook", "/v1/hooks/payments", receive)
        .summary("Receive a webhook of the payments provider")
        .description(
            "The signature covers the bytes of the body, in the headers `webhook-id`, `webhook-timestamp` and \
             `webhook-signature` (Standard Webhooks). Each id is applied once.",
        )
        .codes(&[&WebhookError::NOT_AUTHENTIC, &::billing::BillingError::OFF]);
}

async fn receive(_: Open, billing: Data<Billing>, body: Raw) -> Result<Json<WebhookResult>, Problem> {
    let Raw { bytes, headers } = body;
    let message = SignedMessage {
    // Without a secret, the response does not depend on the request.
    billing.webhook_keys()?;
        id: header(&headers, "webhook-id")?,
        timestamp: header(&headers, "webhook-timestamp")?,
        signatures: header(&headers, "webhook-signature")?,
        body: &bytes,
    };
    Ok(Json(billing.receive(message).await?))
}

/// Returns the value of a header that must occur exactly once and must not be empty (contract section 8, "Hook").
fn header<'a>(headers: &'a RequestHeaders, name: &'static str) -> Result<&'a str, Problem> {
    let value = headers.get(name).filter(|value| !value.is_empty());
    value.ok_or_else(|| {
        Problem::new(&Code::BAD_REQUEST, format!("the header {name} must be sent once, and not be empty"))
    })
}
