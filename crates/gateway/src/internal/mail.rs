//! The routes for mail. Nodes submit the mail of workers, and claim received mail for them. The mail node hands over
//! received mail.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Data;
use convergence::Convergence;
use kernel::{Code, MailId, ProjectId};
use mail::{
    Attachment, ClaimedMail, DeliveryResult as AttemptResult, Mail, MailError, NewInboundMail, OutgoingMail as NewMail,
    RecipientOwner, Refusal, Submission,
};
use protocol::{
    DeliveryResult, InboundMail, MailAttachment, MailClaim, MailDelivered, MailDeliveries, MailDelivery, MailRefusal,
    MailSubmission, MailSubmitted, OutgoingMail, Recipient, RecipientRequest, RefusedMail,
};
use serde::Deserialize;
use serde_json::json;

use super::id::parse_id;
use crate::authority::{MailNodeCaller, NodeCaller};
use crate::http::{
    Body, Bytes, Describe, Extract, Json, MessageUpload, NoContent, Operation, Path, Routes, path_parameters,
    release_permit, upload_problem,
};
use crate::problem::Problem;

/// The largest submission, in bytes: a mail of 10 MiB with attachments in base64.
const MAX_SUBMISSION_BYTES: usize = 16 * 1024 * 1024;

path_parameters! {
    ProjectId: "The id of the project that receives the mail.";
}

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("mail", "Mail that workers send and receive, for nodes and the mail node.");
    area.post("submit_mail", "/internal/v1/mail/submissions", submit)
        .summary("Send a mail of a worker")
        .description("Safe to repeat: a mail with an accepted id is not sent again.")
        .codes(&[&Code::BAD_REQUEST]);
    area.post("claim_mail", "/internal/v1/mail/deliveries", claim)
        .summary("Claim mail that workers must handle, or wait for some")
        .description("The claims of other mails than those that the node has in progress end.");
    area.post("complete_mail", "/internal/v1/mail/deliveries/{mailId}", complete)
        .summary("Report the result of a delivery to a worker")
        .description("The result of an earlier attempt, or of another node, has no effect.")
        .codes(&[&Code::BAD_REQUEST]);
    area.get("claimed_mail", "/internal/v1/mail/messages/{mailId}/raw", claimed_raw)
        .summary("Download a mail that the node has claimed");
    area.post("find_recipient", "/internal/v1/mail/recipients", find_recipient)
        .summary("Find the project of a recipient")
        .codes(&[&Code::BAD_REQUEST]);
    area.put("upload_mail", "/internal/v1/mail/uploads/{projectId}/{mailId}", upload)
        .summary("Upload a received message of a project")
        .description("Safe to repeat. The message of a deleted project is not stored, and its commit returns 404.");
    area.put("receive_mail", "/internal/v1/mail/inbound/{mailId}", receive)
        .summary("Commit a received mail whose message was uploaded")
        .description("Safe to repeat. The response is 404 if the project was deleted.")
        .codes(&[&Code::BAD_REQUEST, &MailError::UPLOAD_MISMATCH]);
}

const INVALID_QUERY: &str = "wait must be a non-negative integer";

/// The query of a claim.
#[derive(Debug, Deserialize)]
struct ClaimQuery {
    #[serde(default)]
    wait: u64,
}

impl Describe for ClaimQuery {
    fn describe(operation: &mut Operation) {
        let number = json!({ "type": "integer", "minimum": 0, "default": 0 });
        operation.parameter("query", "wait", "Seconds to wait for mail, at most 30.", &number);
        operation.long = true;
        operation.code(&Code::BAD_REQUEST);
    }
}

impl Extract for ClaimQuery {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        let query: Self = serde_urlencoded::from_str(request.query_string())
            .map_err(|error| Problem::bad_request(format!("{INVALID_QUERY}: {error}")))?;
        if query.wait > 0 {
            release_permit(request);
        }
        Ok(query)
    }
}

async fn submit(
    by: NodeCaller,
    nodes: Data<Convergence>,
    mail: Data<Mail>,
    Body(MailSubmission { id, project, mail: content }): Body<MailSubmission, MAX_SUBMISSION_BYTES>,
) -> Result<Json<MailSubmitted>, Problem> {
    nodes.core()?;
    let (id, project) = (parse_id("id", &id)?, parse_id("project", &project)?);
    let submission = Submission { id, project, mail: outgoing(content) };
    Ok(Json(match mail.submit(by.node, submission).await? {
        Ok(()) => MailSubmitted::Queued,
        Err(refusal) => MailSubmitted::Refused(refused(&refusal)),
    }))
}

