//! The authorization matrix of the PowerDNS-compatible API: every route with every kind of key. The statuses are
//! compared with the declared policy and with a snapshot.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gateway::{document, pdns_routes};
use reqwest::Method;
use serde_json::{Value, json};

use super::{PdnsClient, key};
use crate::support::{App, Caller};

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

/// Creates the organization `acme` with the zone `acme.example`, and a key of each kind. The keys of members are
/// restricted to `acme`. A key whose name is not a role belongs to an admin.
async fn setup() -> (App, Caller, Vec<PdnsClient>) {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    for org in ["acme", "secretive"] {
        ada.post("/v1/orgs", json!({ "slug": org })).await.expect(201);
    }
    ada.post("/v1/orgs/acme/projects", json!({ "name": "site" })).await.expect(201);
    let admin = app.add_member(&ada, "acme", "admin", "admin").await;
    let _ = app.add_member(&ada, "secretive", "admin", "admin").await;
    let former = app.add_member(&ada, "acme", "former", "admin").await;
    let former_key = key(&former, &["dns:write"], Value::Null).await;
    ada.delete(&format!("/v1/orgs/acme/members/{}", former.user_id)).await.expect(204);
    let (write, acme) = (&["dns:write"][..], json!({ "org": "acme" }));
    let mut keys = Vec::new();
    for kind in KINDS {
        keys.push(match *kind {
            "none" => None,
            "garbage" => Some("svc_pat_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".to_owned()),
            "session" => admin.token.clone(),
            "revoked" => {
                let created = admin.post("/v1/me/tokens", json!({ "name": "old", "scopes": write })).await;
                let created = created.expect(201).clone();
                admin.delete(&format!("/v1/me/tokens/{}", created["id"].as_str().unwrap())).await.expect(204);
                created["token"].as_str().map(str::to_owned)
            }
            "scopeless" => Some(key(&admin, &["project:write", "org:write"], acme.clone()).await),
            "reader" => Some(key(&admin, &["dns:read"], acme.clone()).await),
            "elsewhere" => Some(key(&admin, write, json!({ "org": "secretive" })).await),
            "limited" => Some(key(&admin, write, json!({ "org": "acme", "projects": ["site"] })).await),
            // This key is created for each call, because some routes delete the zone.
            "zoned" => None,
            "outsider" => Some(key(&app.sign_in("outsider").await, write, Value::Null).await),
            "former" => Some(former_key.clone()),
            "admin" => Some(key(&admin, write, acme.clone()).await),
            role => Some(key(&app.add_member(&ada, "acme", role, role).await, write, acme.clone()).await),
        });
    }
    let keyed = keys.iter().map(|key| PdnsClient::new(&app, key.as_deref())).collect();
    (app, ada, keyed)
}

/// Returns the expected status of the error for this kind of key, according to the declared policy.
fn expected_error(kind: &str, path: &str, operation: &Value) -> Option<u16> {
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
async fn routes_admit_exactly_the_documented_callers() {
    let (app, ada, keys) = setup().await;
    let document = document(&pdns_routes());
    let mut table = String::new();
    for (template, methods) in document["paths"].as_object().unwrap() {
        assert!(template == "/api" || template.starts_with("/api/"), "{template} is not below /api");
        for (method, operation) in methods.as_object().unwrap().iter().collect::<BTreeMap<_, _>>() {
            let path = template.replace("{zone}", "acme.example.").replace("{kind}", "SOA-EDIT").replace("{key}", "0");
            let mut responses = Vec::new();
            for (kind, key) in KINDS.iter().zip(&keys) {
                // One of the routes deletes the zone.
                ada.post("/v1/orgs/acme/dns/zones", json!({ "name": "acme.example" })).await.expect(200);
                let verb: Method = method.to_ascii_uppercase().parse().unwrap();
                // An authorized caller gets a validation error for the empty body.
                let body = if [Method::GET, Method::DELETE].contains(&verb) { Value::Null } else { json!({}) };
                let response = if *kind == "zoned" {
                    let restrict = json!({ "org": "acme", "zones": ["acme.example"] });
                    let zoned = super::key(&ada, &["dns:write"], restrict).await;
                    PdnsClient::new(&app, Some(&zoned)).send(verb, &path, body).await
                } else {
                    key.send(verb, &path, body).await
                };
                let refused = [401, 403, 404].contains(&response.status).then_some(response.status);
                assert_eq!(refused, expected_error(kind, template, operation), "{method} {template} as {kind}");
                let reveals = String::from_utf8_lossy(&response.bytes).contains("acme");
                let has_access = ["reader", "zoned", "viewer", "member", "admin"].contains(kind);
                assert!(!reveals || has_access, "{method} {template} reveals acme to {kind}: {}", response.body);
                responses.push(format!("{kind} {}", response.status));
            }
            let policy = ["x-place", "x-role", "x-scope"].map(|name| operation[name].as_str().unwrap_or("-"));
            writeln!(table, "{method} {template} [{}]: {}", policy.join(" "), responses.join(", ")).unwrap();
        }
    }
    insta::assert_snapshot!("matrix", table);
}

#[tokio::test(flavor = "multi_thread")]
async fn powerdns_api_is_not_in_the_openapi_document() {
    let app = App::start().await;
    assert!(app.document.operations().all(|(_, path, _)| !path.starts_with("/api")));
    let response = app.anonymous().get("/v1/config").await;
    response.expect(200);
}
