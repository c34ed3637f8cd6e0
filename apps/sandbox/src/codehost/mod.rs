//! A code host with GitHub's endpoints: OAuth's authorization code flow with PKCE, and the signed-in user.

mod oauth;
mod page;
mod user;

use std::collections::HashMap;
use std::future::pending;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};

use hyper::header::AUTHORIZATION;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use url::Url;

use crate::http::{self, Request, Response};
use oauth::{AUTHORIZE, CLIENT_ID, CLIENT_SECRET, OAuth};
use user::Users;

const TOKEN: &str = "/login/oauth/access_token";
const USER: &str = "/user";

/// An endpoint of the code host into which faults can be injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Exchanges a code for a token.
    Token,
    /// Returns the user of a token.
    User,
}

/// A fault of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeHostFault {
    /// An HTML page with status 200.
    Html,
    /// No response.
    Hang,
    /// 50 MB of JSON.
    Large,
    /// This JSON with status 200.
    Json(Value),
    /// A redirect to `/elsewhere` of the same server.
    Redirect,
    /// This status.
    Status(u16),
    /// The connection is closed without a response.
    Close,
}

/// The registration of the OAuth client.
#[derive(Debug, Clone)]
pub struct OAuthClient {
    pub client_id: String,
    pub client_secret: String,
    pub authorize_url: Url,
    pub token_url: Url,
    pub user_url: Url,
}

impl OAuthClient {
    /// Returns the service's settings for this registration.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, String); 5] {
        [
            ("SVC_CODEHOST_CLIENT_ID", self.client_id.clone()),
            ("SVC_CODEHOST_CLIENT_SECRET", self.client_secret.clone()),
            ("SVC_CODEHOST_AUTHORIZE_URL", self.authorize_url.to_string()),
            ("SVC_CODEHOST_TOKEN_URL", self.token_url.to_string()),
            ("SVC_CODEHOST_USER_URL", self.user_url.to_string()),
        ]
    }
}

/// A code host for tests. All browsers are signed in as one user, who grants access without a page.
#[derive(Debug)]
pub struct CodeHostServer {
    base: Url,
    host: Arc<CodeHost>,
    task: AbortHandle,
}

impl CodeHostServer {
    /// Starts a code host on a free port.
    ///
    /// # Panics
    /// Panics if no port is free.
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let base = Url::parse(&http::base(listener.local_addr().unwrap())).unwrap();
        let host = Arc::new(CodeHost::new(false));
        let served = Arc::clone(&host);
        let task = tokio::spawn(http::serve(listener, move |request| {
            let host = Arc::clone(&served);
            async move { host.respond(&request).await }
        }));
        Self { base, host, task: task.abort_handle() }
    }

    /// Returns the registration of the service under test.
    ///
    /// # Panics
    /// Does not panic.
    #[must_use]
    pub fn client(&self) -> OAuthClient {
        let url = |path| self.base.join(path).unwrap();
        OAuthClient {
            client_id: CLIENT_ID.to_owned(),
            client_secret: CLIENT_SECRET.to_owned(),
            authorize_url: url(AUTHORIZE),
            token_url: url(TOKEN),
            user_url: url(USER),
        }
    }

    /// Makes all browsers sign in as this user, an object as the user endpoint returns it.
    pub fn sign_in_as(&self, user: Value) {
        self.host.state().browser_user = user;
    }

    /// Sets whether the user denies access.
    pub fn deny(&self, denies: bool) {
        self.host.state().denies = denies;
    }

    /// Injects a fault into an endpoint, or removes it.
    pub fn inject(&self, endpoint: Endpoint, fault: Option<CodeHostFault>) {
        let faults = &mut self.host.state().faults;
        match fault {
            Some(fault) => faults.insert(endpoint, fault),
            None => faults.remove(&endpoint),
        };
    }

    /// Returns the method and path of every request so far.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.host.state().requested.clone()
    }
}

impl Drop for CodeHostServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The code host behind a listener.
#[derive(Debug)]
pub(crate) struct CodeHost {
    /// Whether a page asks the user to sign in.
    interactive: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    users: Users,
    /// The user of all browsers, if no page asks for one.
    browser_user: Value,
    denies: bool,
    faults: HashMap<Endpoint, CodeHostFault>,
    requested: Vec<String>,
    oauth: OAuth,
}

impl CodeHost {
    pub fn new(interactive: bool) -> Self {
        let users = Users::default();
        let state = State {
            browser_user: users.first(),
            users,
            denies: false,
            faults: HashMap::new(),
            requested: Vec::new(),
            oauth: OAuth::default(),
        };
        Self { interactive, state: Mutex::new(state) }
    }

    /// Returns whether a request is for the code host.
    pub fn serves(path: &str) -> bool {
        [AUTHORIZE, TOKEN, USER].contains(&path)
    }

    /// Returns the users that can be chosen to sign in.
    pub fn users(&self) -> Vec<Value> {
        self.state().users.all()
    }

    /// Responds to a request. Returns `None` to close the connection without a response.
    pub async fn respond(&self, request: &Request) -> Option<Response> {
        let endpoint = match (request.method.as_str(), request.path.as_str()) {
            ("POST", TOKEN) => Some(Endpoint::Token),
            ("GET", USER) => Some(Endpoint::User),
            _ => None,
        };
        let fault = {
            let mut state = self.state();
            state.requested.push(format!("{} {}", request.method, request.path));
            endpoint.and_then(|endpoint| state.faults.get(&endpoint).cloned())
        };
        Some(match fault {
            Some(CodeHostFault::Close) => return None,
            Some(CodeHostFault::Hang) => pending().await,
            Some(CodeHostFault::Html) => Response::new(200, "text/html", "<!DOCTYPE html><title>Unicorn!</title>"),
            Some(CodeHostFault::Large) => {
                Response::new(200, "application/json", [b"\"", &*vec![b'x'; 50_000_000], b"\""].concat())
            }
            Some(CodeHostFault::Json(json)) => Response::json(&json),
            Some(CodeHostFault::Redirect) => Response::redirect("/elsewhere"),
            Some(CodeHostFault::Status(status)) => Response::new(status, "application/json", "{}"),
            None => self.respond_without_fault(endpoint, request),
        })
    }

    fn respond_without_fault(&self, endpoint: Option<Endpoint>, request: &Request) -> Response {
        let state = &mut *self.state();
        match endpoint {
            Some(Endpoint::Token) => state.oauth.exchange(request),
            Some(Endpoint::User) => state.oauth.user(request.header(AUTHORIZATION), request),
            None if request.path == AUTHORIZE => self.authorize(state, request),
            None => Response::new(404, "application/json", r#"{"message":"Not Found","status":"404"}"#),
        }
    }

    fn authorize(&self, state: &mut State, request: &Request) -> Response {
        if let Err(response) = oauth::check_authorization(request) {
            return response;
        }
        if !self.interactive {
            let user = (!state.denies).then(|| state.browser_user.clone());
            return state.oauth.redirect_back(request, user);
        }
        match (request.method.as_str(), request.parameter("login")) {
            ("POST", "") => state.oauth.redirect_back(request, None),
            ("POST", login) => {
                match state.users.sign_in(login, request.parameter("name"), request.parameter("email")) {
                    Ok(user) => state.oauth.redirect_back(request, Some(user)),
                    Err(error) => page::choose_user(&state.users, request, Some(error)),
                }
            }
            _ => page::choose_user(&state.users, request, None),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}
