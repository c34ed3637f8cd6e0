//! Personal access tokens.

mod lifetime;
mod permissions;
mod zones;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{ApiResponse, App, Caller};

/// All scopes that the routes in these tests require.
const ALL: [&str; 6] = ["account:read", "org:read", "org:write", "project:read", "project:write", "deploy"];

/// Creates a token. Returns a caller that uses it, and the response.
async fn create_token(app: &App, owner: &Caller, body: Value) -> (Caller, Value) {
    let created = owner.post("/v1/me/tokens", body).await.expect(201).clone();
    (app.with_token(created["token"].as_str().unwrap()), created)
}

async fn with_scopes(app: &App, owner: &Caller, scopes: &[&str]) -> Caller {
    create_token(app, owner, json!({ "name": "ci", "scopes": scopes })).await.0
}

/// Returns a caller with all scopes and this restriction.
async fn restricted(app: &App, owner: &Caller, restrict: Value) -> Caller {
    create_token(app, owner, json!({ "name": "ci", "scopes": ALL, "restrict": restrict })).await.0
}

async fn with_authorization(app: &App, value: &str) -> ApiResponse {
    app.anonymous().send(Method::GET, "/v1/me", |request| request.header("authorization", value)).await
}

/// Signs in Ada and creates the organization `acme` with the projects `site` and `blog`.
async fn acme(app: &App) -> Caller {
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201);
    for name in ["site", "blog"] {
        ada.post("/v1/orgs/acme/projects", json!({ "name": name })).await.expect(201);
    }
    ada
}

fn names(response: &ApiResponse, field: &str) -> Vec<String> {
    let items = response.expect(200)["items"].as_array().unwrap();
    items.iter().map(|item| item[field].as_str().unwrap().to_owned()).collect()
}

