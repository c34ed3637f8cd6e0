//! Who may call what: every route of the OpenAPI document, called by every kind of caller.
//!
//! Two things are held against what the routes really answer: the policy that the document states (`x-place`, `x-role`)
//! and a snapshot, so that neither a route's behaviour nor its stated policy changes unseen.

use std::fmt::Write as _;

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{App, Caller};

/// Routes that anyone may call. The list may only shrink.
const OPEN: &[&str] = &[
    "get /docs",
    "get /docs/{file}",
    "get /healthz",
    "get /readyz",
    "post /v1/auth/dev/login",
    "get /v1/config",
    "get /v1/openapi.json",
];

/// Routes that refuse more than their least role says, with the reason. The list may only shrink.
const NARROWER: &[(&str, &str)] =
    &[("delete /v1/orgs/{orgSlug}/members/{userId}", "anyone may leave, but only an admin removes somebody else")];

const CALLERS: &[&str] = &["none", "garbage", "outsider", "former", "viewer", "member", "admin"];

/// The organization `acme` with its project `site`, and a caller of each kind.
struct World {
    app: App,
    somebody: String,
}

impl World {
    async fn new() -> Self {
        let app = App::start().await;
        let ada = app.sign_in("ada").await;
        ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201);
        ada.post("/v1/orgs/acme/projects", json!({ "name": "site" })).await.expect(201);
        for role in ["viewer", "member", "admin"] {
            app.joined(&ada, "acme", role, role).await;
        }
        let former = app.joined(&ada, "acme", "former", "admin").await;
        ada.delete(&format!("/v1/orgs/acme/members/{}", former.user_id)).await.expect(204);
        let somebody = app.sign_in("outsider").await.user_id;
        Self { app, somebody }
    }

    /// Signed in anew for each call, since one of the routes signs out.
    async fn caller(&self, kind: &str) -> Caller {
        match kind {
            "none" => self.app.anyone(),
            "garbage" => self.app.with_token("svc_ses_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
            subject => self.app.sign_in(subject).await,
        }
    }

    /// The path with something in it that exists, or that a caller in the right place could name.
    fn path(&self, template: &str) -> String {
        let path = template.replace("{orgSlug}", "acme").replace("{projectName}", "site");
        let path = path.replace("{userId}", &self.somebody).replace("{file}", "index.html");
        // Somebody else's, and so nothing to this caller.
        let path = path.replace("{sessionId}", "ses_01h455vb4pex5vsknk084sn02q");
        assert!(!path.contains('{'), "the matrix knows no value for a parameter of {template}");
        path
    }

    /// An empty body: whoever is let in is told what is missing, and nothing changes.
    async fn call(&self, kind: &str, method: &str, template: &str) -> u16 {
        let method: Method = method.to_ascii_uppercase().parse().unwrap();
        let send = |request: reqwest::RequestBuilder| match method {
            Method::GET | Method::DELETE => request,
            _ => request.json(&json!({})),
        };
        self.caller(kind).await.send(method.clone(), &self.path(template), send).await.status
    }
}

/// Whether the stated policy lets this kind of caller in.
fn may(kind: &str, operation: &Value) -> Result<(), u16> {
    let roles = ["viewer", "member", "admin"];
    let rank = |role: &str| roles.iter().position(|known| *known == role);
    match operation["x-place"].as_str().unwrap() {
        "open" => Ok(()),
        _ if kind == "none" || kind == "garbage" => Err(401),
        "account" => Ok(()),
        "org" | "project" => {
            let least = rank(operation["x-role"].as_str().expect("a route in an organization has a role"));
            if rank(kind) >= least && rank(kind).is_some() { Ok(()) } else { Err(403) }
        }
        other => panic!("the matrix knows no place {other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_lets_in_whom_it_says_and_nobody_else() {
    let world = World::new().await;
    let mut table = String::new();
    let (mut open, mut narrower) = (Vec::new(), Vec::new());
    let document = world.app.document.clone();
    for (method, template, operation) in document.operations() {
        let route = format!("{method} {template}");
        let is_open = operation["x-place"] == "open";
        let stated = operation["x-scope"].is_string() || operation["x-session-only"] == true;
        assert!(is_open != stated, "{route} must state a scope, or that it is open");
        if is_open {
            open.push(route.clone());
        }
        let mut answers = Vec::new();
        for kind in CALLERS {
            let status = world.call(kind, method, template).await;
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
    narrower.dedup();
    assert_eq!(narrower, NARROWER.iter().map(|(route, _)| *route).collect::<Vec<_>>(), "the list of exceptions");
    insta::assert_snapshot!("matrix", table);
}
