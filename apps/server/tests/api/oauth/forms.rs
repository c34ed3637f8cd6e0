//! The form endpoints: bodies, client authentication and error bodies (RFC 6749 sections 2.3, 3.2 and 5.2).

use reqwest::Method;
use serde_json::json;

use super::kit::{Authentication, Client, Tokens, basic, expect_oauth_error, form, post_form, public, register};
use crate::support::{ApiResponse, App};

const ENDPOINTS: [&str; 3] = ["/oauth/token", "/oauth/revoke", "/oauth/device"];

async fn post(app: &App, path: &str, content_type: &str, body: &[u8]) -> ApiResponse {
    let send = |request: reqwest::RequestBuilder| request.header("content-type", content_type).body(body.to_vec());
    app.anonymous().send(Method::POST, path, send).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failure_has_an_oauth_body() {
    let app = App::start().await;
    let form_type = "application/x-www-form-urlencoded";
    for path in ENDPOINTS {
        for content_type in ["application/json", "text/plain", "multipart/form-data", "application/xml"] {
            expect_oauth_error(&post(&app, path, content_type, b"{}").await, 415, "invalid_request");
        }
        let large = format!("token={}", "a".repeat(70_000));
        expect_oauth_error(&post(&app, path, form_type, large.as_bytes()).await, 413, "invalid_request");
        for malformed in [&b"token=%zz"[..], b"token=%ff", b"token=\xff", b"token=%00", b"token=%"] {
            expect_oauth_error(&post(&app, path, form_type, malformed).await, 400, "invalid_request");
        }
        for empty in ["", "&", "=", "token", "token=", "unknown=1"] {
            expect_oauth_error(&post(&app, path, form_type, empty.as_bytes()).await, 400, "invalid_request");
        }
        for method in [Method::GET, Method::PUT, Method::PATCH, Method::DELETE] {
            let response = app.anonymous().send(method, path, |request| request).await;
            expect_oauth_error(&response, 405, "invalid_request");
            assert_eq!(response.header("allow"), "POST", "{path}");
        }
        let head = app.anonymous().send_unchecked(Method::HEAD, path, |request| request).await;
        assert_eq!((head.status, head.bytes.len()), (405, 0), "{path}");
    }
    for path in ["/oauth", "/oauth/", "/oauth/nothing", "/oauth/token/", "/oauth/token/x", "/oauth/introspect"] {
        let response = post(&app, path, form_type, b"a=b").await;
        expect_oauth_error(&response, 404, "invalid_request");
    }
}

/// Registers a confidential client of the code flow and the device flow.
async fn confidential(app: &App, authentication: Authentication) -> Client {
    let mut new = public();
    (new.confidential, new.device) = (true, true);
    Client { authentication, ..register(app, new).await }
}

#[tokio::test(flavor = "multi_thread")]
async fn charset_unknown_and_empty_parameters_are_accepted() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let code = client.code(&ada).await;
    let unknown = [("audience", "x"), ("client_secret", ""), ("scope", ""), ("resource", ""), ("", "x")];
    Tokens::of(&client.exchange_with(&code, &unknown).await);
    for content_type in ["application/x-www-form-urlencoded;charset=UTF-8", "Application/X-WWW-Form-URLEncoded"] {
        let code = client.code(&ada).await;
        let body = form(&[
            ("grant_type", "authorization_code"),
            ("code", &code),
            ("redirect_uri", &client.redirect_uri),
            ("code_verifier", super::kit::VERIFIER),
            ("client_id", &client.id),
        ]);
        Tokens::of(&post(&app, "/oauth/token", content_type, body.as_bytes()).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_parameters_are_rejected_and_consume_nothing() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let code = client.code(&ada).await;
    for repeated in ["grant_type", "code", "redirect_uri", "code_verifier", "client_id", "scope", "unknown"] {
        let values: &[_] = &[("scope", "deploy"), ("unknown", "1"), (repeated, "x")];
        expect_oauth_error(
            &client.exchange_with(&code, &[values, &[(repeated, "y")]].concat()).await,
            400,
            "invalid_request",
        );
    }
    // A repeated parameter is rejected even if the values are equal or empty.
    for value in ["deploy", ""] {
        let twice = [("scope", value), ("scope", value)];
        expect_oauth_error(&client.exchange_with(&code, &twice).await, 400, "invalid_request");
    }
    let tokens = Tokens::of(&client.exchange(&code).await);
    let twice = [("token", tokens.refresh.as_str()), ("token", &tokens.refresh)];
    expect_oauth_error(&client.post("/oauth/revoke", &twice).await, 400, "invalid_request");
    Tokens::of(&client.refresh(&tokens.refresh).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn query_parameters_are_not_read() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let code = client.code(&ada).await;
    let query = form(&[
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", &client.redirect_uri),
        ("code_verifier", super::kit::VERIFIER),
        ("client_id", &client.id),
    ]);
    let send = async |body: String| post_form(&app.anonymous(), &format!("/oauth/token?{query}"), body, None).await;
    expect_oauth_error(&send(String::new()).await, 400, "invalid_request");
    let body = form(&[("client_id", &client.id), ("grant_type", "authorization_code")]);
    expect_oauth_error(&send(body).await, 400, "invalid_request");
    // A query in addition to a complete body has no effect.
    let body = format!("{query}&resource=");
    Tokens::of(&post_form(&app.anonymous(), "/oauth/token?grant_type=password&code=x", body, None).await);
    let tokens = client.sign_in(&ada).await;
    let revoke = format!("/oauth/revoke?token={}", tokens.refresh);
    expect_oauth_error(&client.post(&revoke, &[]).await, 400, "invalid_request");
    app.with_token(&tokens.access).get("/v1/me").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn confidential_clients_authenticate_with_either_method() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    for authentication in [Authentication::Basic, Authentication::Post] {
        let client = confidential(&app, authentication).await;
        let tokens = client.sign_in(&ada).await;
        let tokens = Tokens::of(&client.refresh(&tokens.refresh).await);
        client.post("/oauth/device", &[]).await.expect(200);
        assert_eq!(client.revoke(&tokens.refresh).await.expect(200), &json!(null));
    }
    // Basic together with an equal `client_id` in the body counts as one method (RFC 6749 section 3.2.1).
    let client = confidential(&app, Authentication::Basic).await;
    let code = client.code(&ada).await;
    Tokens::of(&client.exchange_with(&code, &[("client_id", &client.id)]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_authentication_is_invalid_client() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = confidential(&app, Authentication::Post).await;
    let public_client = register(&app, public()).await;
    let (id, secret) = (client.id.as_str(), client.secret.as_deref().unwrap());
    let code = client.code(&ada).await;
    let unknown = "app_01h455vb4pex5vsknk084sn02q";
    let other = confidential(&app, Authentication::Post).await;
    let send = async |path: &str, parameters: &[(&str, &str)], authorization: Option<&str>| {
        let exchange = [
            ("grant_type", "authorization_code"),
            ("code", code.as_str()),
            ("redirect_uri", client.redirect_uri.as_str()),
            ("code_verifier", super::kit::VERIFIER),
            ("token", "x"),
        ];
        post_form(&app.anonymous(), path, form(&[&exchange, parameters].concat()), authorization).await
    };
    for path in ENDPOINTS {
        let longer = format!("{secret}A");
        for parameters in [
            &[("client_id", id)][..],
            &[("client_id", id), ("client_secret", "wrong")],
            &[("client_id", id), ("client_secret", longer.as_str())],
            &[("client_id", id), ("client_secret", &secret[..secret.len() - 1])],
            &[("client_id", id), ("client_secret", other.secret.as_deref().unwrap())],
            &[("client_id", unknown), ("client_secret", secret)],
            &[("client_id", unknown)],
            &[("client_id", "nonsense")],
            &[("client_id", "usr_01h455vb4pex5vsknk084sn02q")],
            // A public client must not send a secret.
            &[("client_id", public_client.id.as_str()), ("client_secret", secret)],
        ] {
            let response = send(path, parameters, None).await;
            expect_oauth_error(&response, 400, "invalid_client");
            assert_eq!(response.header("www-authenticate"), "", "{path}");
        }
        let malformed = ["Basic", "Basic !!!", "Basic YQ==", "Basic Og==", "Basic /w=="].map(str::to_owned);
        let wrong = [
            basic(id, "wrong"),
            basic(id, ""),
            basic("", secret),
            basic(unknown, secret),
            basic(&public_client.id, secret),
            basic(id, &format!("{secret} ")),
            format!("Bearer {}", ada.token.as_deref().unwrap()),
            format!("Bearer {secret}"),
            "Digest username=\"x\"".to_owned(),
        ];
        for authorization in malformed.iter().chain(&wrong) {
            let response = send(path, &[], Some(authorization)).await;
            expect_oauth_error(&response, 401, "invalid_client");
            let challenge = response.header("www-authenticate");
            assert!(challenge.starts_with("Basic realm=\""), "{path} {authorization}: {challenge}");
        }
    }
    // The rejected requests used up neither the code nor a token.
    Tokens::of(&client.exchange(&code).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_authentication_methods_are_rejected() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = confidential(&app, Authentication::Basic).await;
    let (id, secret) = (client.id.as_str(), client.secret.as_deref().unwrap());
    let other = register(&app, public()).await;
    let code = client.code(&ada).await;
    for parameters in [
        &[("client_id", id), ("client_secret", secret)][..],
        &[("client_secret", secret)],
        &[("client_secret", "wrong")],
        &[("client_id", other.id.as_str())],
    ] {
        expect_oauth_error(&client.exchange_with(&code, parameters).await, 400, "invalid_request");
    }
    Tokens::of(&client.exchange(&code).await);
}

/// RFC 6749 section 2.3.1: the client encodes the id and the secret as form values before it encodes them in base64.
#[tokio::test(flavor = "multi_thread")]
async fn basic_credentials_are_form_decoded() {
    use base64::Engine as _;
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = confidential(&app, Authentication::Basic).await;
    let tokens = client.sign_in(&ada).await;
    let secret = client.secret.as_deref().unwrap();
    let escaped: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let encode = |text: String| format!("basic {}", base64::engine::general_purpose::STANDARD.encode(text));
    let body = || form(&[("grant_type", "refresh_token"), ("refresh_token", &tokens.refresh)]);
    for invalid in [format!("{}:{secret}%", client.id), format!("{}:%zz", client.id)] {
        let response = post_form(&app.anonymous(), "/oauth/token", body(), Some(&encode(invalid))).await;
        expect_oauth_error(&response, 401, "invalid_client");
    }
    let authorization = encode(format!("{}:{escaped}", client.id));
    Tokens::of(&post_form(&app.anonymous(), "/oauth/token", body(), Some(&authorization)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn grant_types_are_checked() {
    let app = App::start().await;
    let client = register(&app, public()).await;
    for unsupported in ["password", "client_credentials", "implicit", "Authorization_Code", "authorization_code ", "x"]
    {
        let response = client.post("/oauth/token", &[("grant_type", unsupported)]).await;
        expect_oauth_error(&response, 400, "unsupported_grant_type");
    }
    expect_oauth_error(&client.post("/oauth/token", &[]).await, 400, "invalid_request");
    expect_oauth_error(&client.post("/oauth/token", &[("grant_type", "")]).await, 400, "invalid_request");
    let complete = [
        ("grant_type", "authorization_code"),
        ("code", "x"),
        ("redirect_uri", client.redirect_uri.as_str()),
        ("code_verifier", super::kit::VERIFIER),
    ];
    for missing in ["code", "redirect_uri", "code_verifier"] {
        let rest: Vec<_> = complete.into_iter().filter(|(name, _)| *name != missing).collect();
        expect_oauth_error(&client.post("/oauth/token", &rest).await, 400, "invalid_request");
    }
    let refresh = client.post("/oauth/token", &[("grant_type", "refresh_token")]).await;
    expect_oauth_error(&refresh, 400, "invalid_request");
    let device = client.post("/oauth/token", &[("grant_type", super::kit::DEVICE_CODE)]).await;
    expect_oauth_error(&device, 400, "invalid_request");
    // This client is not registered for the device flow.
    expect_oauth_error(&client.post("/oauth/device", &[]).await, 400, "unauthorized_client");
}