/// Returns the error body without the request ID.
fn refusal(response: &ApiResponse, status: u16, code: &str) -> Value {
    let mut body = response.expect_error(status, code).clone();
    body["requestId"] = Value::Null;
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn token_is_accepted_as_bearer_and_as_basic_password() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let token = with_scopes(&app, &ada, &["account:read"]).await.token.unwrap();
    let basic = |credentials: String| STANDARD.encode(credentials);
    for authorization in [
        format!("Bearer {token}"),
        format!("bearer {token}"),
        format!("BEARER {token}"),
        format!("Basic {}", basic(format!("ada:{token}"))),
        format!("Basic {}", basic(format!(":{token}"))),
        format!("Basic {}", basic(format!("another user:{token}"))),
        format!("Basic {}", STANDARD.encode([b"m\xfcller:".as_slice(), token.as_bytes()].concat())),
        format!("basic {}", basic(format!("git:{token}"))),
        format!("bAsIc {}", basic(format!("git:{token}"))),
    ] {
        assert_eq!(with_authorization(&app, &authorization).await.expect(200)["id"], json!(ada.user_id));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_credentials_are_rejected_with_a_challenge() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let session = ada.token.clone().unwrap();
    let token = with_scopes(&app, &ada, &["account:read"]).await.token.unwrap();
    let basic = |credentials: &str| format!("Basic {}", STANDARD.encode(credentials));
    let (halved, longer) = (token[..token.len() - 1].to_owned(), format!("{token}A"));
    for authorization in [
        // A session token is not accepted as a password.
        basic(&format!("ada:{session}")),
        basic(&format!("{token}:")),
        basic(&format!("{token}:x")),
        basic(&token),
        basic(&format!("ada:{token}:")),
        basic(&format!("ada:{halved}")),
        format!("Basic {token}"),
        "Basic ====".to_owned(),
        "Basic !not base64!".to_owned(),
        "Basic".to_owned(),
        format!("Basic {}", STANDARD.encode([b"ada:".as_slice(), &[0xff, 0xfe]].concat())),
        format!("Bearer {halved}"),
        format!("Bearer {longer}"),
        format!("Bearer {}", token.to_uppercase()),
        format!("Bearer {}", token.replace("svc_pat_", "svc_ses_")),
        format!("Bearer {}", session.replace("svc_ses_", "svc_pat_")),
        format!("Bearer {token}, Bearer {token}"),
        format!("Digest {token}"),
        token.clone(),
        String::new(),
    ] {
        let response = with_authorization(&app, &authorization).await;
        response.expect_error(401, "unauthenticated");
        assert_eq!(response.header("www-authenticate"), "Bearer error=\"invalid_token\"", "{authorization}");
    }
    let none = app.anonymous().get("/v1/me").await;
    none.expect_error(401, "unauthenticated");
    assert_eq!(none.header("www-authenticate"), "Bearer");
    // Two headers are ambiguous.
    let two = |request: reqwest::RequestBuilder| {
        request.header("authorization", format!("Bearer {token}")).header("authorization", format!("Bearer {token}"))
    };
    app.anonymous().send(Method::GET, "/v1/me", two).await.expect_error(401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_secret_is_returned_only_once() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let body = json!({ "name": "ci", "scopes": ["org:write", "account:read", "org:write", "project:read"] });
    let response = ada.post("/v1/me/tokens", body).await;
    assert_eq!(response.header("cache-control"), "no-store");
    let mut about = response.expect(201).clone();
    let plain = about.as_object_mut().unwrap().remove("token").unwrap();
    let plain = plain.as_str().unwrap();
    assert!(plain.starts_with("svc_pat_") && about["id"].as_str().unwrap().starts_with("pat_"));
    assert_eq!(about["prefix"], json!(plain[..12]));
    assert_eq!(about["scopes"], json!(["account:read", "org:write", "project:read"]));
    for null in ["restrict", "expiresAt", "lastUsedAt", "revokedAt"] {
        assert_eq!(about[null], json!(null), "{null}");
    }
    assert_eq!(ada.get("/v1/me/tokens").await.expect(200)["items"], json!([about]));
    // The list begins with the newest token.
    ada.post("/v1/me/tokens", json!({ "name": "second", "scopes": [] })).await.expect(201);
    assert_eq!(names(&ada.get("/v1/me/tokens").await, "name"), ["second", "ci"]);

    let caller = app.with_token(plain);
    let revoke = format!("/v1/me/tokens/{}", about["id"].as_str().unwrap());
    let mut others = Vec::new();
    for path in ["/v1/me", "/v1/me/tokens", "/v1/me/tokens/current", "/v1/orgs", "/v1/orgs/ada/projects"] {
        others.push(caller.get(path).await);
    }
    for path in ["/v1/me/tokens", "/v1/me/sessions", "/v1/orgs/ada/audit"] {
        others.push(ada.get(path).await);
    }
    others.push(ada.delete(&revoke).await);
    others.push(caller.get("/v1/me").await);
    for response in &others {
        assert_eq!(response.header("cache-control"), "no-store", "{}", response.request);
        assert!(!String::from_utf8_lossy(&response.bytes).contains(&plain[12..]), "{}", response.request);
    }
    let rows = "SELECT t.*, encode(token_hash, 'escape') AS escaped FROM identity.access_tokens t";
    for statement in [rows, "SELECT * FROM store.audit"] {
        let rows = serde_json::to_string(&app.db_rows(statement).await).unwrap();
        assert!(!rows.contains(&plain[12..]), "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_without_scopes_can_read_its_own_description() {
    let app = App::start().await;
    let ada = acme(&app).await;
    ada.get("/v1/me/tokens/current").await.expect_error(404, "not_found");
    app.anonymous().get("/v1/me/tokens/current").await.expect_error(401, "unauthenticated");
    for restrict in [json!(null), json!({ "org": "acme" }), json!({ "org": "acme", "projects": ["site"] })] {
        let (token, created) =
            create_token(&app, &ada, json!({ "name": "ci", "scopes": [], "restrict": restrict })).await;
        let current = token.get("/v1/me/tokens/current").await.expect(200).clone();
        assert_eq!((&current["id"], &current["scopes"]), (&created["id"], &json!([])));
        assert_eq!(current["restrict"]["org"], restrict["org"]);
        assert_eq!(current["restrict"]["projects"], restrict["projects"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_token_request_is_rejected_with_the_field() {
    let app = App::start().await;
    let ada = acme(&app).await;
    app.sign_in("bob").await;
    let fields = async |body: Value| {
        let response = ada.post("/v1/me/tokens", body).await;
        let fields = response.expect_error(400, "bad_request")["details"]["fields"].as_array().unwrap().clone();
        fields.iter().map(|field| field["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let restrict = |restrict: Value| json!({ "name": "ci", "scopes": [], "restrict": restrict });
    for (body, path) in [
        (json!({ "scopes": [] }), "name"),
        (json!({ "name": "ci" }), "scopes"),
        (json!({ "name": "", "scopes": [] }), "name"),
        (json!({ "name": " ", "scopes": [] }), "name"),
        (json!({ "name": "a\nb", "scopes": [] }), "name"),
        (json!({ "name": "x".repeat(101), "scopes": [] }), "name"),
        (json!({ "name": "ci", "scopes": ["admin"] }), "scopes[0]"),
        (json!({ "name": "ci", "scopes": [], "expiresAt": "2001-01-01T00:00:00.000Z" }), "expiresAt"),
        (json!({ "name": "ci", "scopes": [], "expiresAt": "tomorrow" }), "expiresAt"),
        (json!({ "name": "ci", "scopes": [], "expiresAt": "2100-1-1 0:0:0 UTC" }), "expiresAt"),
        (json!({ "name": "ci", "scopes": [], "revokedAt": null }), "revokedAt"),
        (restrict(json!({})), "restrict.org"),
        // The error does not reveal whether the organization exists.
        (restrict(json!({ "org": "bob" })), "restrict.org"),
        (restrict(json!({ "org": "nowhere" })), "restrict.org"),
        (restrict(json!({ "org": "acme", "projects": ["site", "none"] })), "restrict.projects[1]"),
        (restrict(json!({ "org": "acme", "projects": [] })), "restrict.projects"),
        (restrict(json!({ "org": "acme", "zones": ["example.org"] })), "restrict.zones[0]"),
    ] {
        assert_eq!(fields(body.clone()).await, [path], "{body}");
    }
    let targets = json!({ "org": "acme", "projects": ["none", "site", "nothing"], "zones": ["example.org"] });
    let mut body = restrict(targets);
    body["expiresAt"] = json!("2001-01-01T00:00:00.000Z");
    let invalid = ["expiresAt", "restrict.projects[0]", "restrict.projects[2]", "restrict.zones[0]"];
    assert_eq!(fields(body).await, invalid);
    let body = json!({ "name": "a\nb", "scopes": ["admin"], "expiresAt": "tomorrow", "revokedAt": null });
    assert_eq!(fields(body).await, ["expiresAt", "name", "revokedAt", "scopes[0]"]);
    assert_eq!(ada.get("/v1/me/tokens").await.expect(200)["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_event_names_the_token() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let (token, created) = create_token(&app, &ada, json!({ "name": "ci", "scopes": ["org:write"] })).await;
    token.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201);
    let rows = app.db_rows("SELECT credential FROM store.audit WHERE event = 'org.create'").await;
    assert_eq!(rows, [json!({ "credential": created["id"] })]);
    let rows = app.db_rows("SELECT credential, data FROM store.audit WHERE event = 'token.create'").await;
    assert!(rows[0]["credential"].as_str().unwrap().starts_with("ses_"));
    assert_eq!((&rows[0]["data"]["name"], &rows[0]["data"]["scopes"]), (&Value::Null, &json!(["org:write"])));
}
