//! A code host with GitHub's shapes.

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::Secret;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use url::Url;

use super::http::{Answer, Request};
use crate::codehost::CodeHostConfig;

/// A page of the code host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Page {
    /// Where a code becomes a token.
    Token,
    /// Where a token tells its user.
    User,
}

/// How a page misbehaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// A page for people, with 200.
    Html,
    /// No answer, ever.
    Hang,
    /// 50 MB of JSON.
    Large,
    /// This JSON, with 200.
    Json(Value),
    /// A redirect to `/elsewhere` of this same server.
    Redirect,
    /// This status.
    Status(u16),
    /// The connection ends before an answer.
    Close,
}

/// A code host. It knows one client and, to begin with, one user, whom every browser belongs to.
#[derive(Debug)]
pub struct CodeHostServer {
    url: Url,
    state: Arc<Mutex<State>>,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct State {
    user: Value,
    denies: bool,
    failures: HashMap<Page, Failure>,
    minted: usize,
    codes: HashMap<String, Granted>,
    tokens: HashMap<String, Value>,
    requested: Vec<String>,
    /// The registration, in the parts that a request repeats.
    client: (String, String),
}

#[derive(Debug)]
struct Granted {
    user: Value,
    redirect_uri: String,
    challenge: String,
}

impl CodeHostServer {
    /// Starts one on a port of its own.
    ///
    /// # Panics
    /// When there is no port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let user = json!({
            "login": "ada", "id": 1815, "name": "Ada Lovelace", "email": "ada@code.example",
            "avatar_url": "https://avatars.code.example/u/1815?v=4", "type": "User", "site_admin": false,
        });
        let client = ("svc-client".to_owned(), "svc-client-hush".to_owned());
        let state = Arc::new(Mutex::new(State { user, client, ..State::default() }));
        let served = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&served)));
            }
        });
        Self { url, state, task: task.abort_handle() }
    }

    /// How a client of ours is to be configured.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn config(&self) -> CodeHostConfig {
        let page = |path| self.url.join(path).unwrap();
        let (id, secret) = self.state().client.clone();
        CodeHostConfig {
            client_id: id,
            client_secret: Secret::new(secret),
            authorize_url: page("login/oauth/authorize"),
            token_url: page("login/oauth/access_token"),
            user_url: page("user"),
        }
    }

    /// From now on the browsers belong to this user, in the user endpoint's own shape.
    pub fn sign_in_as(&self, user: Value) {
        self.state().user = user;
    }

    /// Whether the user says no.
    pub fn deny(&self, denies: bool) {
        self.state().denies = denies;
    }

    /// From now on a page fails, or works again.
    pub fn fail(&self, page: Page, failure: Option<Failure>) {
        let mut state = self.state();
        match failure {
            Some(failure) => state.failures.insert(page, failure),
            None => state.failures.remove(&page),
        };
    }

    /// Method and path of every request so far.
    #[must_use]
    pub fn requested(&self) -> Vec<String> {
        self.state().requested.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Drop for CodeHostServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let Ok(Some(request)) = Request::read(&mut stream).await else { return };
    let page = match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/login/oauth/access_token") => Some(Page::Token),
        ("GET", "/user") => Some(Page::User),
        _ => None,
    };
    let failure = {
        let mut state = state.lock().unwrap();
        state.requested.push(format!("{} {}", request.method, request.path));
        page.and_then(|page| state.failures.get(&page).cloned())
    };
    let answer = match failure {
        Some(Failure::Close) => return,
        Some(Failure::Hang) => pending().await,
        Some(Failure::Html) => Answer::text(200, "text/html", "<!DOCTYPE html><title>Unicorn!</title>"),
        Some(Failure::Large) => {
            Answer { body: [b"\"", vec![b'x'; 50_000_000].as_slice(), b"\""].concat(), ..Answer::json(&Value::Null) }
        }
        Some(Failure::Json(json)) => Answer::json(&json),
        Some(Failure::Redirect) => Answer::redirect("/elsewhere".to_owned()),
        Some(Failure::Status(status)) => Answer::text(status, "application/json", "{}"),
        None => state.lock().unwrap().answer(page, &request),
    };
    // A client that has seen enough is gone by now.
    let _ = answer.write(&mut stream).await;
}

