//! The mail log of a project.

use actix_web::http::header::{CONTENT_DISPOSITION, HeaderValue};
use actix_web::web::Data;
use kernel::{InvalidField, MailId, Page};
use mail::{Mail, MailDirection, MailError, MailLogEntry};
use serde::Deserialize;

use crate::authority::InProject;
use crate::authority::role::Viewer;
use crate::authority::scope::ProjectRead;
use crate::http::{Area, Bytes, Json, Pagination, Path, Query, path_parameters};
use crate::problem::Problem;

path_parameters! {
    MailId: "The mail's id, as in the log.";
}

/// The filter of the log.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
struct LogFilter {
    /// Only received mail (`in`) or only sent mail (`out`); empty for both.
    #[schema(pattern = "^(in|out)?$", example = "in", extensions(("x-rule" = json!("in, out or empty"))))]
    direction: Option<String>,
}

pub(super) fn routes(area: &mut Area<'_>) {
    area.get("list_log", "/v1/orgs/{orgSlug}/projects/{projectName}/email/log", list)
        .summary("List the mail that a project sent and received, newest first")
        .description("The log stays readable after email is disabled. The plan determines how long a mail is kept.");
    area.get("get_mail", "/v1/orgs/{orgSlug}/projects/{projectName}/email/log/{mailId}", get)
        .summary("Get a mail in the log");
    area.get("get_raw_mail", "/v1/orgs/{orgSlug}/projects/{projectName}/email/log/{mailId}/raw", raw)
        .summary("Download the raw message of a mail (`message/rfc822`)")
        .description(
            "A received message has the headers `Received` and `Authentication-Results` that the platform added. A sent \
             message has the bytes that the relay received. The response is 404 if `hasRaw` is false.",
        );
}

async fn list(
    at: InProject<Viewer, ProjectRead>,
    mail: Data<Mail>,
    Query(filter): Query<LogFilter>,
    Pagination(paging): Pagination<MailId>,
) -> Result<Json<Page<MailLogEntry>>, Problem> {
    let direction = filter.direction.filter(|direction| !direction.is_empty());
    let direction: Option<MailDirection> = direction
        .map(|direction| direction.parse())
        .transpose()
        .map_err(|_| MailError::from(InvalidField::new("direction", "must be in, out or empty")))?;
    Ok(Json(mail.log(at.project.id, direction, &paging).await?))
}

async fn get(
    at: InProject<Viewer, ProjectRead>,
    Path(id): Path<MailId>,
    mail: Data<Mail>,
) -> Result<Json<MailLogEntry>, Problem> {
    Ok(Json(mail.entry(at.project.id, id).await?))
}

async fn raw(at: InProject<Viewer, ProjectRead>, Path(id): Path<MailId>, mail: Data<Mail>) -> Result<Bytes, Problem> {
    let (length, bytes) = mail.raw(at.project.id, id).await?;
    let disposition = HeaderValue::try_from(format!("attachment; filename=\"{id}.eml\""));
    let disposition = disposition.map_err(|error| Problem::internal(error.to_string()))?;
    Ok(Bytes::streamed("message/rfc822", length, bytes).with_header(CONTENT_DISPOSITION, disposition))
}
