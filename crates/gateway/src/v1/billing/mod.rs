//! Billing of an organization.

mod hook;

use ::billing::{
    Billing, BillingError, BillingPage, BillingSession, BillingStatus, Cancellation, NewCheckout, NewPortalVisit,
};
use actix_web::web::Data;

use crate::authority::InOrg;
use crate::authority::role::{Admin, Viewer};
use crate::authority::scope::{BillingRead, BillingWrite};
use crate::http::{Body, Json, Routes};
use crate::problem::Problem;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("billing", "Plan, payments and invoices of an organization.");
    area.get("get", "/v1/orgs/{orgSlug}/billing", get).summary("Get the plan of an organization, and all limits");
    area.post("check_out", "/v1/orgs/{orgSlug}/billing/checkout", check_out)
        .summary("Start the purchase of the pro plan")
        .description("Paying does not change the plan: only the webhook of the payments provider does.")
        .codes(&[&BillingError::ALREADY_PRO, &BillingError::OFF, &BillingError::UNAVAILABLE]);
    area.post("open_portal", "/v1/orgs/{orgSlug}/billing/portal", portal)
        .summary("Open the portal for payment method, receipts and cancellation, for one visit")
        .description("An organization that never paid has no portal.")
        .codes(&[&BillingError::OFF, &BillingError::UNAVAILABLE]);
    area.post("create_session", "/v1/orgs/{orgSlug}/billing/session", session)
        .summary("Create a session at the payments provider, for an embedded portal")
        .description("The session lasts an hour. An organization that never paid has none.")
        .codes(&[&BillingError::OFF, &BillingError::UNAVAILABLE]);
    area.post("cancel", "/v1/orgs/{orgSlug}/billing/cancel", cancel)
        .summary("End the pro plan with its period, or revert that")
        .codes(&[&BillingError::NOT_PRO, &BillingError::OFF, &BillingError::UNAVAILABLE]);
    hook::routes(&mut area);
}

async fn get(at: InOrg<Viewer, BillingRead>, billing: Data<Billing>) -> Result<Json<BillingStatus>, Problem> {
    Ok(Json(billing.status(at.org.id, at.org.plan).await?))
}

async fn check_out(
    at: InOrg<Admin, BillingWrite>,
    billing: Data<Billing>,
    Body(new): Body<NewCheckout>,
) -> Result<Json<BillingPage>, Problem> {
    Ok(Json(billing.check_out(&at.actor, at.org.id, at.org.plan, new).await?))
}

async fn portal(
    at: InOrg<Admin, BillingWrite>,
    billing: Data<Billing>,
    Body(visit): Body<NewPortalVisit>,
) -> Result<Json<BillingPage>, Problem> {
    Ok(Json(billing.portal(&at.actor, at.org.id, visit).await?))
}

async fn session(at: InOrg<Admin, BillingWrite>, billing: Data<Billing>) -> Result<Json<BillingSession>, Problem> {
    Ok(Json(billing.session(&at.actor, at.org.id).await?))
}

async fn cancel(
    at: InOrg<Admin, BillingWrite>,
    billing: Data<Billing>,
    Body(change): Body<Cancellation>,
) -> Result<Json<BillingStatus>, Problem> {
    Ok(Json(billing.cancel(&at.actor, at.org.id, at.org.plan, change).await?))
}
