//! A code host with GitHub's endpoints: OAuth's authorization code flow with PKCE, and the signed-in user.

mod user;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use hyper::header::USER_AGENT;
use serde_json::Value;
use tokio::task::JoinSet;
use url::Url;

use crate::html::Html;
use crate::http::{self, Request, Response};
use crate::oauth::{Account, Grants, ResponseFault, SignInPage, TokenError, github, redirect_back};
use crate::recent::Recent;
use user::Users;

/// The registered client.
const CLIENT_ID: &str = "svc-client";
const CLIENT_SECRET: &str = "svc-client-hush";
const AUTHORIZE: &str = "/login/oauth/authorize";
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
    _task: JoinSet<()>,
}

impl CodeHostServer {
    /// Starts a code host on a free port.
    ///
    /// # Panics
    /// Panics if no port is free.
    pub async fn start() -> Self {
        let respond = |host: Arc<CodeHost>, request| async move { host.respond(&request).await };
        let (base, host, task) = http::serve_on_free_port(|_| CodeHost::new(false), respond).await;
        Self { base: Url::parse(&base).unwrap(), host, _task: task }
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
    pub fn inject(&self, endpoint: Endpoint, fault: Option<ResponseFault>) {
        let faults = &mut self.host.state().faults;
        match fault {
            Some(fault) => faults.insert(endpoint, fault),
            None => faults.remove(&endpoint),
        };
    }

    /// Returns the method and path of the last requests, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.host.state().requested.iter().cloned().collect()
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
    faults: HashMap<Endpoint, ResponseFault>,
    requested: Recent<String>,
    /// The number of codes and tokens so far.
    minted: usize,
    grants: Grants<Value>,
}

impl CodeHost {
    pub fn new(interactive: bool) -> Self {
        let users = Users::default();
        let state = State {
            browser_user: users.first(),
            users,
            denies: false,
            faults: HashMap::new(),
            requested: Recent::default(),
            minted: 0,
            grants: Grants::default(),
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
        let execute = || self.execute(endpoint, request);
        match fault {
            Some(fault) => fault.respond(execute).await,
            None => Some(execute()),
        }
    }

    fn execute(&self, endpoint: Option<Endpoint>, request: &Request) -> Response {
        let state = &mut *self.state();
        match endpoint {
            Some(Endpoint::Token) => state.exchange(request).unwrap_or_else(|error| github::refuse(request, error)),
            Some(Endpoint::User) => state.user(request),
            None if request.path == AUTHORIZE => self.authorize(state, request),
            None => github::api_error(404, "Not Found"),
        }
    }

    fn authorize(&self, state: &mut State, request: &Request) -> Response {
        if let Err(response) = check_authorization(request) {
            return response;
        }
        if !self.interactive {
            let user = (!state.denies).then(|| state.browser_user.clone());
            return state.redirect_back(request, user);
        }
        match (request.method.as_str(), request.parameter("login")) {
            ("POST", "") => state.redirect_back(request, None),
            ("POST", login) => {
                match state.users.sign_in(login, request.parameter("name"), request.parameter("email")) {
                    Ok(user) => state.redirect_back(request, Some(user)),
                    Err(error) => choose_user(&state.users, request, Some(error)),
                }
            }
            _ => choose_user(&state.users, request, None),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    /// Sends the browser back with a code for this user, or with a denial.
    fn redirect_back(&mut self, request: &Request, user: Option<Value>) -> Response {
        let Some(user) = user else { return redirect_back(request, &[("error", "access_denied")]) };
        let code = self.mint("code");
        self.grants.add_code(&code, request, user);
        redirect_back(request, &[("code", &code)])
    }

    /// Exchanges a code for a token.
    fn exchange(&mut self, request: &Request) -> Result<Response, TokenError> {
        let expected = ["grant_type", "client_id", "client_secret", "code", "redirect_uri", "code_verifier"];
        if request.parameter_names().collect::<HashSet<_>>() != HashSet::from(expected) {
            return Err(TokenError::GrantType);
        }
        if (request.parameter("client_id"), request.parameter("client_secret")) != (CLIENT_ID, CLIENT_SECRET) {
            return Err(TokenError::Client);
        }
        let user = self.grants.redeem(request, request.parameter("client_id"))?;
        let token = self.mint("gho");
        self.grants.add_token(&token, user);
        Ok(github::token(request, &token, "read:user"))
    }

    /// Returns the user of a token.
    fn user(&self, request: &Request) -> Response {
        match self.grants.of_token(request) {
            Some(user) if request.header(USER_AGENT) == "svc" => Response::json(user),
            Some(_) => github::api_error(403, "Make sure your request has a User-Agent"),
            None => github::api_error(401, "Bad credentials"),
        }
    }

    /// Creates a code or a token. They are predictable, so that tests can search output for them.
    fn mint(&mut self, kind: &str) -> String {
        self.minted += 1;
        format!("{kind}_{:08}", self.minted)
    }
}

/// Rejects an authorization request with an invalid redirect URI, an unknown client or no PKCE challenge.
fn check_authorization(request: &Request) -> Result<(), Response> {
    if Url::parse(request.parameter("redirect_uri")).is_err() {
        return Err(Response::new(400, "text/html", "The redirect_uri parameter is missing or invalid."));
    }
    if request.parameter("client_id") != CLIENT_ID || request.parameter("code_challenge_method") != "S256" {
        return Err(Response::new(404, "text/html", "The client_id is unknown, or code_challenge_method is not S256."));
    }
    Ok(())
}

fn choose_user(users: &Users, request: &Request, fault: Option<&str>) -> Response {
    let account = |user: Value| {
        let text = |field: &str| user[field].as_str().unwrap_or_default().to_owned();
        Account { value: text("login"), label: text("login"), detail: format!("{} {}", text("name"), text("email")) }
    };
    let page = SignInPage {
        title: "Sign in to the code host",
        request,
        field: "login",
        accounts: users.all().into_iter().map(account).collect(),
        options: Html::default(),
        other: &[
            ("login", "Login", " required"),
            ("name", "Name (optional)", ""),
            ("email", "Email address (optional)", ""),
        ],
        fault,
    };
    page.respond()
}
