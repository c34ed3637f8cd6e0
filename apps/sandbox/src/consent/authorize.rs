//! The decision about an authorization request.

use serde_json::{Map, Value, json};

use super::{Consent, Login, add_list, add_user, fault_page, texts};
use crate::html::{Html, page};
use crate::http::{Request, Response};

/// The parameters of an authorization request that the API accepts.
const PARAMETERS: [&str; 8] = [
    "response_type",
    "client_id",
    "redirect_uri",
    "code_challenge",
    "code_challenge_method",
    "scope",
    "state",
    "resource",
];

impl Consent {
    pub(super) async fn authorize_page(&self, login: &Login, request: &Request) -> Response {
        let client_id = request.parameter("client_id");
        // An id contains only characters that need no escape in a path. Any other text is not the id of a client.
        let is_id = !client_id.is_empty() && client_id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let found = match is_id {
            true => self.api.get(&format!("/v1/oauth/clients/{client_id}"), Some(&login.token)).await,
            false => {
                let fault = "The request does not name an app (client_id).";
                return fault_page("Connect an app", login, request, fault);
            }
        };
        let client = match found {
            Ok(client) => client,
            Err(error) => return fault_page("Connect an app", login, request, &error.to_string()),
        };
        let mut html = Html::default();
        add_user(&mut html, login, request);
        html.raw("<p><strong>").text(client["name"].as_str().unwrap_or_default());
        html.raw("</strong> asks for access to your account.</p>");
        let requested: Vec<&str> = request.parameter("scope").split(' ').filter(|scope| !scope.is_empty()).collect();
        let scopes = if requested.is_empty() { texts(&client, "scopes") } else { requested };
        add_list(&mut html, "It may", scopes.into_iter());
        add_list(&mut html, "You return to", texts(&client, "redirectHosts").into_iter());
        html.raw("<form method=post action=\"/oauth/authorize?").text(&request.query);
        html.raw("\"><button name=decision value=approve>Approve</button> ");
        html.raw("<button name=decision value=deny>Deny</button></form>");
        page("Connect an app", &html)
    }

    pub(super) async fn authorize(&self, login: &Login, request: &Request) -> Response {
        let mut body: Map<String, Value> = PARAMETERS
            .into_iter()
            .filter(|name| !request.parameter(name).is_empty())
            .map(|name| (name.to_owned(), json!(request.parameter(name))))
            .collect();
        body.insert("approve".to_owned(), json!(request.parameter("decision") == "approve"));
        match self.api.post("/v1/oauth/authorize", Some(&login.token), &Value::Object(body)).await {
            Ok(response) => Response::redirect(response["redirect"].as_str().unwrap_or_default()),
            Err(error) => fault_page("Connect an app", login, request, &error.to_string()),
        }
    }
}
