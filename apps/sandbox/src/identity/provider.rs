//! A provider with its endpoints.

use std::sync::{Mutex, MutexGuard};

use hyper::header::USER_AGENT;
use serde_json::{Map, Value, json};

use super::client::Clients;
use super::fault::{self, IdentityEndpoint, IdentityFault};
use super::id_token::{IdToken, SigningKey};
use super::person::{Person, people};
use super::{IdTokenFault, IdentityProvider, PATH, page};
use crate::http::{Request, Response};
use crate::oauth::{Grants, TokenError, github, redirect_back};
use crate::recent::Recent;
use crate::sessions::random_text;
use crate::values::stable_id;

/// The length of a PKCE challenge with S256 (RFC 7636 section 4.2).
const CHALLENGE_CHARACTERS: usize = 43;

/// A provider.
#[derive(Debug)]
pub(super) struct Provider {
    pub provider: IdentityProvider,
    /// The base URL, which is also the issuer of ID tokens.
    pub issuer: String,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub clients: Clients,
    pub people: Vec<Person>,
    /// The fault of every request.
    pub fault: Option<IdentityFault>,
    pub requested: Recent<String>,
    /// Whether clients must authenticate with HTTP Basic, and not in the body.
    pub requires_basic: bool,
    key: SigningKey,
    grants: Grants<Grant>,
}

/// The sign-in of a person.
#[derive(Debug, Clone)]
struct Grant {
    person: Person,
    client_id: String,
    nonce: String,
    /// The fault of this sign-in.
    fault: Option<IdentityFault>,
}

impl Provider {
    pub fn new(provider: IdentityProvider, base: &str) -> Self {
        let state = State {
            clients: Clients::default(),
            people: people(provider),
            fault: None,
            requested: Recent::default(),
            requires_basic: false,
            key: if provider == IdentityProvider::Messenger { SigningKey::es256() } else { SigningKey::rs256() },
            grants: Grants::default(),
        };
        let issuer = format!("{base}{PATH}/{}", provider.as_str());
        Self { provider, issuer, state: Mutex::new(state) }
    }

