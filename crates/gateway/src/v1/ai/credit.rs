//! AI credit of an organization.

use ::billing::{AiCredit, AutoTopupChange, Billing, BillingError, BillingPage, LedgerPage, NewCreditCheckout};
use actix_web::web::Data;

use crate::authority::InOrg;
use crate::authority::role::{Admin, Member};
use crate::authority::scope::{BillingRead, BillingWrite};
use crate::http::{Area, Body, Json, JsonOrNoContent, PageBefore};
use crate::problem::Problem;

pub(super) fn routes(area: &mut Area<'_>) {
    area.get("get_credit", "/v1/orgs/{orgSlug}/ai/credit", get)
        .summary("Get the AI credit of an organization, and its auto top-up")
        .description("Works even while the payments provider is down.");
    area.get("list_ledger", "/v1/orgs/{orgSlug}/ai/ledger", ledger)
        .summary("List the changes of the AI credit, newest first")
        .description("The balances of consecutive rows add up. A call of a model is one row.");
    area.post("check_out_credit", "/v1/orgs/{orgSlug}/ai/credit/checkout", check_out)
        .summary("Start the purchase of AI credit")
        .description("Paying does not change the balance: only the webhook of the payments provider does.")
        .codes(&[&BillingError::OFF, &BillingError::UNAVAILABLE]);
    area.put("set_auto_topup", "/v1/orgs/{orgSlug}/ai/autotopup", set_auto_topup)
        .summary("Turn auto top-up on or off")
        .description(
            "It charges the saved payment method when a call leaves less than the threshold. A declined charge turns it \
             off. The response is 200 when it is on, and 204 when it is off.",
        )
        .codes(&[&BillingError::NO_PAYMENT_METHOD, &BillingError::UNAVAILABLE]);
}

async fn get(at: InOrg<Member, BillingRead>, billing: Data<Billing>) -> Result<Json<AiCredit>, Problem> {
    Ok(Json(billing.credit(at.org.id).await?))
}

async fn ledger(
    at: InOrg<Member, BillingRead>,
    billing: Data<Billing>,
    page: PageBefore,
) -> Result<Json<LedgerPage>, Problem> {
    Ok(Json(billing.ledger(at.org.id, page.limit, page.before).await?))
}

async fn check_out(
    at: InOrg<Admin, BillingWrite>,
    billing: Data<Billing>,
    Body(new): Body<NewCreditCheckout>,
) -> Result<Json<BillingPage>, Problem> {
    Ok(Json(billing.check_out_credit(&at.actor, at.org.id, new).await?))
}

async fn set_auto_topup(
    at: InOrg<Admin, BillingWrite>,
    billing: Data<Billing>,
    Body(change): Body<AutoTopupChange>,
) -> Result<JsonOrNoContent<AiCredit>, Problem> {
    Ok(JsonOrNoContent(billing.set_auto_topup(&at.actor, at.org.id, change).await?))
}
