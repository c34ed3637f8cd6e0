//! The authorization matrix: every route of the OpenAPI document, called by every kind of caller.
//!
//! The statuses are compared with the documented policy (`x-place`, `x-role`, `x-scope`, `x-limited-token`) and with a
//! snapshot, so that a change of the behavior or of the policy is visible.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Mutex;

use reqwest::Method;
use serde_json::{Value, json};

use crate::oauth::kit::{public, register};
use crate::support::{ApiResponse, App, Caller};

/// Routes that need no credential. The list may only shrink.
const OPEN: &[&str] = &[
    "get /.well-known/jwks.json",
    "get /.well-known/oauth-authorization-server",
    "get /.well-known/oauth-protected-resource",
    "get /docs",
    "get /docs/{file}",
    "get /healthz",
    // The client authenticates itself in the form.
    "post /oauth/device",
    "post /oauth/revoke",
    "post /oauth/token",
    "get /readyz",
    "get /v1/auth/codehost/callback",
    "get /v1/auth/codehost/start",
    "post /v1/auth/dev/login",
    "get /v1/config",
    // The notification service and the payments provider sign these requests.
    "post /v1/hooks/mailer",
    "post /v1/hooks/payments",
    "get /v1/invites/{token}",
    "get /v1/openapi.json",
];

/// Routes that need a token but no scope. The list may only shrink.
const ANY_TOKEN: &[&str] = &["get /v1/me/tokens/current"];

/// Routes that are stricter than their documented minimum role, with the reason. The list may only shrink.
const NARROWER: &[(&str, &str)] = &[(
    "delete /v1/orgs/{orgSlug}/members/{userId}",
    "all members can leave, but only an admin can remove another member",
)];

const CALLERS: &[&str] = &[
    "none",
    "garbage",
    "outsider",
    "former",
    "viewer",
    "member",
    "admin",
    "token",
    "scopeless",
    "elsewhere",
    "limited",
    "revoked",
    "zoned",
    "app",
    "app-scopeless",
    "app-revoked",
];

/// The scopes of the tokens.
const SCOPES: &[&str] =
    &["account:read", "org:write", "project:write", "deploy", "dns:write", "billing:write", "git:write", "ai:use"];

/// The only scope of the app that lacks the scope of a route. A grant needs at least one scope.
const UNRELATED_SCOPE: &str = "account:read";

/// The organization `acme` with the projects `site` and `hidden`, and a caller of each kind. The tokens belong to an
/// admin, who also signed in to the connected apps.
struct Fixture {
    app: App,
    outsider_id: String,
    tokens: Vec<(&'static str, String)>,
    /// The callers by kind, until a request changes something.
    callers: Mutex<HashMap<String, Caller>>,
}

impl Fixture {
    async fn new() -> Self {
        let app = App::start().await;
        let ada = app.sign_in("ada").await;
        for org in ["acme", "secretive"] {
            ada.post("/v1/orgs", json!({ "slug": org })).await.expect(201);
        }
        for project in ["site", "hidden"] {
            ada.post("/v1/orgs/acme/projects", json!({ "name": project })).await.expect(201);
        }
        ada.post("/v1/orgs/acme/dns/zones", json!({ "name": "example.org" })).await.expect(200);
        ada.post("/v1/orgs/acme/projects/site/repos", json!({ "name": "app" })).await.expect(201);
        for role in ["viewer", "member", "admin"] {
            app.add_member(&ada, "acme", role, role).await;
        }
        let former = app.add_member(&ada, "acme", "former", "admin").await;
        ada.delete(&format!("/v1/orgs/acme/members/{}", former.user_id)).await.expect(204);
        let admin = app.add_member(&ada, "secretive", "admin", "admin").await;
        let outsider_id = app.sign_in("outsider").await.user_id;
        let mut tokens = Vec::new();
        for (kind, scopes, restrict) in [
            ("token", SCOPES, Value::Null),
            ("scopeless", &[], Value::Null),
            ("elsewhere", SCOPES, json!({ "org": "secretive" })),
            ("limited", SCOPES, json!({ "org": "acme", "projects": ["site"] })),
            ("revoked", SCOPES, Value::Null),
        ] {
            let mut body = json!({ "name": kind, "scopes": scopes });
            if !restrict.is_null() {
                body["restrict"] = restrict;
            }
            let created = admin.post("/v1/me/tokens", body).await.expect(201).clone();
            tokens.push((kind, created["token"].as_str().unwrap().to_owned()));
            if kind == "revoked" {
                admin.delete(&format!("/v1/me/tokens/{}", created["id"].as_str().unwrap())).await.expect(204);
            }
        }
        let client = register(&app, public()).await;
        for (kind, scope) in [("app", SCOPES.join(" ")), ("app-scopeless", UNRELATED_SCOPE.to_owned())] {
            tokens.push((kind, client.sign_in_with(&admin, json!({ "scope": scope })).await.access));
        }
        let revoked = client.sign_in(&admin).await;
        admin.delete(&format!("/v1/oauth/grants/{}", revoked.sid())).await.expect(204);
        tokens.push(("app-revoked", revoked.access));
        Self { app, outsider_id, tokens, callers: Mutex::default() }
    }

