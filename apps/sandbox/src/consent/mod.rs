//! The pages on which a user decides about connected apps and devices, and signs in at protected sites. They replace the
//! dashboard.

mod access;
mod authorize;
mod device;

use serde_json::{Value, json};

use crate::api::Api;
use crate::html::{Html, page};
use crate::http::{Request, Response};
use crate::sessions::Sessions;

/// The paths of the pages that require a sign-in.
const PAGES: [&str; 3] = ["/access/authorize", "/oauth/authorize", "/oauth/device"];

/// The pages, for the API of one service.
#[derive(Debug)]
pub(crate) struct Consent {
    api: Api,
    /// The login session of each browser.
    sessions: Sessions<Login>,
}

/// A user who is signed in.
#[derive(Debug, Clone)]
struct Login {
    subject: String,
    token: String,
}

impl Consent {
    pub fn new(api: Api) -> Self {
        Self { api, sessions: Sessions::new("sandbox_dashboard") }
    }

    pub async fn respond(&self, request: &Request) -> Option<Response> {
        let response = match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/oauth/sign-in") => self.sign_in(request).await,
            ("POST", "/oauth/sign-out") => self.sign_out(request),
            (_, path) if PAGES.contains(&path) => match self.sessions.get(request) {
                None => sign_in_page(&address(request), None),
                Some(login) => match (request.method.as_str(), path) {
                    ("GET", "/access/authorize") => self.authorize_visitor(&login, request).await,
                    ("GET", "/oauth/authorize") => self.authorize_page(&login, request).await,
                    ("POST", "/oauth/authorize") => self.authorize(&login, request).await,
                    ("GET", "/oauth/device") => self.device_page(&login, request).await,
                    ("POST", "/oauth/device") => self.decide(&login, request).await,
                    _ => return None,
                },
            },
            _ => return None,
        };
        Some(response)
    }

    /// Signs in at the service with the development login, and returns to the page.
    async fn sign_in(&self, request: &Request) -> Response {
        let subject = request.parameter("subject").trim().to_owned();
        match self.api.post("/v1/auth/dev/login", None, &json!({ "subject": subject })).await {
            Err(error) => sign_in_page(request.parameter("next"), Some(&error.to_string())),
            Ok(session) => {
                let token = session["token"].as_str().unwrap_or_default().to_owned();
                let cookie = self.sessions.insert(Login { subject, token });
                Response { cookie: Some(cookie), ..Response::redirect(next(request)) }
            }
        }
    }

    fn sign_out(&self, request: &Request) -> Response {
        self.sessions.remove(request);
        Response::redirect(next(request))
    }
}

/// Returns the page to return to. Only the pages that ask for a sign-in are allowed.
fn next(request: &Request) -> String {
    let next = request.parameter("next");
    let is_own =
        PAGES.iter().any(|page| next.strip_prefix(page).is_some_and(|rest| rest.is_empty() || rest.starts_with('?')));
    if is_own { next.to_owned() } else { "/".to_owned() }
}

/// Returns the address of the requested page.
fn address(request: &Request) -> String {
    format!("{}?{}", request.path, request.query)
}

fn sign_in_page(next: &str, fault: Option<&str>) -> Response {
    let mut html = Html::default();
    html.raw("<p>This page takes the place of a dashboard. Sign in with the development login of the service.</p>");
    add_fault(&mut html, fault);
    html.raw("<form method=post action=\"/oauth/sign-in\"><input type=hidden name=next value=\"").text(next);
    html.raw("\"><label>User <input name=subject value=ada autocomplete=off required></label>");
    html.raw("<button>Sign in</button></form>");
    page("Sign in", &html)
}

/// Adds the user of the page, with a form to sign in as another user.
fn add_user(html: &mut Html, login: &Login, request: &Request) {
    html.raw("<form method=post action=\"/oauth/sign-out\"><input type=hidden name=next value=\"");
    html.text(&address(request)).raw("\">Signed in as <strong>").text(&login.subject);
    html.raw("</strong> <button>Use another user</button></form>");
}

fn add_fault(html: &mut Html, fault: Option<&str>) {
    if let Some(fault) = fault {
        html.fault(fault);
    }
}

fn add_list<'a>(html: &mut Html, title: &str, items: impl Iterator<Item = &'a str>) {
    html.raw("<h2>").text(title).raw("</h2><ul>");
    for item in items {
        html.raw("<li><code>").text(item).raw("</code></li>");
    }
    html.raw("</ul>");
}

/// Returns the texts of an array.
fn texts<'a>(value: &'a Value, name: &str) -> Vec<&'a str> {
    value[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns the page of a failure. Its user can be replaced, because the failure may be an ended session.
fn fault_page(title: &str, login: &Login, request: &Request, fault: &str) -> Response {
    let mut html = Html::default();
    add_user(&mut html, login, request);
    html.fault(fault);
    page(title, &html)
}