async fn claim(
    by: NodeCaller,
    nodes: Data<Convergence>,
    mail: Data<Mail>,
    Body(MailClaim { in_progress }): Body<MailClaim>,
    // The last argument, because a late body acquires the permit again.
    ClaimQuery { wait }: ClaimQuery,
) -> Result<Json<MailDeliveries>, Problem> {
    nodes.core()?;
    let in_progress = in_progress.iter().map(|id| parse_id("inProgress", id)).collect::<Result<Vec<_>, _>>()?;
    let claimed = mail.claim(by.node, &in_progress, Duration::from_secs(wait)).await?;
    by.authenticate_again(&nodes).await?;
    let delivery = |ClaimedMail { id, project, attempt, from, to, size_bytes }| MailDelivery {
        id: id.to_string(),
        project: project.to_string(),
        attempt: u32::try_from(attempt).unwrap_or_default(),
        from,
        to,
        size_bytes: u64::try_from(size_bytes).unwrap_or_default(),
    };
    Ok(Json(MailDeliveries { deliveries: claimed.into_iter().map(delivery).collect() }))
}

async fn complete(
    by: NodeCaller,
    Path(id): Path<MailId>,
    nodes: Data<Convergence>,
    mail: Data<Mail>,
    Body(delivered): Body<MailDelivered>,
) -> Result<NoContent, Problem> {
    nodes.core()?;
    let attempt = i32::try_from(delivered.attempt).unwrap_or(i32::MAX);
    let result = match delivered.into_result() {
        DeliveryResult::Handled => AttemptResult::Handled,
        DeliveryResult::Rejected(reason) => AttemptResult::Rejected(reason),
        DeliveryResult::NoHandler => AttemptResult::NoHandler,
        DeliveryResult::Failed(reason) => AttemptResult::Failed(reason),
    };
    mail.complete(by.node, id, attempt, result).await?;
    Ok(NoContent)
}

async fn claimed_raw(by: NodeCaller, Path(id): Path<MailId>, mail: Data<Mail>) -> Result<Bytes, Problem> {
    let (length, bytes) = mail.claimed_raw(by.node, id).await?;
    Ok(Bytes::streamed("message/rfc822", length, bytes))
}

async fn find_recipient(
    _: MailNodeCaller,
    mail: Data<Mail>,
    Body(RecipientRequest { domain }): Body<RecipientRequest>,
) -> Result<Json<Recipient>, Problem> {
    Ok(Json(match mail.recipient_owner(&domain).await? {
        RecipientOwner::Project(project) => Recipient::Project(project.to_string()),
        RecipientOwner::Full => Recipient::Full,
        RecipientOwner::Unknown => Recipient::Unknown,
        RecipientOwner::Foreign => Recipient::Foreign,
    }))
}

async fn upload(
    _: MailNodeCaller,
    Path((project, id)): Path<(ProjectId, MailId)>,
    mail: Data<Mail>,
    message: MessageUpload,
) -> Result<NoContent, Problem> {
    mail.upload(project, id, message.into_stream()).await.map_err(upload_problem)?;
    Ok(NoContent)
}

async fn receive(
    _: MailNodeCaller,
    Path(id): Path<MailId>,
    mail: Data<Mail>,
    Body(InboundMail { project, from, to, subject, spf, size_bytes, received_at }): Body<InboundMail>,
) -> Result<NoContent, Problem> {
    let received_at = received_at.parse().map_err(|_| Problem::bad_request("receivedAt must be a time"))?;
    let project = parse_id("project", &project)?;
    mail.receive(NewInboundMail { id, project, from, to, subject, spf, size_bytes, received_at }).await?;
    Ok(NoContent)
}

fn outgoing(mail: OutgoingMail) -> NewMail {
    let OutgoingMail { from, reply_to, to, cc, bcc, subject, text, html, headers, attachments } = mail;
    let attachments = attachments.into_iter().map(|MailAttachment { filename, content_type, content }| Attachment {
        filename,
        content_type,
        content,
    });
    let attachments = attachments.collect();
    NewMail { from, reply_to, to, cc, bcc, subject, text, html, headers, attachments }
}

fn refused(refusal: &Refusal) -> RefusedMail {
    let code = match refusal {
        Refusal::RateLimited { .. } => MailRefusal::RateLimited,
        Refusal::MailboxFull { .. } => MailRefusal::MailboxFull,
        Refusal::Suppressed(_) => MailRefusal::Suppressed,
        Refusal::InvalidRecipient(_) => MailRefusal::InvalidRecipient,
        Refusal::InvalidSender { .. } => MailRefusal::InvalidSender,
        Refusal::InvalidMessage(_) => MailRefusal::InvalidMessage,
        Refusal::TooLarge { .. } => MailRefusal::TooLarge,
        Refusal::NotGranted => MailRefusal::NotGranted,
    };
    RefusedMail { code, message: refusal.to_string() }
}
