//! OAuth's code flow with PKCE (RFC 6749 section 4.1, RFC 7636), as the authorization server implements it.

use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::header::{ACCEPT, USER_AGENT};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use url::Url;

use crate::http::{Request, Response};

/// The registered client.
pub(super) const CLIENT_ID: &str = "svc-client";
pub(super) const CLIENT_SECRET: &str = "svc-client-hush";
pub(super) const AUTHORIZE: &str = "/login/oauth/authorize";

/// Codes and tokens with their users.
#[derive(Debug, Default)]
pub(super) struct OAuth {
    minted: usize,
    codes: HashMap<String, Grant>,
    tokens: HashMap<String, Value>,
}

/// The grant of a code.
#[derive(Debug)]
struct Grant {
    user: Value,
    redirect_uri: String,
    challenge: String,
}

/// Rejects an authorization request with an invalid redirect URI, an unknown client or no PKCE challenge.
pub(super) fn check_authorization(request: &Request) -> Result<(), Response> {
    if Url::parse(request.parameter("redirect_uri")).is_err() {
        return Err(Response::new(400, "text/html", "The redirect_uri parameter is missing or invalid."));
    }
    if request.parameter("client_id") != CLIENT_ID || request.parameter("code_challenge_method") != "S256" {
        return Err(Response::new(404, "text/html", "The client_id is unknown, or code_challenge_method is not S256."));
    }
    Ok(())
}

impl OAuth {
    /// Sends the browser back with a code for this user, or with a denial.
    pub fn redirect_back(&mut self, request: &Request, user: Option<Value>) -> Response {
        let redirect_uri = request.parameter("redirect_uri");
        let mut back = Url::parse(redirect_uri).unwrap();
        let state = request.parameter("state");
        let Some(user) = user else {
            back.query_pairs_mut().extend_pairs([("error", "access_denied"), ("state", state)]);
            return Response::redirect(back);
        };
        let code = self.mint("code");
        let challenge = request.parameter("code_challenge").to_owned();
        self.codes.insert(code.clone(), Grant { user, redirect_uri: redirect_uri.to_owned(), challenge });
        back.query_pairs_mut().extend_pairs([("code", code.as_str()), ("state", state)]);
        Response::redirect(back)
    }

    /// Exchanges a code for a token.
    pub fn exchange(&mut self, request: &Request) -> Response {
        let refuse = |error: &str| {
            Response::json(&json!({ "error": error, "error_description": "A description of the error." }))
        };
        if request.header(ACCEPT) != "application/json" {
            return Response::new(200, "application/x-www-form-urlencoded", "error=not_asked_for_json");
        }
        let expected = ["grant_type", "client_id", "client_secret", "code", "redirect_uri", "code_verifier"];
        let parameters: HashSet<&str> = request.parameter_names().collect();
        if parameters != HashSet::from(expected) || request.parameter("grant_type") != "authorization_code" {
            return refuse("unsupported_grant_type");
        }
        if (request.parameter("client_id"), request.parameter("client_secret")) != (CLIENT_ID, CLIENT_SECRET) {
            return refuse("incorrect_client_credentials");
        }
        // A code is valid for only one attempt, whatever its outcome.
        let Some(grant) = self.codes.remove(request.parameter("code")) else {
            return refuse("bad_verification_code");
        };
        if grant.redirect_uri != request.parameter("redirect_uri") {
            return refuse("redirect_uri_mismatch");
        }
        let verifier = digest(&SHA256, request.parameter("code_verifier").as_bytes());
        if URL_SAFE_NO_PAD.encode(verifier) != grant.challenge {
            return refuse("bad_verification_code");
        }
        let token = self.mint("gho");
        self.tokens.insert(token.clone(), grant.user);
        Response::json(&json!({ "access_token": token, "token_type": "bearer", "scope": "read:user" }))
    }

    /// Returns the user of a token.
    pub fn user(&self, authorization: &str, request: &Request) -> Response {
        let user = authorization.strip_prefix("Bearer ").and_then(|token| self.tokens.get(token));
        let refuse = |status, message: &str| {
            Response::new(status, "application/json", json!({ "message": message }).to_string())
        };
        match user {
            Some(user) if request.header(USER_AGENT) == "svc" => Response::json(user),
            Some(_) => refuse(403, "Make sure your request has a User-Agent"),
            None => refuse(401, "Bad credentials"),
        }
    }

    /// Creates a code or a token. They are predictable, so that tests can search output for them.
    fn mint(&mut self, kind: &str) -> String {
        self.minted += 1;
        format!("{kind}_{:08}", self.minted)
    }
}
