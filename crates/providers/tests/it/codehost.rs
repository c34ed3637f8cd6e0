//! Sign-in at the code host.

use std::collections::HashMap;
use std::time::Duration;

use kernel::Secret;
use providers::{CodeHost, CodeHostConfig, CodeHostError, Limits, OutboundError, Person};
use sandbox::{CodeHostServer, Endpoint, OAuthClient, ResponseFault};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use url::Url;

const CALLBACK: &str = "http://127.0.0.1:9/auth/callback?via=codehost";
/// The verifier of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// Returns the settings with which the adapter uses this code host.
fn config(host: &CodeHostServer) -> CodeHostConfig {
    let OAuthClient { client_id, client_secret, authorize_url, token_url, user_url } = host.client();
    CodeHostConfig { client_id, client_secret: Secret::new(client_secret), authorize_url, token_url, user_url }
}

/// Opens a sign-in address like a browser. Returns the redirect of the code host.
async fn visit(url: &str) -> Url {
    let url = Url::parse(url).unwrap();
    let address = (url.host_str().unwrap(), url.port().unwrap());
    let mut stream = TcpStream::connect(address).await.unwrap();
    let target = &url[url::Position::BeforePath..];
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: codehost\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let location = answer.lines().find_map(|line| line.strip_prefix("Location: "));
    Url::parse(location.unwrap_or_else(|| panic!("no redirect: {answer}"))).unwrap()
}

fn parameters(url: &Url) -> HashMap<String, String> {
    url.query_pairs().into_owned().collect()
}

async fn code(server: &CodeHostServer) -> String {
    let codehost = CodeHost::new(config(server)).unwrap();
    parameters(&visit(&codehost.authorize_url(CALLBACK, "state", CHALLENGE)).await)["code"].clone()
}

async fn identify(server: &CodeHostServer) -> Result<Person, CodeHostError> {
    let code = code(server).await;
    let codehost = CodeHost::new(config(server)).unwrap();
    // Run in a task that can move between threads, like in a server.
    tokio::spawn(async move { codehost.identify(&code, CALLBACK, VERIFIER).await }).await.unwrap()
}

#[tokio::test]
async fn sign_in_identifies_the_user() {
    let server = CodeHostServer::start().await;
    let codehost = CodeHost::new(config(&server)).unwrap();
    let back = visit(&codehost.authorize_url(CALLBACK, "a b&c", CHALLENGE)).await;
    assert!(back.as_str().starts_with(CALLBACK));
    let parameters = parameters(&back);
    assert_eq!(parameters["state"], "a b&c");
    let ada = Person {
        subject: "1815".to_owned(),
        login: "ada".to_owned(),
        name: "Ada Lovelace".to_owned(),
        email: Some("ada@code.example".to_owned()),
        avatar_url: Some("https://avatars.code.example/u/1815?v=4".to_owned()),
    };
    assert_eq!(codehost.identify(&parameters["code"], CALLBACK, VERIFIER).await, Ok(ada));
    server.sign_in_as(json!({ "id": "u_2", "login": "grace", "name": null, "email": null }));
    let grace = identify(&server).await.unwrap();
    assert_eq!((grace.subject.as_str(), grace.name.as_str()), ("u_2", "grace"));
    assert_eq!((grace.email, grace.avatar_url), (None, None));
}

#[tokio::test]
async fn authorize_url_preserves_the_query_and_adds_parameters() {
    let mut config = config(&CodeHostServer::start().await);
    config.authorize_url = Url::parse("https://code.example/authorize?prompt=select_account#top").unwrap();
    let url = CodeHost::new(config).unwrap().authorize_url(CALLBACK, "state", CHALLENGE);
    let rest = url.strip_prefix("https://code.example/authorize?prompt=select_account&").unwrap();
    assert_eq!(
        rest,
        "client_id=svc-client&redirect_uri=http%3A%2F%2F127.0.0.1%3A9%2Fauth%2Fcallback%3Fvia%3Dcodehost\
         &response_type=code&scope=read%3Auser&state=state\
         &code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256"
    );
}

#[tokio::test]
async fn declined_sign_in_redirects_with_an_error() {
    let server = CodeHostServer::start().await;
    server.deny(true);
    let codehost = CodeHost::new(config(&server)).unwrap();
    let parameters = parameters(&visit(&codehost.authorize_url(CALLBACK, "state", CHALLENGE)).await);
    assert_eq!((parameters["error"].as_str(), parameters["state"].as_str()), ("access_denied", "state"));
    assert!(!parameters.contains_key("code"));
}

#[tokio::test]
async fn invalid_code_is_rejected() {
    let server = CodeHostServer::start().await;
    let codehost = CodeHost::new(config(&server)).unwrap();
    let refused = |error: &str| Err(CodeHostError::Refused(error.to_owned()));
    let bad = || refused("bad_verification_code");
    assert_eq!(codehost.identify("made-up", CALLBACK, VERIFIER).await, bad());
    assert_eq!(codehost.identify("", CALLBACK, VERIFIER).await, bad());
    let used = code(&server).await;
    codehost.identify(&used, CALLBACK, VERIFIER).await.unwrap();
    assert_eq!(codehost.identify(&used, CALLBACK, VERIFIER).await, bad());
    assert_eq!(codehost.identify(&code(&server).await, CALLBACK, CHALLENGE).await, bad());
    let elsewhere = codehost.identify(&code(&server).await, "http://127.0.0.1:9/", VERIFIER).await;
    assert_eq!(elsewhere, refused("redirect_uri_mismatch"));
    let mut wrong_config = config(&server);
    wrong_config.client_secret = Secret::new("wrong".to_owned());
    let refusal = CodeHost::new(wrong_config).unwrap().identify(&code(&server).await, CALLBACK, VERIFIER).await;
    assert_eq!(refusal, refused("incorrect_client_credentials"));
}

