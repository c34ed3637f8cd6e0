//! Who may call what: every route of the OpenAPI document, called by every kind of caller.
//!
//! Two things are held against what the routes really answer: the policy that the document states (`x-place`, `x-role`,
//! `x-scope`, `x-limited-token`) and a snapshot, so that neither a route's behaviour nor its stated policy changes unseen.

use std::fmt::Write as _;

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{Answer, App, Caller};

/// Routes that anyone may call. The list may only shrink.
const OPEN: &[&str] = &[
    "get /docs",
    "get /docs/{file}",
    "get /healthz",
    "get /readyz",
    "get /v1/auth/codehost/callback",
    "get /v1/auth/codehost/start",
    "post /v1/auth/dev/login",
    "get /v1/config",
    "get /v1/invites/{token}",
    "get /v1/openapi.json",
];

/// Routes that need no scope but a token. The list may only shrink.
const ANY_TOKEN: &[&str] = &["get /v1/me/tokens/current"];

/// Routes that refuse more than their least role says, with the reason. The list may only shrink.
const NARROWER: &[(&str, &str)] =
    &[("delete /v1/orgs/{orgSlug}/members/{userId}", "anyone may leave, but only an admin removes somebody else")];

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
];

/// The scopes of the tokens.
const SCOPES: &[&str] =
    &["account:read", "org:write", "project:write", "deploy", "dns:write", "billing:write", "git:write", "ai:use"];

/// The organization `acme` with its projects `site` and `hidden`, and a caller of each kind. The tokens are an admin's.
struct World {
    app: App,
    somebody: String,
    tokens: Vec<(&'static str, String)>,
}

impl World {
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
        for role in ["viewer", "member", "admin"] {
            app.joined(&ada, "acme", role, role).await;
        }
        let former = app.joined(&ada, "acme", "former", "admin").await;
        ada.delete(&format!("/v1/orgs/acme/members/{}", former.user_id)).await.expect(204);
        let admin = app.joined(&ada, "secretive", "admin", "admin").await;
        let somebody = app.sign_in("outsider").await.user_id;
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
        Self { app, somebody, tokens }
    }