    /// Returns the path of a request below the address of this provider.
    pub fn path_of<'a>(&self, request: &'a Request) -> Option<&'a str> {
        let rest = request.path.strip_prefix(PATH)?.strip_prefix('/')?.strip_prefix(self.provider.as_str())?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }

    /// Responds to a request. Returns `None` to close the connection without a response.
    pub async fn respond(&self, request: &Request, path: &str) -> Option<Response> {
        let endpoint = match (request.method.as_str(), path) {
            ("POST", "/token") => Some(IdentityEndpoint::Token),
            ("GET", "/user") => Some(IdentityEndpoint::User),
            ("GET", "/jwks") if self.provider.is_openid() => Some(IdentityEndpoint::Keys),
            _ => None,
        };
        let Some(endpoint) = endpoint else { return Some(self.respond_without_fault(request, path)) };
        let fault = {
            let mut state = self.state();
            state.requested.push(format!("{} {}", request.method, request.path));
            state.fault_at(endpoint, request)
        };
        let execute = || match endpoint {
            IdentityEndpoint::Token => self.exchange(request),
            IdentityEndpoint::User => self.user(request),
            IdentityEndpoint::Keys => Response::json(&json!({ "keys": [self.state().key.to_jwk()] })),
        };
        match fault {
            Some(IdentityFault::Response(_, fault)) => fault.respond(execute).await,
            _ => Some(execute()),
        }
    }

    fn respond_without_fault(&self, request: &Request, path: &str) -> Response {
        match (request.method.as_str(), path) {
            ("GET" | "POST", "/authorize") => self.authorize(request),
            ("POST", "/register") => self.state().clients.respond(self.provider, request),
            ("GET", "/.well-known/openid-configuration") if self.provider.is_openid() => self.metadata(),
            ("GET" | "POST", "") => page::respond(self, request),
            _ => Response::new(404, "application/json", r#"{"error":"not_found"}"#),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Replaces the key that signs ID tokens.
    pub fn renew_key(&self) {
        let state = &mut *self.state();
        state.key = state.key.renew();
    }

    fn metadata(&self) -> Response {
        let url = |path: &str| format!("{}{path}", self.issuer);
        let method = if self.state().requires_basic { "client_secret_basic" } else { "client_secret_post" };
        Response::json(&json!({
            "issuer": self.issuer,
            "authorization_endpoint": url("/authorize"),
            "token_endpoint": url("/token"),
            "userinfo_endpoint": url("/user"),
            "jwks_uri": url("/jwks"),
            "registration_endpoint": url("/register"),
            "scopes_supported": ["openid", "profile", "email"],
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [self.state().key.algorithm()],
            "token_endpoint_auth_methods_supported": [method],
            "code_challenge_methods_supported": ["S256"],
        }))
    }

    fn authorize(&self, request: &Request) -> Response {
        let state = &mut *self.state();
        if !state.clients.allow(request) {
            return page::unknown_client(self.provider, request);
        }
        if let Some(error) = self.check_authorization(request) {
            return redirect_back(request, &[("error", error)]);
        }
        if request.method == "GET" {
            return page::choose_person(self.provider, &state.people, request, None);
        }
        let Ok(fault) = fault::find(request.parameter("fault")) else {
            return page::choose_person(self.provider, &state.people, request, Some("There is no such fault."));
        };
        let fault = fault.or_else(|| state.fault.clone());
        if let Some(IdentityFault::Authorization(error)) = fault {
            return redirect_back(request, &[("error", error), ("error_description", "<b>A text of the provider</b>")]);
        }
        match state.chosen_person(request) {
            Err(error) => page::choose_person(self.provider, &state.people, request, Some(error)),
            Ok(None) => redirect_back(request, &[("error", "access_denied")]),
            Ok(Some(person)) => {
                let (code, parameter) = (random_text(), |name| request.parameter(name).to_owned());
                let grant = Grant { person, client_id: parameter("client_id"), nonce: parameter("nonce"), fault };
                state.grants.add_code(&code, request, grant);
                redirect_back(request, &[("code", &code)])
            }
        }
    }

    /// Returns the error code for an invalid authorization request. Unlike the real providers, all of them require PKCE.
    fn check_authorization(&self, request: &Request) -> Option<&'static str> {
        let is_openid = self.provider.is_openid();
        if request.parameter("response_type") != "code" && (is_openid || !request.parameter("response_type").is_empty())
        {
            return Some("unsupported_response_type");
        }
        let challenge = request.parameter("code_challenge");
        if request.parameter("code_challenge_method") != "S256" || challenge.len() != CHALLENGE_CHARACTERS {
            return Some("invalid_request");
        }
        let has_openid = request.parameter("scope").split(' ').any(|scope| scope == "openid");
        (is_openid && !has_openid).then_some("invalid_scope")
    }

    fn exchange(&self, request: &Request) -> Response {
        let redeemed = self.state().redeem(request);
        match redeemed {
            Ok((token, grant)) if self.provider.is_openid() => self.token_response(&token, &grant),
            Ok((token, _)) => github::token(request, &token, "read:user,user:email"),
            Err(error) if self.provider.is_openid() => refuse(error),
            Err(error) => github::refuse(request, error),
        }
    }

    /// Returns a token response with an ID token (OpenID Connect Core, section 3.1.3.3).
    fn token_response(&self, token: &str, grant: &Grant) -> Response {
        let content = IdToken {
            issuer: &self.issuer,
            subject: &grant.person.subject,
            client_id: &grant.client_id,
            nonce: &grant.nonce,
            fault: grant.id_token_fault(),
        };
        let mut response = Map::new();
        for (name, value) in [("access_token", token), ("token_type", "Bearer"), ("scope", "openid profile email")] {
            response.insert(name.to_owned(), value.into());
        }
        response.insert("expires_in".to_owned(), 3600.into());
        if let Some(id_token) = self.state().key.sign(&content) {
            response.insert("id_token".to_owned(), id_token.into());
        }
        Response::json(&Value::Object(response))
    }

    fn user(&self, request: &Request) -> Response {
        match self.state().grants.of_token(request) {
            None if self.provider.is_openid() => {
                Response { status: 401, ..Response::json(&json!({ "error": "invalid_token" })) }
            }
            None => github::api_error(401, "Bad credentials"),
            Some(_) if request.header(USER_AGENT).is_empty() => {
                github::api_error(403, "Make sure your request has a User-Agent")
            }
            Some(grant) => Response::json(&grant.person.to_json(self.provider)),
        }
    }
}

impl State {
    /// Returns the fault of an endpoint: that of the sign-in to which the request belongs, or that of the provider.
    fn fault_at(&self, endpoint: IdentityEndpoint, request: &Request) -> Option<IdentityFault> {
        let grant = match endpoint {
            IdentityEndpoint::Token => self.grants.of_code(request),
            IdentityEndpoint::User => self.grants.of_token(request),
            IdentityEndpoint::Keys => None,
        };
        let fault = grant.and_then(|grant| grant.fault.as_ref()).or(self.fault.as_ref());
        fault.filter(|fault| matches!(fault, IdentityFault::Response(at, _) if *at == endpoint)).cloned()
    }

    /// Returns the person that a form selects or creates. Returns `None` if the form denies access.
    fn chosen_person(&mut self, request: &Request) -> Result<Option<Person>, &'static str> {
        let (key, login) = (request.parameter("person"), request.parameter("login").trim());
        if !key.is_empty() {
            let found = self.people.iter().find(|person| person.key == key).cloned();
            return found.map(Some).ok_or("There is no such person.");
        }
        if login.is_empty() {
            return Ok(None);
        }
        let mut person = Person::new(login, &stable_id(login).to_string());
        person.name = Some(request.parameter("name").trim().to_owned()).filter(|name| !name.is_empty());
        person.email = Some(request.parameter("email").trim().to_owned()).filter(|email| !email.is_empty());
        person.is_email_verified = person.email.is_some() && !request.parameter("verified").is_empty();
        self.add_person(person.clone());
        Ok(Some(person))
    }

    /// Adds a person, or replaces the one with the same key.
    pub fn add_person(&mut self, person: Person) {
        self.people.retain(|known| known.key != person.key);
        self.people.push(person);
    }

    /// Redeems a code for an access token.
    fn redeem(&mut self, request: &Request) -> Result<(String, Grant), TokenError> {
        let client_id = self.clients.authenticate(request, self.requires_basic)?;
        let grant = self.grants.redeem(request, &client_id)?;
        if grant.fault == Some(IdentityFault::ExpiredCode) {
            return Err(TokenError::Code);
        }
        let token = random_text();
        self.grants.add_token(&token, grant.clone());
        Ok((token, grant))
    }
}

impl Grant {
    fn id_token_fault(&self) -> Option<IdTokenFault> {
        match self.fault {
            Some(IdentityFault::IdToken(fault)) => Some(fault),
            _ => None,
        }
    }
}

/// Returns an error of the token endpoint (RFC 6749 section 5.2).
fn refuse(error: TokenError) -> Response {
    let (status, code) = match error {
        TokenError::GrantType => (400, "unsupported_grant_type"),
        TokenError::Client => (401, "invalid_client"),
        TokenError::Code | TokenError::RedirectUri => (400, "invalid_grant"),
    };
    Response { status, ..Response::json(&json!({ "error": code, "error_description": "A text of the provider." })) }
}
