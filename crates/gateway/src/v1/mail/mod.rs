//! The mail address of a project, its mail log, and its suppressed recipients.

mod hook;
mod log;
mod suppressions;

use ::mail::{EmailStatus, Mail, Target};
use ::resources::{ResourceError, Resources};
use actix_web::web::Data;

use crate::authority::InProject;
use crate::authority::role::{Admin, Member, Viewer};
use crate::authority::scope::{ProjectRead, ProjectWrite};
use crate::http::{Json, NoContent, Routes};
use crate::problem::Problem;
use crate::require::RequireCore;

const EMAIL: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/email";

pub(super) fn routes(routes: &mut Routes) {
    let mut area =
        routes.area("email", "The mail address of a project, which worker code uses as `env.email` and `email()`.");
    area.get("get", EMAIL, get)
        .summary("Get the mail address of a project, with limits and usage")
        .description("The address is present even while email is disabled: it is the one that the project would get.");
    area.post("grant", EMAIL, grant)
        .summary("Enable email for a project, or return the existing address")
        .description(
            "The address is fixed with the current names of project and organization. The binding `env.email` appears \
             within seconds, without a new deployment, and received mail reaches `email()`.",
        )
        .codes(&[&ResourceError::EMAIL_UNAVAILABLE, &ResourceError::EMAIL_ADDRESS_TAKEN]);
    area.delete("revoke", EMAIL, revoke)
        .summary("Disable email for a project, and free its address")
        .description("Mail to the address is then refused. The log stays.");
    hook::routes(&mut area);
    log::routes(&mut area);
    suppressions::routes(&mut area);
}

impl<R, S> From<&InProject<R, S>> for Target {
    fn from(at: &InProject<R, S>) -> Self {
        Self { org: at.org.id, plan: at.org.plan, project: at.project.id }
    }
}

async fn get(
    at: InProject<Viewer, ProjectRead>,
    _: RequireCore,
    mail: Data<Mail>,
) -> Result<Json<EmailStatus>, Problem> {
    Ok(Json(mail.status((&at).into()).await?))
}

async fn grant(
    at: InProject<Member, ProjectWrite>,
    _: RequireCore,
    resources: Data<Resources>,
    mail: Data<Mail>,
) -> Result<Json<EmailStatus>, Problem> {
    resources.email_grant(&at.actor, (&at).into()).await?;
    Ok(Json(mail.status((&at).into()).await?))
}

async fn revoke(
    at: InProject<Admin, ProjectWrite>,
    _: RequireCore,
    resources: Data<Resources>,
) -> Result<NoContent, Problem> {
    resources.email_revoke(&at.actor, (&at).into()).await?;
    Ok(NoContent)
}
