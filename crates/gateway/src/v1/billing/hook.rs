//! The webhook of the payments provider (Standard Webhooks).

use std::borrow::Cow;

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
    // Without a secret, the response does not depend on the request.
    billing.webhook_keys()?;
    let Raw { bytes, headers } = body;
    let id = header(&headers, "webhook-id")?;
    let timestamp = header(&headers, "webhook-timestamp")?;
    let signatures = header(&headers, "webhook-signature")?;
    let message = SignedMessage { id: &id, timestamp: &timestamp, signatures: &signatures, body: &bytes };
    Ok(Json(billing.receive(message).await?))
}

/// Returns the value of a header that must occur exactly once and must not be empty (contract section 8, "Hook"). A
/// value that is not UTF-8 does not pass the verification.
fn header<'a>(headers: &'a RequestHeaders, name: &'static str) -> Result<Cow<'a, str>, Problem> {
    let value = headers.get_lossy(name).filter(|value| !value.is_empty());
    value.ok_or_else(|| {
        Problem::new(&Code::BAD_REQUEST, format!("the header {name} must be sent once, and not be empty"))
    })
}
