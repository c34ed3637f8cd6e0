//! The suppressed recipients of a project.

use actix_web::web::Data;
use kernel::Page;
use mail::{Mail, Suppression};

use crate::authority::InProject;
use crate::authority::role::{Member, Viewer};
use crate::authority::scope::{ProjectRead, ProjectWrite};
use crate::http::{Area, Json, NoContent, Pagination, Path, text_path_parameters};
use crate::problem::Problem;

text_path_parameters! {
    SuppressedAddress: "The address of a recipient, percent-encoded.", "ada@example.org";
}

pub(super) fn routes(area: &mut Area<'_>) {
    area.get("list_suppressions", "/v1/orgs/{orgSlug}/projects/{projectName}/email/suppressions", list)
        .summary("List the recipients that a project may not send to")
        .description(
            "A recipient is suppressed when a mail to it bounces permanently, or when it reports a mail as spam. A call of \
             `send()` with such a recipient fails.",
        );
    area.delete("delete_suppression", "/v1/orgs/{orgSlug}/projects/{projectName}/email/suppressions/{address}", clear)
        .summary("Allow mail to a suppressed recipient again")
        .description(
            "Safe to repeat: the response is 204 even for an address that is not suppressed, and 400 for a text that is \
             neither suppressed nor an address.",
        );
}

async fn list(
    at: InProject<Viewer, ProjectRead>,
    mail: Data<Mail>,
    Pagination(paging): Pagination<String>,
) -> Result<Json<Page<Suppression>>, Problem> {
    Ok(Json(mail.suppressions(at.project.id, &paging).await?))
}

async fn clear(
    at: InProject<Member, ProjectWrite>,
    Path(SuppressedAddress(address)): Path<SuppressedAddress>,
    mail: Data<Mail>,
) -> Result<NoContent, Problem> {
    mail.suppression_clear(&at.actor, (&at).into(), &address).await?;
    Ok(NoContent)
}
