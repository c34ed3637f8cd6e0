//! `env.auth` in a real `workerd`, with a node in its own process and its own Postgres.

use protocol::{Auth, AuthBrand, AuthProvider, SecretValue};
use reqwest::Method;
use sandbox::{IdentityProvider, IdentityServer};
use serde_json::{Value, json};
use testkit::PrivatePostgres;

use super::browser::Browser;
use super::{HOST, PROJECT, clients, kind, user_id};
use crate::control_plane::ControlPlane;
use crate::database::kit::{database, eventually};
use crate::node_process::NodeProcess;
use crate::workers::workerd;

struct Rig {
    node: NodeProcess,
    auth: Auth,
    _identity: IdentityServer,
    _postgres: PrivatePostgres,
}

impl Rig {
    /// Starts the node. Returns `None` without `workerd` or the programs of Postgres.
    async fn start() -> Option<Self> {
        workerd()?;
        let _ = rustls::crypto::ring::default_provider().install_default();
        let postgres = PrivatePostgres::start()?;
        let (core, identity) = (ControlPlane::start().await, IdentityServer::start().await);
        let settings = [
            ("SVC_NODE_DATABASE_URL", postgres.url()),
            ("SVC_NODE_DATABASE_ADDRESS", postgres.address()),
            ("SVC_NODE_DATABASE_SSLMODE", "disable".to_owned()),
            ("SVC_NODE_PG_BIN", postgres.programs().display().to_string()),
        ];
        let desired = database(format!("dbs_{:0>26}", 1));
        core.set_part(PROJECT, "database", serde_json::to_value(&desired).unwrap());
        let providers = clients(&identity, "http://app.localhost").into_iter().map(|(provider, client)| AuthProvider {
            provider: kind(provider),
            registration: 1,
            client_id: client.client_id,
            client_secret: SecretValue::new(client.client_secret),
        });
        let (brand, providers) = (AuthBrand::default(), providers.collect());
        let auth = Auth { grant: 1, session_days: 30, brand, provider_revision: 1, providers };
        core.set_part(PROJECT, "auth", serde_json::to_value(&auth).unwrap());
        core.deploy(PROJECT, &[("worker/index.js", include_bytes!("worker.js"))]);
        let node = NodeProcess::start(core, settings.into_iter().chain(identity.settings())).await;
        node.visitor().sees(HOST, "/granted", 200, "true").await;
        let is_ready = async || node.visitor().get(HOST, "/__svc/auth/login").await.status == 200;
        eventually("the database", is_ready).await;
        Some(Self { node, auth, _identity: identity, _postgres: postgres })
    }

    fn browser(&self) -> Browser {
        Browser::new(self.node.visitor(), HOST)
    }

    async fn signed_in(&self, provider: IdentityProvider, person: &str) -> Browser {
        let mut browser = self.browser();
        assert_eq!(browser.sign_in(provider, person, "/").await.status, 303);
        browser
    }
}