impl State {
    fn answer(&mut self, page: Option<Page>, request: &Request) -> Answer {
        match page {
            Some(Page::Token) => self.token(request),
            Some(Page::User) => self.user(request),
            None if request.path == "/login/oauth/authorize" => self.authorize(request),
            None => Answer::text(404, "application/json", r#"{"message":"Not Found","status":"404"}"#),
        }
    }

    fn authorize(&mut self, request: &Request) -> Answer {
        let Ok(mut back) = Url::parse(request.parameter("redirect_uri")) else {
            return Answer::text(400, "text/html", "no redirect_uri");
        };
        let challenge = request.parameter("code_challenge");
        if request.parameter("client_id") != self.client.0 || request.parameter("code_challenge_method") != "S256" {
            return Answer::text(404, "text/html", "no such client, or no challenge");
        }
        let state = request.parameter("state");
        if self.denies {
            back.query_pairs_mut().extend_pairs([("error", "access_denied"), ("state", state)]);
            return Answer::redirect(back.into());
        }
        let code = self.mint("code");
        let redirect_uri = request.parameter("redirect_uri").to_owned();
        let granted = Granted { user: self.user.clone(), redirect_uri, challenge: challenge.to_owned() };
        self.codes.insert(code.clone(), granted);
        back.query_pairs_mut().extend_pairs([("code", code.as_str()), ("state", state)]);
        Answer::redirect(back.into())
    }

    fn token(&mut self, request: &Request) -> Answer {
        let refused = |error: &str| Answer::json(&json!({ "error": error, "error_description": "In many words." }));
        if request.headers.get("accept").is_none_or(|accept| accept != "application/json") {
            return Answer::text(200, "application/x-www-form-urlencoded", "error=not_asked_for_json");
        }
        let fields: HashSet<&str> = request.parameters.keys().map(String::as_str).collect();
        let expected = ["grant_type", "client_id", "client_secret", "code", "redirect_uri", "code_verifier"];
        if fields != HashSet::from(expected) || request.parameter("grant_type") != "authorization_code" {
            return refused("unsupported_grant_type");
        }
        if (request.parameter("client_id"), request.parameter("client_secret")) != (&self.client.0, &self.client.1) {
            return refused("incorrect_client_credentials");
        }
        // Taken out whatever comes: a code is good for one attempt.
        let Some(granted) = self.codes.remove(request.parameter("code")) else {
            return refused("bad_verification_code");
        };
        if granted.redirect_uri != request.parameter("redirect_uri") {
            return refused("redirect_uri_mismatch");
        }
        let verifier = digest(&SHA256, request.parameter("code_verifier").as_bytes());
        if URL_SAFE_NO_PAD.encode(verifier) != granted.challenge {
            return refused("bad_verification_code");
        }
        let token = self.mint("gho");
        self.tokens.insert(token.clone(), granted.user);
        Answer::json(&json!({ "access_token": token, "token_type": "bearer", "scope": "read:user" }))
    }

    fn user(&self, request: &Request) -> Answer {
        let token = request.headers.get("authorization").and_then(|header| header.strip_prefix("Bearer "));
        match token.and_then(|token| self.tokens.get(token)) {
            Some(user) if request.headers.get("user-agent").is_some_and(|agent| agent == "svc") => Answer::json(user),
            Some(_) => {
                Answer::text(403, "application/json", r#"{"message":"Make sure your request has a User-Agent"}"#)
            }
            None => Answer::text(401, "application/json", r#"{"message":"Bad credentials","status":"401"}"#),
        }
    }

    /// Not secret, so that a test can search what must not show it.
    fn mint(&mut self, kind: &str) -> String {
        self.minted += 1;
        format!("{kind}_{:08}", self.minted)
    }
}
