//! The sign-in of a visitor at a protected site.

use serde_json::json;

use super::{Consent, Login, fault_page};
use crate::http::{Request, Response};

impl Consent {
    /// Redirects a user with access back to the site, with an access code.
    pub(super) async fn authorize_visitor(&self, login: &Login, request: &Request) -> Response {
        let body = json!({ "to": request.parameter("to"), "next": request.parameter("next") });
        match self.api.post("/v1/access/authorize", Some(&login.token), &body).await {
            Ok(response) => Response::redirect(response["redirect"].as_str().unwrap_or_default()),
            Err(error) => fault_page("Open a protected site", login, request, &error.to_string()),
        }
    }
}