#[tokio::test]
async fn token_endpoint_failures_are_reported() {
    let server = CodeHostServer::start().await;
    let unavailable = CodeHostError::Unavailable;
    let long = "x".repeat(5000);
    let token = |token: Value| ResponseFault::Json(json!({ "access_token": token, "token_type": "bearer" }));
    let invalid_response = |field| CodeHostError::InvalidResponse(field);
    for (failure, error) in [
        (ResponseFault::Html, unavailable(OutboundError::NotJson)),
        (ResponseFault::Large, unavailable(OutboundError::TooLarge)),
        (ResponseFault::Redirect, unavailable(OutboundError::Redirect(302))),
        (ResponseFault::Status(500), unavailable(OutboundError::Status(500))),
        (ResponseFault::Status(401), unavailable(OutboundError::Status(401))),
        (ResponseFault::Status(400), CodeHostError::Refused("400".to_owned())),
        (ResponseFault::Json(json!([1])), unavailable(OutboundError::NotJson)),
        (ResponseFault::Json(json!({})), invalid_response("token_type")),
        (ResponseFault::Json(json!({ "access_token": "x", "token_type": "mac" })), invalid_response("token_type")),
        (token(json!(17)), invalid_response("access_token")),
        (token(json!("")), invalid_response("access_token")),
        (token(json!("a\r\nHost: b")), invalid_response("access_token")),
        (token(json!(long)), invalid_response("access_token")),
        (ResponseFault::Json(json!({ "error": "invalid_grant" })), CodeHostError::Refused("invalid_grant".to_owned())),
        (
            ResponseFault::Json(json!({ "error": "you sent svc-client-hush" })),
            CodeHostError::Refused("unknown error code".to_owned()),
        ),
    ] {
        server.inject(Endpoint::Token, Some(failure));
        assert_eq!(identify(&server).await, Err(error));
    }
    server.inject(Endpoint::Token, Some(ResponseFault::Close));
    assert!(matches!(identify(&server).await, Err(CodeHostError::Unavailable(OutboundError::Unreachable(_)))));
    assert!(!server.requests().iter().any(|request| request.ends_with("elsewhere") || request == "GET /user"));
    server.inject(Endpoint::Token, None);
    identify(&server).await.unwrap();
}

#[tokio::test]
async fn user_endpoint_failures_are_reported() {
    let server = CodeHostServer::start().await;
    let unavailable = CodeHostError::Unavailable;
    for (failure, error) in [
        (ResponseFault::Html, unavailable(OutboundError::NotJson)),
        (ResponseFault::Large, unavailable(OutboundError::TooLarge)),
        (ResponseFault::Redirect, unavailable(OutboundError::Redirect(302))),
        (ResponseFault::Status(401), unavailable(OutboundError::Status(401))),
        (ResponseFault::Status(503), unavailable(OutboundError::Status(503))),
        (ResponseFault::Json(json!("ada")), unavailable(OutboundError::NotJson)),
        (ResponseFault::Json(json!({ "message": "Not Found" })), CodeHostError::InvalidResponse("id")),
        (ResponseFault::Json(json!({ "id": { "a": 1 }, "login": "ada" })), CodeHostError::InvalidResponse("id")),
        (ResponseFault::Json(json!({ "id": 1, "login": true })), CodeHostError::InvalidResponse("login")),
    ] {
        server.inject(Endpoint::User, Some(failure));
        assert_eq!(identify(&server).await, Err(error));
    }
    assert!(!server.requests().iter().any(|request| request.ends_with("elsewhere")));
}

#[tokio::test]
async fn silent_endpoint_times_out() {
    let server = CodeHostServer::start().await;
    let limits = Limits { timeout: Duration::from_millis(200), ..Limits::default() };
    let codehost = CodeHost::with_limits(config(&server), limits).unwrap();
    for endpoint in [Endpoint::User, Endpoint::Token] {
        server.inject(endpoint, Some(ResponseFault::Hang));
        let identified = codehost.identify(&code(&server).await, CALLBACK, VERIFIER).await;
        assert_eq!(identified, Err(CodeHostError::Unavailable(OutboundError::Timeout)));
    }
}

#[tokio::test]
async fn errors_and_debug_contain_no_secret() {
    let server = CodeHostServer::start().await;
    let codehost = CodeHost::new(config(&server)).unwrap();
    let mut shown = format!("{codehost:?} {:?}", config(&server));
    for failure in [ResponseFault::Html, ResponseFault::Close, ResponseFault::Redirect, ResponseFault::Status(500)] {
        server.inject(Endpoint::User, Some(failure));
        let error = codehost.identify(&code(&server).await, CALLBACK, VERIFIER).await.unwrap_err();
        shown.push_str(&format!("{error} {error:?}"));
    }
    for secret in ["hush", "gho_", "code_0", VERIFIER] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
}