/// Returns the outcome of a call.
async fn call(browser: &mut Browser, path: &str) -> Value {
    let response = browser.get(path).await;
    assert_eq!(response.status, 200, "{}", response.body);
    serde_json::from_str(&response.body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn interface_is_that_of_the_specification() {
    let Some(rig) = Rig::start().await else { return };
    let mut ada = rig.signed_in(IdentityProvider::WebAccount, "ada").await;
    let user = ada.user().await;
    assert_eq!(call(&mut ada, "/current").await["value"], user);
    assert_eq!(call(&mut ada, "/current-copy").await["value"], user);
    assert_eq!(call(&mut ada, "/current-changed").await["value"], user);
    let id = user["id"].as_str().unwrap();
    assert_eq!(call(&mut ada, &format!("/get?id={id}")).await["value"], user);
    for unknown in ["sub_00000000000000000000000001", "", "x", &"x".repeat(5000)] {
        assert_eq!(call(&mut ada, &format!("/get?id={unknown}")).await, json!({ "value": null }), "{unknown}");
        assert_eq!(call(&mut ada, &format!("/delete?id={unknown}")).await, json!({ "value": null }), "{unknown}");
    }
    for invalid in ["/get-number", "/current-other", "/list?limit=0", "/list?limit=1.5", "/list?cursor=x"] {
        let failed = call(&mut ada, invalid).await;
        assert_eq!((&failed["code"], &failed["isError"]), (&json!("invalid_argument"), &json!(true)), "{invalid}");
    }
    let mut ids = vec![id.to_owned()];
    for person in ["grace", "nameless", "mallory"] {
        ids.push(user_id(&mut rig.signed_in(IdentityProvider::WebAccount, person).await).await);
    }
    let mut listed = Vec::new();
    let mut path = "/list?limit=3".to_owned();
    for length in [3, 1] {
        let page = call(&mut ada, &path).await["value"].clone();
        let users = page["users"].as_array().unwrap().clone();
        assert_eq!((users.len(), page["cursor"].is_null()), (length, length == 1), "{page}");
        listed.extend(users.iter().map(|user| user["id"].as_str().unwrap().to_owned()));
        path = format!("/list?limit=3&cursor={}", page["cursor"].as_str().unwrap_or_default());
    }
    assert_eq!(listed, ids, "in the order of creation");
    assert_eq!(call(&mut ada, "/list-all").await["value"]["users"].as_array().unwrap().len(), 4);
    // Deleting a user ends the sessions.
    let mut other = rig.browser();
    assert_eq!(call(&mut other, &format!("/delete?id={id}")).await, json!({ "value": null }));
    assert_eq!(call(&mut ada, "/current").await, json!({ "value": null }));
    assert_eq!(call(&mut other, &format!("/get?id={id}")).await, json!({ "value": null }));
    let mut again = rig.signed_in(IdentityProvider::WebAccount, "ada").await;
    assert_ne!(user_id(&mut again).await, id);
    let address = again.begin(IdentityProvider::WebAccount, "/").await;
    let state = address.split("state=").nth(1).unwrap().split('&').next().unwrap();
    assert_eq!(again.get(&format!("/__svc/auth/callback/webaccount?state={state}&error=x")).await.status, 502);
    rig.node
        .has_metrics(&[
            r#"svc_node_auth_sign_ins_total{outcome="error_response",provider="webaccount"} 1"#,
            r#"svc_node_auth_sign_ins_total{outcome="ok",provider="webaccount"} 5"#,
            "svc_node_auth_resolve_seconds_count",
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn current_user_cannot_be_forged_and_the_cookie_is_not_shown() {
    let Some(rig) = Rig::start().await else { return };
    let mut ada = rig.signed_in(IdentityProvider::CodeHost, "ada").await;
    ada.cookies.insert("theme".to_owned(), "dark".to_owned());
    let seen = call(&mut ada, "/seen").await;
    assert_eq!(seen["cookie"], "theme=dark");
    let handle = seen["handle"].as_str().unwrap().to_owned();
    let cookie = ada.cookies["svc_auth"].clone();
    let mut visitor = rig.browser();
    // Visitors cannot send the header, and worker code cannot use a cookie.
    for headers in [
        &[("svc-auth-session", handle.as_str())][..],
        &[("Svc-Auth-Session", &handle), ("connection", "svc-auth-session")],
    ] {
        let response = visitor.send(Method::GET, "/seen", headers).await;
        assert_eq!(response.body, r#"{"cookie":null,"handle":null}"#, "{headers:?}");
        assert_eq!(visitor.send(Method::GET, "/current", headers).await.body, r#"{"value":null}"#);
    }
    for forged in ["x", &handle[1..], &"A".repeat(80), &"A".repeat(5000)] {
        let path = format!("/current-forged?handle={forged}&cookie=svc_auth%3D{cookie}");
        assert_eq!(call(&mut visitor, &path).await, json!({ "value": null }), "{forged}");
    }
    // A page of another origin causes no action of the visitor.
    for headers in [&[("origin", "http://b.localhost"), ("sec-fetch-site", "same-site")][..], &[("origin", "null")]] {
        assert_eq!(ada.send(Method::POST, "/current", headers).await.body, r#"{"value":null}"#);
    }
    let own = [("origin", "http://app.localhost")];
    assert!(ada.send(Method::POST, "/current", &own).await.body.contains("Ada Lovelace"));
    // A logout ends the session immediately.
    let copy = ada.cookies.clone();
    assert_eq!(ada.log_out().await.status, 303);
    ada.cookies = copy;
    assert_eq!(call(&mut ada, "/current").await, json!({ "value": null }));
    let path = format!("/current-forged?handle={handle}");
    assert_eq!(call(&mut ada, &path).await, json!({ "value": null }));
}

#[tokio::test(flavor = "multi_thread")]
async fn old_cookie_is_sent_again_with_private_responses() {
    let Some(rig) = Rig::start().await else { return };
    let mut ada = rig.signed_in(IdentityProvider::CodeHost, "ada").await;
    assert_eq!(ada.get("/").await.header("set-cookie"), "");
    let (token, issued_at) = ada.cookies["svc_auth"].split_once('.').unwrap();
    let old = format!("{token}.{}", issued_at.parse::<u64>().unwrap() - 90_000);
    ada.cookies.insert("svc_auth".to_owned(), old.clone());
    assert_eq!(ada.get("/cached").await.header("set-cookie"), "");
    assert_eq!(ada.cookies["svc_auth"], old);
    let renewed = ada.get("/").await;
    assert!(renewed.header("set-cookie").starts_with("svc_auth="));
    assert_eq!(renewed.header("cache-control"), "private");
    assert_ne!(ada.cookies["svc_auth"], old);
    assert!(ada.user().await.is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn request_finds_its_user_with_one_statement() {
    let Some(rig) = Rig::start().await else { return };
    let mut ada = rig.signed_in(IdentityProvider::WebAccount, "ada").await;
    let users = call(&mut ada, "/current-twice").await["value"].clone();
    assert!(users[0]["id"].is_string() && users[0] == users[1], "{users}");
    rig.node.has_metrics(&["svc_node_auth_resolve_seconds_count 1\n"]).await;
    // The next request asks again, and so does code that has deleted a user.
    assert!(call(&mut ada, "/current").await["value"].is_object());
    rig.node.has_metrics(&["svc_node_auth_resolve_seconds_count 2\n"]).await;
    // So does a call in a long response.
    assert!(call(&mut ada, "/current-later").await["value"].is_object());
    rig.node.has_metrics(&["svc_node_auth_resolve_seconds_count 4\n"]).await;
    assert_eq!(call(&mut ada, "/current-deleted").await, json!({ "value": null }));
}

#[tokio::test(flavor = "multi_thread")]
async fn binding_appears_and_goes_with_the_grant() {
    let Some(rig) = Rig::start().await else { return };
    let (core, visitor) = (&rig.node.core, rig.node.visitor());
    // The manifest of the code is empty: the binding needs only the grant.
    let mut ada = rig.signed_in(IdentityProvider::CodeHost, "ada").await;
    assert!(call(&mut ada, "/current").await["value"].is_object());
    core.set_part(PROJECT, "auth", Value::Null);
    visitor.sees(HOST, "/granted", 200, "false").await;
    let path = ada.get("/__svc/auth/session").await;
    assert_eq!((path.status, path.body.as_str()), (200, "page"), "the path is the worker's");
    let auth = Auth { grant: 2, ..rig.auth.clone() };
    core.set_part(PROJECT, "auth", serde_json::to_value(&auth).unwrap());
    visitor.sees(HOST, "/granted", 200, "true").await;
    assert_eq!(call(&mut ada, "/current").await, json!({ "value": null }));
}
