//! AI models: the catalog, the access of projects, and the credit of an organization.

mod credit;

use ::billing::{AiModels, AiStatus, Billing};
use ::resources::Resources;
use actix_web::web::Data;

use crate::authority::role::{Admin, Member, Viewer};
use crate::authority::scope::{AiUse, ProjectRead, ProjectWrite};
use crate::authority::{InProject, SignedInFiltered};
use crate::http::{Json, NoContent, Routes};
use crate::problem::Problem;
use crate::require::RequireCore;

const AI: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/ai";

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("ai", "AI models, which worker code calls through `env.ai`, and prepaid credit.");
    area.get("models", "/v1/ai/models", models).summary("List the AI models and their prices");
    area.get("get", AI, get)
        .summary("Get the AI access of a project, with limits and usage")
        .description("The limits are present even while AI is disabled.");
    area.post("grant", AI, grant).summary("Enable AI for a project").description(
        "The binding `env.ai` appears within seconds, without a new deployment, if the live deployment declares \
         `ai: true`. On a node without an upstream, its calls fail with 503.",
    );
    area.delete("revoke", AI, revoke)
        .summary("Disable AI for a project")
        .description("The ledger and the credit of the organization stay.");
    credit::routes(&mut area);
}

async fn models(_: SignedInFiltered<AiUse>, billing: Data<Billing>) -> Result<Json<AiModels>, Problem> {
    Ok(Json(billing.ai_models()))
}

async fn get(
    at: InProject<Viewer, ProjectRead>,
    _: RequireCore,
    resources: Data<Resources>,
    billing: Data<Billing>,
) -> Result<Json<AiStatus>, Problem> {
    let granted = resources.grants(at.project.id).await?.ai;
    Ok(Json(billing.ai_status(at.org.id, at.org.plan, at.project.id, granted).await?))
}

async fn grant(
    at: InProject<Member, ProjectWrite>,
    _: RequireCore,
    resources: Data<Resources>,
    billing: Data<Billing>,
) -> Result<Json<AiStatus>, Problem> {
    resources.ai_grant(&at.actor, (&at).into()).await?;
    Ok(Json(billing.ai_status(at.org.id, at.org.plan, at.project.id, true).await?))
}

async fn revoke(
    at: InProject<Admin, ProjectWrite>,
    _: RequireCore,
    resources: Data<Resources>,
) -> Result<NoContent, Problem> {
    resources.ai_revoke(&at.actor, (&at).into()).await?;
    Ok(NoContent)
}
