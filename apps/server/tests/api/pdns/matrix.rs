//! Who may call what: every route of the face, called with every kind of key, held against the policy that its types
//! state and against a snapshot.

use std::fmt::Write as _;

use gateway::{document, pdns_routes};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Keyed, key};
use crate::kit::{App, Caller};

const KINDS: &[&str] = &[
    "none",
    "garbage",
    "session",
    "revoked",
    "scopeless",
    "reader",
    "elsewhere",
    "limited",
    "zoned",
    "outsider",
    "former",
    "viewer",
    "member",
    "admin",
];

/// The organization `acme` with the zone `acme.example`, and a key of each kind. Those of its members are restricted to
/// it; what is not named after a role is an admin's.
async fn world() -> (App, Caller, Vec<Keyed>) {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    for org in ["acme", "secretive"] {
        ada.post("/v1/orgs", json!({ "slug": org })).await.expect(201);
    }
    ada.post("/v1/orgs/acme/projects", json!({ "name": "site" })).await.expect(201);
    let admin = app.joined(&ada, "acme", "admin", "admin").await;
    let _ = app.joined(&ada, "secretive", "admin", "admin").await;
    let former = app.joined(&ada, "acme", "former", "admin").await;
    let of_former = key(&former, &["dns:write"], Value::Null).await;
    ada.delete(&format!("/v1/orgs/acme/members/{}", former.user_id)).await.expect(204);
    let (write, acme) = (&["dns:write"][..], json!({ "org": "acme" }));
    let mut keys = Vec::new();
    for kind in KINDS {
        keys.push(match *kind {
            "none" => None,
            "garbage" => Some("svc_pat_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".to_owned()),
            "session" => admin.token.clone(),
            "revoked" => {
                let made = admin.post("/v1/me/tokens", json!({ "name": "old", "scopes": write })).await;
                let made = made.expect(201).clone();
                admin.delete(&format!("/v1/me/tokens/{}", made["id"].as_str().unwrap())).await.expect(204);
                made["token"].as_str().map(str::to_owned)
            }
            "scopeless" => Some(key(&admin, &["project:write", "org:write"], acme.clone()).await),
            "reader" => Some(key(&admin, &["dns:read"], acme.clone()).await),
            "elsewhere" => Some(key(&admin, write, json!({ "org": "secretive" })).await),
            "limited" => Some(key(&admin, write, json!({ "org": "acme", "projects": ["site"] })).await),
            // Made for each call, since the zone is deleted by some.
            "zoned" => None,
            "outsider" => Some(key(&app.sign_in("outsider").await, write, Value::Null).await),
            "former" => Some(of_former.clone()),
            "admin" => Some(key(&admin, write, acme.clone()).await),
            role => Some(key(&app.joined(&ada, "acme", role, role).await, write, acme.clone()).await),
        });
    }
    let keyed = keys.iter().map(|key| Keyed::new(&app, key.as_deref())).collect();
    (app, ada, keyed)
}

/// What the stated policy refuses this kind of key with.
fn refusal(kind: &str, path: &str, operation: &Value) -> Option<u16> {
    let roles = ["viewer", "member", "admin"];
    let rank = |role: &str| roles.iter().position(|known| *known == role);
    let below = |role: &str| rank(role) < rank(operation["x-role"].as_str().unwrap());
    match kind {
        "none" | "garbage" | "session" | "revoked" => Some(401),
        "scopeless" => Some(403),
        "reader" if operation["x-scope"] == "dns:write" => Some(403),
        _ if operation["x-place"] == "account" => None,
        "elsewhere" | "limited" | "outsider" | "former" => path.contains("{zone}").then_some(404),
        "reader" | "zoned" => None,
        role => below(role).then_some(403),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_lets_in_whom_it_says_and_nobody_else() {
    let (app, ada, keys) = world().await;
    let document = document(&pdns_routes());
    let mut table = String::new();
    for (template, methods) in document["paths"].as_object().unwrap() {
        assert!(template == "/api" || template.starts_with("/api/"), "{template} is not under the face");
        for (method, operation) in methods.as_object().unwrap() {
            let path = template.replace("{zone}", "acme.example.").replace("{kind}", "SOA-EDIT");
            let mut answers = Vec::new();
            for (kind, key) in KINDS.iter().zip(&keys) {
                // One of the routes deletes it.
                ada.post("/v1/orgs/acme/dns/zones", json!({ "name": "acme.example" })).await.expect(200);
                let verb: Method = method.to_ascii_uppercase().parse().unwrap();
                // An empty body: whoever is let in is told what is missing.
                let body = if [Method::GET, Method::DELETE].contains(&verb) { Value::Null } else { json!({}) };
                let answer = if *kind == "zoned" {
                    let restrict = json!({ "org": "acme", "zones": ["acme.example"] });
                    let zoned = super::key(&ada, &["dns:write"], restrict).await;
                    Keyed::new(&app, Some(&zoned)).send(verb, &path, body).await
                } else {
                    key.send(verb, &path, body).await
                };
                let refused = [401, 403, 404].contains(&answer.status).then_some(answer.status);
                assert_eq!(refused, refusal(kind, template, operation), "{method} {template} as {kind}");
                let told = String::from_utf8_lossy(&answer.bytes).contains("acme");
                let may_know = ["reader", "zoned", "viewer", "member", "admin"].contains(kind);
                assert!(!told || may_know, "{method} {template} tells {kind}: {}", answer.body);
                answers.push(format!("{kind} {}", answer.status));
            }
            let policy = ["x-place", "x-role", "x-scope"].map(|name| operation[name].as_str().unwrap_or("-"));
            writeln!(table, "{method} {template} [{}]: {}", policy.join(" "), answers.join(", ")).unwrap();
        }
    }
    insta::assert_snapshot!("matrix", table);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_face_is_no_part_of_the_served_document() {
    let app = App::start().await;
    assert!(app.document.operations().all(|(_, path, _)| !path.starts_with("/api")));
    let answer = app.anyone().get("/v1/config").await;
    answer.expect(200);
}
