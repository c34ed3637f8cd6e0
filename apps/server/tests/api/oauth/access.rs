//! Access tokens of connected apps at the API: the limits by scope and by the user's role, and the `WWW-Authenticate`
//! challenges.

use reqwest::Method;
use serde_json::json;

use super::kit::{Tokens, public, register};
use crate::support::{App, site};

/// The challenge parameter of RFC 9728 section 5.1.
const RESOURCE_METADATA: &str = "resource_metadata=\"http://127.0.0.1/.well-known/oauth-protected-resource\"";

#[tokio::test(flavor = "multi_thread")]
async fn scope_admits_its_routes_only() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let with = async |scope: &str| {
        let tokens = client.sign_in_with(&ada, json!({ "scope": scope })).await;
        app.with_token(&tokens.access)
    };
    let reader = with("project:read").await;
    reader.get("/v1/orgs/ada/projects/site").await.expect(200);
    for (method, path, needed) in [
        (Method::GET, "/v1/me", "account:read"),
        (Method::GET, "/v1/orgs", "org:read"),
        (Method::POST, "/v1/orgs/ada/projects", "project:write"),
        (Method::GET, "/v1/orgs/ada/dns/zones", "dns:read"),
    ] {
        let body = json!({ "name": "other" });
        let response = reader.send(method, path, |request| request.json(&body)).await;
        assert_eq!(response.expect_error(403, "insufficient_scope")["details"]["required"], needed, "{path}");
        let challenge = response.header("www-authenticate");
        assert!(challenge.starts_with("Bearer error=\"insufficient_scope\""), "{challenge}");
        assert!(challenge.contains(&format!("scope=\"{needed}\"")), "{challenge}");
        assert!(challenge.contains(RESOURCE_METADATA), "{challenge}");
    }
    // A write scope includes its read scope.
    let writer = with("project:write").await;
    writer.get("/v1/orgs/ada/projects/site").await.expect(200);
    writer.patch("/v1/orgs/ada/projects/site", json!({ "name": "moved" })).await.expect(200);
    let deployer = with("deploy").await;
    deployer.upload("/v1/orgs/ada/projects/moved/deployments", site("hi")).await.expect(201);
    deployer.get("/v1/orgs/ada/projects/moved").await.expect_error(403, "insufficient_scope");
}

/// An app never has more permissions than its user has at the time of the request.
#[tokio::test(flavor = "multi_thread")]
async fn role_of_the_user_is_the_ceiling() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201);
    let bob = app.add_member(&ada, "acme", "bob", "viewer").await;
    let client = register(&app, public()).await;
    let tokens = client.sign_in(&bob).await;
    let bobs_app = app.with_token(&tokens.access);
    let create = async || bobs_app.post("/v1/orgs/acme/projects", json!({ "name": "site" })).await;
    bobs_app.get("/v1/orgs/acme/projects").await.expect(200);
    create().await.expect_error(403, "forbidden");
    let role = |role: &str| json!({ "role": role });
    let path = format!("/v1/orgs/acme/members/{}", bob.user_id);
    ada.put(&path, role("member")).await.expect(200);
    create().await.expect(201);
    // The audit event names the user, and the app's grant as the credential.
    let rows = app.db_rows("SELECT actor_id::text, credential FROM store.audit WHERE event = 'project.create'").await;
    assert_eq!(rows.len(), 1);
    assert!(rows[0]["credential"].as_str().unwrap().contains(&tokens.sid()), "{rows:?}");
    ada.delete(&path).await.expect(204);
    bobs_app.get("/v1/orgs/acme/projects").await.expect_error(403, "forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn access_token_is_accepted_only_as_a_bearer_token() {
    use base64::Engine as _;
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let tokens = register(&app, public()).await.sign_in(&ada).await;
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("app:{}", tokens.access));
    let with = async |authorization: String| {
        app.anonymous().send(Method::GET, "/v1/me", |request| request.header("authorization", authorization)).await
    };
    with(format!("bearer {}", tokens.access)).await.expect(200);
    with(format!("Basic {basic}")).await.expect_error(401, "unauthenticated");
    with(format!("Bearer {} x", tokens.access)).await.expect_error(401, "unauthenticated");
    with(tokens.access.clone()).await.expect_error(401, "unauthenticated");
    let query = format!("/v1/me?access_token={}", tokens.access);
    app.anonymous().get(&query).await.expect_error(401, "unauthenticated");
}

/// The idempotency keys of a grant are separate from those of other grants, and survive a refresh.
#[tokio::test(flavor = "multi_thread")]
async fn idempotency_keys_belong_to_the_grant() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let tokens = client.sign_in(&ada).await;
    let create = async |token: &str, name: &str| {
        let caller = app.with_token(token);
        caller.post_with_key("key-1", "/v1/orgs/ada/projects", json!({ "name": name })).await
    };
    let first = create(&tokens.access, "one").await;
    let next = Tokens::of(&client.refresh(&tokens.refresh).await);
    let replayed = create(&next.access, "one").await;
    assert_eq!(first.expect(201), replayed.expect(201));
    let projects = ada.get("/v1/orgs/ada/projects").await.expect(200)["items"].as_array().unwrap().len();
    assert_eq!(projects, 1);
}
