//! The sign-in page, and the begin of a flow.

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderValue, LOCATION};
use actix_web::{HttpRequest, HttpResponse};
use protocol::AuthProvider;

use super::entry::{Visit, login_href};
use super::flow::Flow;
use super::page::{Action, set_headers};
use super::provider::Provider;

/// The header in which a browser states the mode of a request (Fetch Metadata).
const SEC_FETCH_MODE: &str = "sec-fetch-mode";
/// The header in which a browser states the use of a response (Fetch Metadata).
const SEC_FETCH_DEST: &str = "sec-fetch-dest";
/// The header in which a browser states that it fetches a response in advance (Fetch, section "`Sec-Purpose`").
const SEC_PURPOSE: &str = "sec-purpose";

impl Visit<'_> {
    /// Shows the providers. With one provider, continues directly.
    pub(super) fn login(&self) -> HttpResponse {
        let providers: Vec<_> = self.providers().collect();
        match providers.as_slice() {
            [] => self.message(StatusCode::NOT_FOUND, &self.texts.not_ready, None, Vec::new()),
            [(registered, provider)] => self.begin(registered, provider),
            _ if self.pool().access().is_err() => self.unavailable(self.retry(self.next())),
            providers => {
                let next = self.next();
                let actions = providers.iter().map(|(registered, provider)| Action {
                    label: self.texts.continue_with.replace("{name}", self.name(provider)),
                    href: login_href(&format!("/{}", registered.provider.as_str()), &next),
                });
                let site = self.auth.brand.name.as_deref().unwrap_or(self.host);
                let title = self.texts.sign_in_to.replace("{name}", site);
                self.page(title, self.texts.choose.to_owned(), actions.collect()).respond(StatusCode::OK)
            }
        }
    }

    /// Begins a flow: redirects the visitor to the provider. Only a navigation can return from the provider, so other
    /// requests of a page must not add a flow to the browser's cookies. After a failed prefetch, the browser navigates as
    /// if there had been none.
    pub(super) fn begin(&self, registered: &AuthProvider, provider: &Provider) -> HttpResponse {
        let next = self.next();
        if is_prefetch(self.request) {
            return self.unavailable(self.retry(next));
        }
        if !is_navigation(self.request) {
            return self.message(StatusCode::BAD_REQUEST, &self.texts.wrong_request, None, self.retry(next));
        }
        if self.pool().access().is_err() {
            return self.unavailable(self.retry(next));
        }
        let Some(redirect_uri) = self.redirect_uri(registered.provider) else {
            return self.unavailable(self.retry(next));
        };
        let flow = Flow::new(registered.provider, (self.auth.grant, registered.registration), redirect_uri, &next);
        let cookies = flow.and_then(|flow| {
            let cookies = self.entry.flows.cookies(self.request, self.project, &flow, self.https())?;
            Ok((flow, cookies))
        });
        let (flow, cookies) = match cookies {
            Ok(begun) => begun,
            Err(error) => {
                tracing::error!(project = self.project, %error, "failed to begin a sign-in");
                return self.unavailable(self.retry(next));
            }
        };
        let to = provider.authorization_url(
            &registered.client_id,
            &flow.redirect_uri,
            &flow.state,
            &flow.challenge(),
            &flow.nonce,
        );
        let mut response = HttpResponse::SeeOther();
        set_headers(&mut response).insert_header((LOCATION, to.as_str()));
        for cookie in cookies {
            response.cookie(cookie);
        }
        response.finish()
    }
}

/// Returns whether a request is a navigation of a tab, as far as the browser states it: old browsers send no headers.
fn is_navigation(request: &HttpRequest) -> bool {
    let header = |name| request.headers().get(name).map(HeaderValue::as_bytes);
    let is_dest =
        |allowed: &[&str]| header(SEC_FETCH_DEST).is_none_or(|it| allowed.iter().any(|dest| dest.as_bytes() == it));
    match header(SEC_FETCH_MODE) {
        None | Some(b"navigate") => is_dest(&["document"]),
        // A service worker that fetches a navigation again, whose destination may be lost.
        Some(b"same-origin") => is_dest(&["document", "empty"]),
        Some(_) => false,
    }
}

/// Returns whether the browser fetches the page in advance. The value can have parameters.
fn is_prefetch(request: &HttpRequest) -> bool {
    let purpose = request.headers().get(SEC_PURPOSE).and_then(|value| value.to_str().ok());
    purpose.and_then(|value| value.split(';').next()).is_some_and(|purpose| purpose.trim() == "prefetch")
}