    /// Returns a caller of this kind.
    async fn caller(&self, kind: &str) -> Caller {
        let known = self.callers.lock().unwrap().get(kind).cloned();
        if let Some(known) = known {
            return known;
        }
        let caller = self.new_caller(kind).await;
        self.callers.lock().unwrap().insert(kind.to_owned(), caller.clone());
        caller
    }

    async fn new_caller(&self, kind: &str) -> Caller {
        if let Some((_, token)) = self.tokens.iter().find(|(known, _)| *known == kind) {
            return self.app.with_token(token);
        }
        match kind {
            "none" => self.app.anonymous(),
            "zoned" => {
                let admin = self.app.sign_in("admin").await;
                admin.post("/v1/orgs/acme/dns/zones", json!({ "name": "example.org" })).await.expect(200);
                let restrict = json!({ "org": "acme", "zones": ["example.org"] });
                let body = json!({ "name": "zoned", "scopes": SCOPES, "restrict": restrict });
                // A user has at most 100 tokens.
                self.app.db_execute("DELETE FROM identity.access_tokens WHERE name = 'zoned'").await.unwrap();
                let token = admin.post("/v1/me/tokens", body).await.expect(201)["token"].clone();
                self.app.with_token(token.as_str().unwrap())
            }
            "garbage" => self.app.with_token("svc_ses_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
            subject => self.app.sign_in(subject).await,
        }
    }

    /// Fills the path template with existing resources, where possible.
    fn path(&self, template: &str, operation: &Value, project: &str) -> String {
        let path = template.replace("{orgSlug}", "acme").replace("{projectName}", project);
        let path = path.replace("{userId}", &self.outsider_id).replace("{file}", "index.html");
        let path = path.replace("{host}", "www.example.org").replace("{version}", "1");
        let path = path.replace("{secretName}", "API_KEY").replace("{userCode}", "BCDF-GHJK");
        let path = path.replace("{repoName}", "app").replace("{domainName}", "example.org");
        let path = path.replace("{address}", "ada@example.org").replace("{provider}", "codehost");
        let path = path.replace("{zone}", "example.org").replace("{name}", "www").replace("{type}", "A");
        // This token does not exist.
        let mut path = path.replace("{token}", "svc_inv_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
        for parameter in operation["parameters"].as_array().unwrap() {
            let pattern = parameter["schema"]["pattern"].as_str().and_then(|pattern| pattern.strip_prefix('^'));
            if let Some((prefix, _)) = pattern.and_then(|pattern| pattern.split_once("_[0-7]")) {
                let name = parameter["name"].as_str().unwrap();
                path = path.replace(&format!("{{{name}}}"), &format!("{prefix}_01h455vb4pex5vsknk084sn02q"));
            }
        }
        assert!(!path.contains('{'), "the matrix knows no value for a parameter of {template}");
        path
    }

    /// Sends an empty body, so that an authorized caller gets a validation error and nothing changes.
    async fn call(&self, kind: &str, method: &str, path: &str) -> ApiResponse {
        let method: Method = method.to_ascii_uppercase().parse().unwrap();
        let send = |request: reqwest::RequestBuilder| match method {
            Method::GET | Method::DELETE => request,
            _ => request.json(&json!({})),
        };
        let response = self.caller(kind).await.send(method.clone(), path, send).await;
        if method != Method::GET && response.status < 400 {
            // One of the routes ends the session, and another one deletes the zone.
            self.callers.lock().unwrap().clear();
        }
        response
    }
}

/// Returns the expected result for this kind of caller, according to the documented policy: `Ok`, or the status of the
/// error.
fn expected_access(kind: &str, operation: &Value) -> Result<(), u16> {
    let roles = ["viewer", "member", "admin"];
    let rank = |role: &str| roles.iter().position(|known| *known == role);
    let place = operation["x-place"].as_str().unwrap();
    let accepts_restricted = operation["x-limited-token"] == true;
    match kind {
        _ if place == "open" => Ok(()),
        "none" | "garbage" | "revoked" | "app-revoked" => Err(401),
        "token" | "scopeless" | "elsewhere" | "limited" | "zoned" | "app" | "app-scopeless"
            if operation["x-session-only"] == true =>
        {
            Err(401)
        }
        "scopeless" if operation["x-scope"].is_string() => Err(403),
        "app-scopeless" if operation["x-scope"].as_str().is_some_and(|scope| scope != UNRELATED_SCOPE) => Err(403),
        "elsewhere" | "limited" | "zoned" if !accepts_restricted => Err(403),
        // The routes of organizations that accept restricted tokens list zones or projects.
        "limited" if place == "zone" || (place == "org" && operation["x-scope"] == "dns:read") => Err(403),
        "zoned" if place == "project" || (place == "org" && operation["x-scope"] == "project:read") => Err(403),
        "elsewhere" if place != "account" => Err(403),
        "token" | "scopeless" | "elsewhere" | "limited" | "zoned" | "app" | "app-scopeless" => {
            expected_access("admin", operation)
        }
        _ if place == "account" => Ok(()),
        _ => {
            let minimum = rank(operation["x-role"].as_str().expect("the operation has no x-role"));
            if rank(kind) >= minimum && rank(kind).is_some() { Ok(()) } else { Err(403) }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_admit_exactly_the_documented_callers() {
    let fixture = Fixture::new().await;
    let mut table = String::new();
    let (mut open, mut any_token, mut narrower) = (Vec::new(), Vec::new(), Vec::new());
    let document = fixture.app.document.clone();
    for (method, template, operation) in document.operations() {
        let route = format!("{method} {template}");
        let stated = operation["x-scope"].is_string() || operation["x-session-only"] == true;
        match operation["x-place"].as_str().unwrap() {
            "open" => open.push(route.clone()),
            _ if !stated => any_token.push(route.clone()),
            _ => {}
        }
        let mut responses = Vec::new();
        for kind in CALLERS {
            let status = fixture.call(kind, method, &fixture.path(template, operation, "site")).await.status;
            let refused = [401, 403].contains(&status).then_some(status);
            let expected = expected_access(kind, operation).err();
            if refused != expected {
                assert!(
                    refused.is_some() && NARROWER.iter().any(|(known, _)| *known == route),
                    "{route} as {kind}: {status}"
                );
                narrower.push(route.clone());
            }
            responses.push(format!("{kind} {status}"));
        }
        let policy = ["x-place", "x-role", "x-scope"].map(|name| operation[name].as_str().unwrap_or("-"));
        writeln!(table, "{route} [{}]: {}", policy.join(" "), responses.join(", ")).unwrap();
    }
    assert_eq!(open, OPEN, "the list of open routes");
    assert_eq!(any_token, ANY_TOKEN, "the list of routes for any token");
    narrower.dedup();
    assert_eq!(narrower, NARROWER.iter().map(|(route, _)| *route).collect::<Vec<_>>(), "the list of exceptions");
    insta::assert_snapshot!("matrix", table);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_restricted_to_a_project_sees_only_that_project() {
    let fixture = Fixture::new().await;
    let document = fixture.app.document.clone();
    let mut seen = 0;
    for (method, template, operation) in document.operations() {
        if operation["x-place"] == "open" {
            continue;
        }
        let own = fixture.call("limited", method, &fixture.path(template, operation, "site")).await;
        // The response contains no other project, organization or user.
        for other in ["hidden", "secretive", "viewer", "outsider"] {
            let reveals = String::from_utf8_lossy(&own.bytes).contains(other);
            assert!(!reveals || own.status == 403, "{method} {template} reveals {other}: {}", own.body);
        }
        seen += usize::from(own.status == 200);
        if !template.contains("{projectName}") {
            continue;
        }
        // An existing and a missing project return the same error.
        let [hidden, missing] = [
            fixture.call("limited", method, &fixture.path(template, operation, "hidden")).await,
            fixture.call("limited", method, &fixture.path(template, operation, "missing")).await,
        ];
        for response in [&hidden, &missing] {
            response.expect_error(403, "forbidden");
        }
        assert_eq!(hidden.body["message"], missing.body["message"], "{method} {template}");
    }
    assert!(seen > 3, "{seen} routes accepted the token");
    let limited = fixture.caller("limited").await;
    let projects = limited.get("/v1/orgs/acme/projects").await.expect(200)["items"].clone();
    assert_eq!(projects.as_array().unwrap().iter().map(|project| &project["name"]).collect::<Vec<_>>(), ["site"]);
    assert_eq!(limited.get("/v1/me").await.expect(200)["orgs"], json!([]));
    assert_eq!(limited.get("/v1/orgs").await.expect(200)["items"], json!([]));
}
