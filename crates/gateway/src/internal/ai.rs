//! The routes with which nodes meter calls of AI models.

use actix_web::web::Data;
use billing::{AiModels, Billing, CallAdmission, CallProgress, CallRefusal, CallRequest, CallUsage};
use convergence::Convergence;
use kernel::Code;
use protocol::{
    AdmittedCall, AiAdmission, AiCallRequest, AiSettlements, AiUsage, EndedCall, OpenCall, RefusalCode, RefusedCall,
};
use uuid::Uuid;

use super::id::parse_id;
use crate::authority::NodeCaller;
use crate::http::{Area, Body, Json, NoContent};
use crate::problem::Problem;

pub(super) fn routes(area: &mut Area<'_>) {
    area.get("ai_models", "/internal/v1/ai/models", models).summary("List the AI models and their prices");
    area.post("admit_ai_call", "/internal/v1/ai/calls", admit)
        .summary("Request the admission of a call of an AI model")
        .codes(&[&Code::BAD_REQUEST]);
    area.post("settle_ai_calls", "/internal/v1/ai/settlements", settle)
        .summary("Report calls of AI models that ended or are in progress")
        .description("Safe to repeat: each call is deducted once.")
        .codes(&[&Code::BAD_REQUEST]);
}

async fn models(_: NodeCaller, billing: Data<Billing>) -> Result<Json<AiModels>, Problem> {
    Ok(Json(billing.ai_models()))
}

async fn admit(
    by: NodeCaller,
    nodes: Data<Convergence>,
    billing: Data<Billing>,
    Body(AiCallRequest { id, project, model, input_tokens, max_output_tokens }): Body<AiCallRequest>,
) -> Result<Json<AiAdmission>, Problem> {
    nodes.core()?;
    let project = parse_id("project", &project)?;
    let request = CallRequest { id: call_id(&id)?, project, model, input_tokens, max_output_tokens };
    let admission = match billing.admit_call(by.node, &request).await? {
        Ok(CallAdmission { upstream_model, context_tokens, max_output_tokens }) => {
            AiAdmission::Admitted(AdmittedCall { upstream_model, context_tokens, max_output_tokens })
        }
        Err(refusal) => AiAdmission::Refused(refused(&refusal)),
    };
    Ok(Json(admission))
}

async fn settle(
    by: NodeCaller,
    nodes: Data<Convergence>,
    billing: Data<Billing>,
    Body(AiSettlements { ended, open }): Body<AiSettlements>,
) -> Result<NoContent, Problem> {
    nodes.core()?;
    let open = open.iter().map(|OpenCall { id, output_tokens }| {
        Ok(CallProgress { id: call_id(id)?, output_tokens: i64::from(*output_tokens) })
    });
    let open = open.collect::<Result<Vec<_>, Problem>>()?;
    let ended = ended.into_iter().map(|EndedCall { id, usage }| {
        let usage = usage.map(|AiUsage { input_tokens, output_tokens, estimated }| CallUsage {
            input_tokens: i64::from(input_tokens),
            output_tokens: i64::from(output_tokens),
            estimated,
        });
        Ok((call_id(&id)?, usage))
    });
    let ended = ended.collect::<Result<Vec<_>, Problem>>()?;
    if !open.is_empty() {
        billing.report_open_calls(by.node, &open).await?;
    }
    for (id, usage) in ended {
        billing.settle_call(by.node, id, usage).await?;
    }
    Ok(NoContent)
}

fn call_id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_| Problem::bad_request("id must be a UUID"))
}

fn refused(refusal: &CallRefusal) -> RefusedCall {
    let (code, retry_after) = match refusal {
        CallRefusal::ModelNotFound => (RefusalCode::ModelNotFound, None),
        CallRefusal::ContextLengthExceeded { .. } => (RefusalCode::ContextLengthExceeded, None),
        CallRefusal::InsufficientCredit => (RefusalCode::InsufficientCredit, None),
        CallRefusal::RateLimited { retry_after, .. } => (RefusalCode::RateLimited, Some(*retry_after)),
        CallRefusal::SpendLimit { .. } => (RefusalCode::SpendLimit, None),
        CallRefusal::NotGranted => (RefusalCode::NotGranted, None),
    };
    RefusedCall { code, message: refusal.to_string(), retry_after }
}
