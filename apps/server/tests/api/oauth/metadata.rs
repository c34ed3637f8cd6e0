//! The metadata of the authorization server and of the protected resource, and the key set.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Tokens, operator, part, public, register, signing_keys};
use crate::support::{ApiResponse, App, eventually};

const METADATA: &str = "/.well-known/oauth-authorization-server";
const KEYS: &str = "/.well-known/jwks.json";
const RESOURCE: &str = "/.well-known/oauth-protected-resource";

const SCOPES: [&str; 13] = [
    "account:read",
    "org:read",
    "org:write",
    "project:read",
    "project:write",
    "deploy",
    "dns:read",
    "dns:write",
    "billing:read",
    "billing:write",
    "git:read",
    "git:write",
    "ai:use",
];

async fn get_with(app: &App, path: &str, name: &'static str, value: &str) -> ApiResponse {
    app.anonymous().send(Method::GET, path, |request| request.header(name, value)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_describes_the_server() {
    let app = App::start().await;
    let metadata = app.anonymous().get(METADATA).await.expect(200).clone();
    let methods = json!(["none", "client_secret_basic", "client_secret_post"]);
    let expected = json!({
        "issuer": "http://127.0.0.1",
        "authorization_endpoint": "http://localhost:3000/oauth/authorize",
        "token_endpoint": "http://127.0.0.1/oauth/token",
        "revocation_endpoint": "http://127.0.0.1/oauth/revoke",
        "device_authorization_endpoint": "http://127.0.0.1/oauth/device",
        "jwks_uri": "http://127.0.0.1/.well-known/jwks.json",
        "scopes_supported": SCOPES,
        "response_types_supported": ["code"],
        "grant_types_supported":
            ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": methods,
        "revocation_endpoint_auth_methods_supported": methods,
        "authorization_response_iss_parameter_supported": true,
        "svc_access_token_audience": "http://127.0.0.1",
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&metadata[name], value, "{name}");
    }
    let resource = app.anonymous().get(RESOURCE).await.expect(200).clone();
    assert_eq!(resource["resource"], "http://127.0.0.1");
    assert_eq!(resource["authorization_servers"], json!(["http://127.0.0.1"]));
    assert_eq!(resource["scopes_supported"], json!(SCOPES));
    assert_eq!(resource["bearer_methods_supported"], json!(["header"]));
}

/// RFC 9728 section 3.3: clients reject the metadata of a resource at another address.
#[tokio::test(flavor = "multi_thread")]
async fn protected_resource_is_described_only_if_the_audience_is_the_address_of_the_api() {
    for (audience, is_described) in [
        ("http://127.0.0.1/", true),
        ("http://127.0.0.1/path", false),
        ("https://other.example", false),
        ("urn:example:api", false),
    ] {
        let app = App::with(|config| audience.clone_into(&mut config.oauth.as_mut().unwrap().audience)).await;
        let ada = app.sign_in("ada").await;
        let client = register(&app, public()).await;
        let tokens = client.sign_in_with(&ada, json!({ "scope": "project:read" })).await;
        assert_eq!(tokens.claims()["aud"], audience);
        let refused = app.with_token(&tokens.access).get("/v1/me").await;
        refused.expect_error(403, "insufficient_scope");
        let challenge = refused.header("www-authenticate");
        assert_eq!(challenge.contains("resource_metadata"), is_described, "{audience}: {challenge}");
        let document = app.anonymous().get(RESOURCE).await;
        if is_described {
            assert_eq!(document.expect(200)["resource"], audience);
        } else {
            document.expect_error(404, "not_found");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn device_flow_is_listed_only_if_it_is_on() {
    let app = App::with(|config| config.oauth.as_mut().unwrap().device_verification_uri = None).await;
    let metadata = app.anonymous().get(METADATA).await.expect(200).clone();
    assert!(metadata.get("device_authorization_endpoint").is_none(), "{metadata}");
    assert_eq!(metadata["grant_types_supported"], json!(["authorization_code", "refresh_token"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn key_set_shows_public_keys_only() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let tokens = client.sign_in(&ada).await;
    let keys = app.anonymous().get(KEYS).await.expect(200).clone();
    let [key] = keys["keys"].as_array().unwrap().as_slice() else { panic!("{keys}") };
    let mut names: Vec<_> = key.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["alg", "crv", "kid", "kty", "use", "x", "y"]);
    let fixed = ["alg", "crv", "kty", "use"].map(|name| key[name].as_str().unwrap());
    assert_eq!(fixed, ["ES256", "P-256", "EC", "sig"]);
    let header = part(&tokens.access, 0);
    assert_eq!(header, json!({ "typ": "at+jwt", "alg": "ES256", "kid": key["kid"] }));
}

/// Waits until the background job has created the first key, and returns the key set.
async fn first_key_set(app: &App) -> ApiResponse {
    eventually("the first key is published", async || {
        Some(app.anonymous().get(KEYS).await).filter(|response| response.body["keys"] != json!([]))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn key_set_contains_two_keys_during_a_rotation() {
    let app = App::start().await;
    let before = first_key_set(&app).await;
    signing_keys(&app).rotate(&operator()).await.unwrap();
    let after = eventually("the second key is published", async || {
        Some(app.anonymous().get(KEYS).await).filter(|response| response.body["keys"].as_array().unwrap().len() == 2)
    })
    .await;
    assert_ne!(before.header("etag"), after.header("etag"));
    let stale = get_with(&app, KEYS, "if-none-match", before.header("etag")).await;
    assert_eq!(stale.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_can_be_cached_and_revalidated() {
    let app = App::start().await;
    first_key_set(&app).await;
    for (path, cache_control) in [
        (METADATA, "public, max-age=300"),
        (RESOURCE, "public, max-age=300"),
        // Specification, "Connected-app OAuth", rule 2.
        (KEYS, "public, max-age=60"),
    ] {
        let response = app.anonymous().get(path).await;
        let etag = response.header("etag").to_owned();
        assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 10, "{path}: {etag}");
        assert_eq!(response.header("cache-control"), cache_control, "{path}");
        assert_eq!(response.header("content-type"), "application/json", "{path}");
        for unchanged in [etag.clone(), format!("W/{etag}"), format!("\"other\", {etag}"), "*".to_owned()] {
            let response = get_with(&app, path, "if-none-match", &unchanged).await;
            assert_eq!((response.status, response.bytes.len()), (304, 0), "{path} {unchanged}");
            assert_eq!(response.header("etag"), etag, "{path} {unchanged}");
            assert_eq!(response.header("cache-control"), cache_control, "{path} {unchanged}");
        }
        let changed = get_with(&app, path, "if-none-match", "\"other\"").await;
        assert_eq!((changed.status, &changed.body), (200, &response.body), "{path}");
        let head = app.anonymous().send(Method::HEAD, path, |request| request).await;
        assert_eq!((head.status, head.bytes.len(), head.header("etag")), (200, 0, etag.as_str()), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_need_no_credential_and_ignore_one() {
    let app = App::start().await;
    for path in [METADATA, KEYS, RESOURCE] {
        for token in ["garbage", "a.b.c"] {
            app.with_token(token).get(path).await.expect(200);
        }
        let response = app.anonymous().post(path, json!({})).await;
        response.expect_error(405, "method_not_allowed");
        assert_eq!(response.header("allow"), "GET, HEAD", "{path}");
    }
    app.anonymous().get("/.well-known/openid-configuration").await.expect_error(404, "not_found");
}

/// Apps that run in a browser are clients too (contract section 3).
#[tokio::test(flavor = "multi_thread")]
async fn any_origin_may_call_the_endpoints_of_clients() {
    let app = App::start().await;
    let from = async |origin: &str, method: Method, path: &str| {
        let with_headers = |request: reqwest::RequestBuilder| {
            request
                .header("origin", origin)
                .header("access-control-request-method", "POST")
                .header("access-control-request-headers", "authorization,content-type")
        };
        app.anonymous().send_unchecked(method, path, with_headers).await
    };
    for path in [METADATA, KEYS, RESOURCE, "/oauth/token", "/oauth/revoke", "/oauth/device"] {
        for origin in ["https://app.example", "http://localhost:3000", "null"] {
            let preflight = from(origin, Method::OPTIONS, path).await;
            assert!([200, 204].contains(&preflight.status), "{path}: {preflight:?}");
            let method = if path.starts_with("/oauth") { Method::POST } else { Method::GET };
            for response in [preflight, from(origin, method, path).await] {
                let allowed = response.header("access-control-allow-origin");
                assert!(allowed == "*" || allowed == origin, "{path} {origin}: {response:?}");
                assert_eq!(response.header("access-control-allow-credentials"), "", "{path}");
            }
        }
    }
    let api = from("https://app.example", Method::OPTIONS, "/v1/oauth/grants").await;
    assert_eq!(api.header("access-control-allow-origin"), "");
}

/// An access token of one server is valid on another server, which loads the keys itself.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_valid_at_all_servers() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let other = app.another().await;
    let tokens = client.sign_in(&ada).await;
    let me: Value = other.with_token(&tokens.access).get("/v1/me").await.expect(200).clone();
    assert_eq!(me["id"], ada.user_id);
    let refreshed = Tokens::of(&client.at(&other).refresh(&tokens.refresh).await);
    app.with_token(&refreshed.access).get("/v1/me").await.expect(200);
}
