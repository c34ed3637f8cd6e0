//! The return from a provider.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::LOCATION;
use protocol::AuthProvider;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::cookies::SessionCookie;
use super::entry::Visit;
use super::flow::{self, Flow};
use super::metrics::PROVIDER_FAILED;
use super::page::set_headers;
use super::provider::{Exchange, Provider, ProviderError};
use super::store::{NewSession, StoreError};

/// The time for all requests and statements of a sign-in, with the wait for a permit. A page must be sent within 12 s
/// (runtime.md).
const DEADLINE: Duration = Duration::from_secs(11);
/// A longer code is invalid.
const MAX_CODE_BYTES: usize = 4096;

/// The parameters of the redirect from the provider (RFC 6749 sections 4.1.2 and 4.1.2.1).
#[derive(Deserialize, Default)]
struct Parameters {
    #[serde(default)]
    state: String,
    code: Option<String>,
    error: Option<String>,
}

/// Why a visitor was not signed in.
enum Failure {
    /// The flow is unknown in this browser, was already used, or has expired.
    Expired,
    /// The visitor refused.
    Denied,
    /// The provider was removed or replaced since the flow began.
    Withdrawn,
    /// The provider redirected with an error, or the visitor claims so: the error is in the request of the visitor.
    ErrorResponse,
    /// The provider failed, or its response is invalid.
    Provider(String),
    /// Too many sign-ins are in progress.
    Busy,
    Store(StoreError),
}

impl Visit<'_> {
    /// Completes a flow: signs the visitor in, and returns to the path at which the flow began.
    pub(super) async fn callback(&self, registered: &AuthProvider, provider: &Provider) -> HttpResponse {
        let parameters: Parameters = serde_urlencoded::from_str(self.request.query_string()).unwrap_or_default();
        let found = self.entry.flows.find(self.request, self.project, &parameters.state, self.https());
        let redirect_uri = self.redirect_uri(registered.provider);
        let flow = found
            .filter(|flow| flow.provider == registered.provider && Some(&flow.redirect_uri) == redirect_uri.as_ref());
        let next = flow.as_ref().map_or_else(|| "/".to_owned(), |flow| flow.next.clone());
        let (completed, is_over) = match &flow {
            None => (Err(Failure::Expired), true),
            Some(flow) => {
                if let Some(response) = self.limit() {
                    return response;
                }
                let completed = self.complete(flow, &parameters, registered, provider).await;
                // If nothing was sent to the provider, the visitor may repeat the request.
                let is_over = !matches!(completed, Err(Failure::Busy | Failure::Store(StoreError::Unavailable(_))));
                (completed, is_over)
            }
        };
        self.entry.users.metrics.count_sign_in(registered.provider, outcome(&completed));
        let mut response = match completed {
            Ok(session) => self.signed_in(&session, &next),
            Err(failure) => self.failed(failure, provider, next),
        };
        if is_over && let Some(removal) = flow::removal_of(&parameters.state, self.https()) {
            // This fails only for a malformed cookie.
            let _ = response.add_cookie(&removal);
        }
        response
    }

    async fn complete(
        &self,
        flow: &Flow,
        parameters: &Parameters,
        registered: &AuthProvider,
        provider: &Provider,
    ) -> Result<SessionCookie, Failure> {
        if (flow.grant, flow.registration) != (self.auth.grant, registered.registration) {
            return Err(Failure::Withdrawn);
        }
        let code = match (parameters.error.as_deref(), parameters.code.as_deref()) {
            (Some("access_denied"), _) => return Err(Failure::Denied),
            (Some(_), _) => return Err(Failure::ErrorResponse),
            (None, Some(code)) if !code.is_empty() && code.len() <= MAX_CODE_BYTES => code,
            (None, _) => return Err(Failure::Expired),
        };
        let (pool, project) = (self.pool(), self.project);
        pool.access().map_err(Failure::Store)?;
        let deadline = Instant::now() + DEADLINE;
        let permit = self.entry.permits.acquire(registered.provider, project, self.client());
        let permit = permit.await.ok_or(Failure::Busy)?;
        if !self.entry.flows.claim(flow) {
            return Err(Failure::Expired);
        }
        let Flow { redirect_uri, verifier, nonce, .. } = flow;
        let exchange = Exchange { registered, code, redirect_uri, verifier, nonce };
        let exchanged = timeout_at(deadline, provider.exchange(&exchange)).await;
        // A slow database must not exclude other projects from the provider.
        drop(permit.provider);
        let profile = match exchanged {
            Ok(Ok(profile)) => profile,
            Ok(Err(ProviderError::RejectedCode)) => return Err(Failure::Expired),
            Ok(Err(ProviderError::Failed(reason))) => return Err(Failure::Provider(reason)),
            Err(_) => return Err(Failure::Provider("the provider did not respond in time".to_owned())),
        };
        let random = |_| Failure::Store(StoreError::Unavailable("the system has no random bytes"));
        let session = SessionCookie::new().map_err(random)?;
        let previous = SessionCookie::of(self.request, self.https()).map(|cookie| cookie.digest());
        let new = NewSession {
            auth: &self.auth,
            provider: registered.provider,
            registration: registered.registration,
            client_id: &registered.client_id,
            profile: &profile,
            token: session.digest(),
            state: flow.state_digest(),
            previous,
        };
        let signed_in = timeout_at(deadline, pool.sign_in(&new)).await.unwrap_or(Err(StoreError::TIMED_OUT));
        match signed_in {
            Ok(()) => Ok(session),
            Err(StoreError::UsedState) => Err(Failure::Expired),
            Err(StoreError::EndedRegistration) => Err(Failure::Withdrawn),
            Err(error) => Err(Failure::Store(error)),
        }
    }

    fn signed_in(&self, session: &SessionCookie, next: &str) -> HttpResponse {
        let mut response = HttpResponse::SeeOther();
        let cookie = session.to_cookie(self.lifetime(), self.https());
        set_headers(&mut response).insert_header((LOCATION, next)).cookie(cookie).finish()
    }

    fn failed(&self, failure: Failure, provider: &Provider, next: String) -> HttpResponse {
        let (texts, name, retry) = (self.texts, Some(self.name(provider)), self.retry(next));
        match failure {
            Failure::Expired => self.message(StatusCode::BAD_REQUEST, &texts.expired, name, retry),
            Failure::Denied => self.message(StatusCode::FORBIDDEN, &texts.denied, name, retry),
            Failure::Withdrawn => self.message(StatusCode::FORBIDDEN, &texts.withdrawn, name, retry),
            Failure::Busy => self.unavailable(retry),
            Failure::Store(error) => {
                self.record_failure(error);
                self.unavailable(retry)
            }
            Failure::ErrorResponse => self.message(StatusCode::BAD_GATEWAY, &texts.provider_failed, name, retry),
            Failure::Provider(error) => {
                self.entry.users.log_provider_failure(self.project, provider.kind(), &error);
                self.message(StatusCode::BAD_GATEWAY, &texts.provider_failed, name, retry)
            }
        }
    }
}

/// Returns the outcome as a label of metrics.
const fn outcome(completed: &Result<SessionCookie, Failure>) -> &'static str {
    match completed {
        Ok(_) => "ok",
        Err(Failure::Expired) => "expired",
        Err(Failure::Denied) => "denied",
        Err(Failure::Withdrawn) => "withdrawn",
        Err(Failure::ErrorResponse) => "error_response",
        Err(Failure::Provider(_)) => PROVIDER_FAILED,
        Err(Failure::Busy | Failure::Store(_)) => "unavailable",
    }
}