    /// Signed in anew for each call, since one of the routes signs out.
    async fn caller(&self, kind: &str) -> Caller {
        if let Some((_, token)) = self.tokens.iter().find(|(known, _)| *known == kind) {
            return self.app.with_token(token);
        }
        match kind {
            "none" => self.app.anyone(),
            // With a token for a zone that some of the routes delete.
            "zoned" => {
                let admin = self.app.sign_in("admin").await;
                admin.post("/v1/orgs/acme/dns/zones", json!({ "name": "example.org" })).await.expect(200);
                let restrict = json!({ "org": "acme", "zones": ["example.org"] });
                let body = json!({ "name": "zoned", "scopes": SCOPES, "restrict": restrict });
                let token = admin.post("/v1/me/tokens", body).await.expect(201)["token"].clone();
                self.app.with_token(token.as_str().unwrap())
            }
            "garbage" => self.app.with_token("svc_ses_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
            subject => self.app.sign_in(subject).await,
        }
    }

    /// The path with something in it that exists, or that a caller in the right place could name.
    fn path(&self, template: &str, operation: &Value, project: &str) -> String {
        let path = template.replace("{orgSlug}", "acme").replace("{projectName}", project);
        let path = path.replace("{userId}", &self.somebody).replace("{file}", "index.html");
        let path = path.replace("{host}", "www.example.org").replace("{version}", "1");
        let path = path.replace("{zone}", "example.org").replace("{name}", "www").replace("{type}", "A");
        // Somebody else's, and so nothing to this caller.
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

    /// An empty body: whoever is let in is told what is missing, and nothing changes.
    async fn call(&self, kind: &str, method: &str, path: &str) -> Answer {
        let method: Method = method.to_ascii_uppercase().parse().unwrap();
        let send = |request: reqwest::RequestBuilder| match method {
            Method::GET | Method::DELETE => request,
            _ => request.json(&json!({})),
        };
        self.caller(kind).await.send(method.clone(), path, send).await
    }
}

/// Whether the stated policy lets this kind of caller in.
fn may(kind: &str, operation: &Value) -> Result<(), u16> {
    let roles = ["viewer", "member", "admin"];
    let rank = |role: &str| roles.iter().position(|known| *known == role);
    let place = operation["x-place"].as_str().unwrap();
    let for_limited = operation["x-limited-token"] == true;
    match kind {
        _ if place == "open" => Ok(()),
        "none" | "garbage" | "revoked" => Err(401),
        "token" | "scopeless" | "elsewhere" | "limited" | "zoned" if operation["x-session-only"] == true => Err(401),
        "scopeless" if operation["x-scope"].is_string() => Err(403),
        "elsewhere" | "limited" | "zoned" if !for_limited => Err(403),
        "limited" if place == "zone" => Err(403),
        "zoned" if place == "project" => Err(403),
        "elsewhere" if place != "account" => Err(403),
        "token" | "scopeless" | "elsewhere" | "limited" | "zoned" => may("admin", operation),
        _ if place == "account" => Ok(()),
        _ => {
            let least = rank(operation["x-role"].as_str().expect("a route in an organization has a role"));
            if rank(kind) >= least && rank(kind).is_some() { Ok(()) } else { Err(403) }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_lets_in_whom_it_says_and_nobody_else() {
    let world = World::new().await;
    let mut table = String::new();
    let (mut open, mut any_token, mut narrower) = (Vec::new(), Vec::new(), Vec::new());
    let document = world.app.document.clone();
    for (method, template, operation) in document.operations() {
        let route = format!("{method} {template}");
        let stated = operation["x-scope"].is_string() || operation["x-session-only"] == true;
        match operation["x-place"].as_str().unwrap() {
            "open" => open.push(route.clone()),
            _ if !stated => any_token.push(route.clone()),
            _ => {}
        }
        let mut answers = Vec::new();
        for kind in CALLERS {
            let status = world.call(kind, method, &world.path(template, operation, "site")).await.status;
            let refused = [401, 403].contains(&status).then_some(status);
            let expected = may(kind, operation).err();
            if refused != expected {
                assert!(
                    refused.is_some() && NARROWER.iter().any(|(known, _)| *known == route),
                    "{route} as {kind}: {status}"
                );
                narrower.push(route.clone());
            }
            answers.push(format!("{kind} {status}"));
        }
        let policy = ["x-place", "x-role", "x-scope"].map(|name| operation[name].as_str().unwrap_or("-"));
        writeln!(table, "{route} [{}]: {}", policy.join(" "), answers.join(", ")).unwrap();
    }
    assert_eq!(open, OPEN, "the list of open routes");
    assert_eq!(any_token, ANY_TOKEN, "the list of routes for any token");
    narrower.dedup();
    assert_eq!(narrower, NARROWER.iter().map(|(route, _)| *route).collect::<Vec<_>>(), "the list of exceptions");
    insta::assert_snapshot!("matrix", table);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_limited_to_a_project_sees_that_project_and_nothing_else() {
    let world = World::new().await;
    let document = world.app.document.clone();
    let mut seen = 0;
    for (method, template, operation) in document.operations() {
        if operation["x-place"] == "open" {
            continue;
        }
        let own = world.call("limited", method, &world.path(template, operation, "site")).await;
        // It is told of nothing beyond: no other project, no other organization, nobody else.
        for other in ["hidden", "secretive", "viewer", "outsider"] {
            let told = String::from_utf8_lossy(&own.bytes).contains(other);
            assert!(!told || own.status == 403, "{method} {template} tells of {other}: {}", own.body);
        }
        seen += usize::from(own.status == 200);
        if !template.contains("{projectName}") {
            continue;
        }
        // What exists and what does not are refused in the same words.
        let [hidden, missing] = [
            world.call("limited", method, &world.path(template, operation, "hidden")).await,
            world.call("limited", method, &world.path(template, operation, "missing")).await,
        ];
        for answer in [&hidden, &missing] {
            answer.refused(403, "forbidden");
        }
        assert_eq!(hidden.body["message"], missing.body["message"], "{method} {template}");
    }
    assert!(seen > 3, "{seen} routes answered the token");
    let limited = world.caller("limited").await;
    let projects = limited.get("/v1/orgs/acme/projects").await.expect(200)["items"].clone();
    assert_eq!(projects.as_array().unwrap().iter().map(|project| &project["name"]).collect::<Vec<_>>(), ["site"]);
    assert_eq!(limited.get("/v1/me").await.expect(200)["orgs"], json!([]));
    assert_eq!(limited.get("/v1/orgs").await.expect(200)["items"], json!([]));
}
