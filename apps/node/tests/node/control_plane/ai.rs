//! The metering of calls of AI models.

use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use protocol::{AdmittedCall, AiAdmission, AiCallRequest, AiSettlements, EndedCall, RefusalCode, RefusedCall};
use serde_json::json;

use super::{ControlPlane, Shared, is_node};

/// The calls for which the node requested admission, and their settlements.
#[derive(Default)]
pub struct AiCalls {
    /// The number of requests for the catalog.
    listed: usize,
    asked: Vec<AiCallRequest>,
    settled: Vec<EndedCall>,
    refusal: Option<RefusalCode>,
    /// The longest output of a call, in tokens.
    max_output_tokens: u32,
    /// Whether calls are admitted but the responses are lost.
    loses_admissions: bool,
    /// Whether settlements fail.
    fails_settlements: bool,
}

impl ControlPlane {
    /// Refuses calls from now on; admits them if `refusal` is `None`.
    pub fn refuse_ai_calls(&self, refusal: Option<RefusalCode>) {
        self.state.table.lock().unwrap().ai.refusal = refusal;
    }

    pub fn limit_ai_output(&self, tokens: u32) {
        self.state.table.lock().unwrap().ai.max_output_tokens = tokens;
    }

    /// Sets whether the responses to admissions are lost.
    pub fn lose_ai_admissions(&self, loses: bool) {
        self.state.table.lock().unwrap().ai.loses_admissions = loses;
    }

    pub fn fail_ai_settlements(&self, fails: bool) {
        self.state.table.lock().unwrap().ai.fails_settlements = fails;
    }

    /// Returns the number of requests for the catalog.
    pub fn listed_ai_models(&self) -> usize {
        self.state.table.lock().unwrap().ai.listed
    }

    /// Returns the calls for which the node requested admission.
    pub fn asked_ai_calls(&self) -> Vec<AiCallRequest> {
        self.state.table.lock().unwrap().ai.asked.clone()
    }

    /// Returns the accepted settlements. A call may be settled again.
    pub fn settled_ai_calls(&self) -> Vec<EndedCall> {
        self.state.table.lock().unwrap().ai.settled.clone()
    }
}

pub async fn models(request: HttpRequest, state: Data<Shared>) -> HttpResponse {
    let mut table = state.table.lock().unwrap();
    if !is_node(&request, &table) {
        return HttpResponse::Unauthorized().finish();
    }
    table.ai.listed += 1;
    HttpResponse::Ok().json(json!({ "models": [{ "id": "lab/small", "provider": "lab" }, { "id": "lab/large" }] }))
}

pub async fn admit(request: HttpRequest, asked: Json<AiCallRequest>, state: Data<Shared>) -> HttpResponse {
    let mut table = state.table.lock().unwrap();
    if !is_node(&request, &table) {
        return HttpResponse::Unauthorized().finish();
    }
    let is_known = ["lab/small", "lab/large"].contains(&asked.model.as_str());
    table.ai.asked.push(asked.into_inner());
    if table.ai.loses_admissions {
        return HttpResponse::InternalServerError().finish();
    }
    // As in the control plane, an unknown model is the first reason.
    let refusal = if is_known { table.ai.refusal } else { Some(RefusalCode::ModelNotFound) };
    HttpResponse::Ok().json(refusal.map_or_else(
        || {
            AiAdmission::Admitted(AdmittedCall {
                upstream_model: "small-v1".to_owned(),
                context_tokens: 100_000,
                max_output_tokens: table.ai.max_output_tokens,
            })
        },
        |code| {
            let retry_after = (code == RefusalCode::RateLimited).then_some(7);
            AiAdmission::Refused(RefusedCall { code, message: "The reason of the test.".to_owned(), retry_after })
        },
    ))
}

pub async fn settle(request: HttpRequest, settlements: Json<AiSettlements>, state: Data<Shared>) -> HttpResponse {
    let mut table = state.table.lock().unwrap();
    if !is_node(&request, &table) {
        return HttpResponse::Unauthorized().finish();
    }
    if table.ai.fails_settlements {
        return HttpResponse::InternalServerError().finish();
    }
    table.ai.settled.extend(settlements.into_inner().ended);
    HttpResponse::NoContent().finish()
}
