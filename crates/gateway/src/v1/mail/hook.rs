//! The hook of the relay's notification service (Amazon SNS).

use ::mail::{HookError, MailHook};
use actix_web::web::Data;

use crate::authority::Open;
use crate::http::{Area, EmptyOk, PlainText};
use crate::problem::Problem;

/// The largest message. SNS sends up to 256 KiB of text, which JSON can escape.
const MAX_MESSAGE_BYTES: usize = 512 * 1024;

pub(super) fn routes(area: &mut Area<'_>) {
    area.post("receive_notification", "/v1/hooks/mailer", receive)
        .summary("Receive a delivery notification of the mail relay")
        .description(
            "A message of Amazon SNS as JSON, with a signature of version 1 or 2 and a certificate of the notification \
             service. Each message is applied once. The hook confirms the subscription to its topic. The status is 503 \
             if the notification service cannot be reached, or if too many messages above 64 KiB arrive at the same \
             time, so that it sends the message again.",
        )
        .codes(&[&HookError::NOT_AUTHENTIC, &HookError::OFF]);
}

async fn receive(_: Open, hook: Data<MailHook>, body: PlainText<MAX_MESSAGE_BYTES>) -> Result<EmptyOk, Problem> {
    hook.receive(&body.0).await?;
    Ok(EmptyOk)
}
