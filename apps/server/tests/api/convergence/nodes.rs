//! From the upload of a bundle to the served page, with a node in the same process as the server.

use std::time::Duration;

use convergence::NodeKind;
use kernel::audit::Actor;
use sandbox::{DnsServer, RecordType};
use serde_json::json;

use crate::support::{App, bundle, client, eventually, nodes, site};

const DEPLOYMENTS: &str = "/v1/orgs/ada/projects/site/deployments";

/// A node of the test server.
pub struct TestNode {
    pub address: String,
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl TestNode {
    /// Registers a node at the server and starts it.
    pub async fn start(app: &App) -> Self {
        Self::listening(app, "127.0.0.1:0").await
    }

    /// Registers a node and starts it at this address.
    pub async fn listening(app: &App, listen: &str) -> Self {
        let token = token(app, "edge").await;
        let settings = settings::Settings::read(
            node::config::TABLE,
            &node::config::CLAIM,
            [
                ("SVC_EDGE_LISTEN".to_owned(), listen.to_owned()),
                ("SVC_NODE_CORE_URL".to_owned(), app.internal.clone()),
                ("SVC_NODE_TOKEN".to_owned(), token),
                ("SVC_NODE_DIR".to_owned(), app.bundles.join("node").display().to_string()),
            ],
        );
        let _ = client();
        let node = node::Node::start(&node::config::Config::new(&settings.unwrap()).unwrap()).unwrap();
        let address = node.address().to_string();
        Self { address, task: tokio::spawn(node.run_until(std::future::pending())) }
    }

    /// Returns the status and page that the front returns for a host.
    pub async fn page(&self, host: &str) -> (u16, String) {
        let response = client().get(format!("http://{}/", self.address)).header("host", host).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// Waits until the front returns this status for a host.
    pub async fn wait_for_status(&self, host: &str, status: u16) {
        let is_returned = async || (self.page(host).await.0 == status).then_some(());
        eventually(&format!("{host} returns {status}"), is_returned).await;
    }

    /// Waits until the front serves this page for a host.
    pub async fn wait_for_page(&self, host: &str, text: &str) {
        let is_served = async || (self.page(host).await == (200, text.to_owned())).then_some(());
        eventually(&format!("{host} serves {text:?}"), is_served).await;
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Registers a node and returns its token.
async fn token(app: &App, name: &str) -> String {
    let nodes = nodes(&app.database.url());
    let node = nodes.add(&Actor::operator("test"), name.parse().unwrap(), NodeKind::App).await.unwrap();
    node.token.reveal().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn node_serves_deployments_and_rollbacks() {
    let app = App::start().await;
    let edge = TestNode::start(&app).await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    assert_eq!(edge.page("site-ada.localhost").await.0, 404);
    for page in ["one", "two"] {
        ada.upload(DEPLOYMENTS, site(page)).await.expect(201);
        edge.wait_for_page("site-ada.localhost", page).await;
    }
    ada.post("/v1/orgs/ada/projects/site/rollback", json!({ "version": 1 })).await.expect(200);
    edge.wait_for_page("site-ada.localhost", "one").await;
    let placement = ada.get("/v1/orgs/ada/projects/site").await.expect(200)["placement"].clone();
    assert_eq!(placement, json!({ "state": "active", "epoch": 1 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn project_without_a_node_is_placed_when_a_node_joins() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.upload(DEPLOYMENTS, site("early")).await.expect(201);
    assert_eq!(ada.get("/v1/orgs/ada/projects/site").await.expect(200)["placement"]["state"], "pending");
    let edge = TestNode::start(&app).await;
    edge.wait_for_page("site-ada.localhost", "early").await;
    assert_eq!(ada.get("/v1/orgs/ada/projects/site").await.expect(200)["placement"]["state"], "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn internal_listener_serves_each_node_only_its_own_state() {
    let app = App::start().await;
    let (first, second) = (token(&app, "first").await, token(&app, "second").await);
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let worker = bundle(&[("svc.json", b"{}"), ("worker/index.js", b"export default {}")]);
    let digest = ada.upload(DEPLOYMENTS, worker).await.expect(201)["digest"].as_str().unwrap().to_owned();
    let get = async |path: &str, token: &str| {
        let response = client().get(format!("{}{path}", app.internal)).bearer_auth(token).send().await.unwrap();
        let (status, body) = (response.status().as_u16(), response.bytes().await.unwrap());
        (status, body.to_vec())
    };
    let bundle = format!("/internal/v1/bundles/{digest}");
    let desired = get("/internal/v1/desired?since=0", &first).await;
    let desired: serde_json::Value = serde_json::from_slice(&desired.1).unwrap();
    assert_eq!(desired["parts"][0]["desired"]["bundle"], json!(digest));
    assert_eq!(
        (&desired["schema"], &desired["full"], &desired["revision"]),
        (&json!(protocol::SCHEMA), &json!(true), &json!(2))
    );
    let others: serde_json::Value = serde_json::from_slice(&get("/internal/v1/desired", &second).await.1).unwrap();
    assert_eq!(others["parts"], json!([]));
    assert_eq!(get(&bundle, &first).await.0, 200);
    assert_eq!(get(&bundle, &second).await.0, 404);
    for path in ["/internal/v1/desired", &bundle] {
        assert_eq!(get(path, "svc_nod_x").await.0, 401);
        assert_eq!(get(path, ada.token.as_deref().unwrap()).await.0, 401);
    }
    for query in ["since=-1", "wait=-1", "since=x"] {
        let (status, body) = get(&format!("/internal/v1/desired?{query}"), &first).await;
        let error: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let message = error["message"].as_str().unwrap();
        assert_eq!(status, 400, "{query}");
        assert!(message.starts_with("since and wait must be non-negative integers"), "{query}: {message}");
    }
    // A change completes a long poll before its timeout.
    let (woken, changed) = tokio::join!(get("/internal/v1/desired?since=2&wait=30", &first), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        ada.upload(DEPLOYMENTS, site("two")).await.expect(201);
        std::time::Instant::now()
    });
    let woken: serde_json::Value = serde_json::from_slice(&woken.1).unwrap();
    assert_eq!((&woken["revision"], &woken["full"]), (&json!(3), &json!(false)));
    // This is less than the five seconds after which a long poll reads the state again without a wake-up.
    assert!(changed.elapsed() < Duration::from_secs(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_are_applied_once_and_rejected_with_the_invalid_field() {
    let app = App::start().await;
    let node = token(&app, "edge").await;
    let ada = app.sign_in("ada").await;
    let project = ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201)["id"].clone();
    ada.upload(DEPLOYMENTS, site("one")).await.expect(201);
    let report = async |batch: i64, kind: &str, report: serde_json::Value| {
        let reports = json!([{ "project": project, "kind": kind, "report": report }]);
        let sent = client().post(format!("{}/internal/v1/reports", app.internal)).bearer_auth(&node);
        let response = sent.json(&json!({ "batch": batch, "reports": reports })).send().await.unwrap();
        (response.status().as_u16(), response.json::<serde_json::Value>().await.unwrap())
    };
    let crashed = json!({ "version": 1, "state": "crashed", "message": "No such module." });
    let long = json!({ "version": 1, "state": "crashed", "message": "x".repeat(1001) });
    for (kind, refused, path) in [
        ("weather", &crashed, "reports[0].kind"),
        ("deployment", &json!({ "version": 0, "state": "crashed", "message": null }), "reports[0].report.version"),
        ("deployment", &json!({ "version": 1, "state": "idle", "message": null }), "reports[0].report.state"),
        ("deployment", &long, "reports[0].report.message"),
    ] {
        let (status, refusal) = report(1, kind, refused.clone()).await;
        assert_eq!((status, &refusal["code"]), (400, &json!("bad_request")));
        assert_eq!(refusal["details"]["fields"][0]["path"], path, "{refusal}");
    }
    for _ in 0..2 {
        assert_eq!(report(7, "deployment", crashed.clone()).await, (200, json!({ "batch": 7 })));
    }
    let failed = json!({ "version": 1, "state": "failed", "message": null });
    assert_eq!(report(6, "deployment", failed).await, (200, json!({ "batch": 7 })));
    let deployment = ada.get(&format!("{DEPLOYMENTS}/1")).await.expect(200).clone();
    assert_eq!((&deployment["status"], &deployment["statusMessage"]), (&json!("crashed"), &json!("No such module.")));
}

#[tokio::test(flavor = "multi_thread")]
async fn hostnames_and_access_policies_reach_the_node() {
    let dns = DnsServer::start().await;
    let resolver = dns.address();
    let app = App::with(|config| config.dns_resolver = Some(resolver)).await;
    let edge = TestNode::start(&app).await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.upload(DEPLOYMENTS, site("page")).await.expect(201);
    edge.wait_for_page("site-ada.localhost", "page").await;
    // A claimed hostname is served after its verification.
    let hostnames = "/v1/orgs/ada/projects/site/hostnames";
    ada.post(hostnames, json!({ "name": "www.example.org" })).await.expect(200);
    assert_eq!(edge.page("www.example.org").await.0, 404);
    dns.set("www.example.org", RecordType::CNAME, &["fallback.localhost."]);
    ada.post(&format!("{hostnames}/www.example.org/verify"), json!({})).await.expect(200);
    edge.wait_for_page("www.example.org", "page").await;

    let key = ada.post("/v1/orgs/ada/projects/site/access/bypass", json!({})).await.expect(200)["secret"].clone();
    ada.put("/v1/orgs/ada/projects/site/access", json!({ "mode": "org" })).await.expect(200);
    edge.wait_for_status("www.example.org", 302).await;
    let by_key = async |key: &str| {
        let request = client().get(format!("http://{}/", edge.address)).header("host", "www.example.org");
        request.header("svc-access-bypass", key).send().await.unwrap().status().as_u16()
    };
    assert_eq!((by_key(key.as_str().unwrap()).await, by_key("svc_byp_wrong").await), (200, 302));
    ada.put("/v1/orgs/ada/projects/site/access", json!({ "mode": "public" })).await.expect(200);
    edge.wait_for_status("www.example.org", 200).await;

    let renamed = ada.patch("/v1/orgs/ada/projects/site", json!({ "name": "shop" })).await;
    renamed.expect(200);
    edge.wait_for_page("shop-ada.localhost", "page").await;
    edge.wait_for_status("site-ada.localhost", 404).await;
    ada.send(reqwest::Method::DELETE, "/v1/orgs/ada/projects/shop", |it| it.json(&json!({ "confirm": "shop" })))
        .await
        .expect(204);
    edge.wait_for_status("shop-ada.localhost", 404).await;
    edge.wait_for_status("www.example.org", 404).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_shows_the_status_that_its_node_reports() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let first = ada.upload(DEPLOYMENTS, site("one")).await.expect(201).clone();
    assert_eq!((&first["status"], &first["statusMessage"]), (&json!("pending"), &json!(null)));
    let edge = TestNode::start(&app).await;
    let wait_for = async |version: i32, status: &str| {
        eventually(&format!("version {version} has the status {status}"), async || {
            let deployment = ada.get(&format!("{DEPLOYMENTS}/{version}")).await.expect(200).clone();
            (deployment["status"] == status).then_some(deployment)
        })
        .await
    };
    assert_eq!(wait_for(1, "serving").await["id"], first["id"]);
    ada.upload(DEPLOYMENTS, site("two")).await.expect(201);
    wait_for(2, "serving").await;
    wait_for(1, "retired").await;
    // A second upload of the same bundle is a new version with its own status.
    ada.upload(DEPLOYMENTS, site("two")).await.expect(201);
    wait_for(3, "serving").await;
    let back = ada.post("/v1/orgs/ada/projects/site/rollback", json!({ "version": 1 })).await.expect(200).clone();
    assert_eq!(back["status"], "pending");
    wait_for(1, "serving").await;
    let list = ada.get(DEPLOYMENTS).await.expect(200).clone();
    let statuses: Vec<_> = list["items"].as_array().unwrap().iter().map(|it| it["status"].clone()).collect();
    assert_eq!(statuses, ["retired", "retired", "serving"]);
    for version in ["4", "01", "+1", "0", "x", "99999999999"] {
        ada.get(&format!("{DEPLOYMENTS}/{version}")).await.expect_error(404, "not_found");
    }
    drop(edge);
}

#[tokio::test(flavor = "multi_thread")]
async fn member_signs_in_through_the_dashboard_and_a_revoked_node_loses_its_projects() {
    let app = App::start().await;
    let edge = TestNode::start(&app).await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.upload(DEPLOYMENTS, site("inside")).await.expect(201);
    edge.wait_for_page("site-ada.localhost", "inside").await;
    ada.put("/v1/orgs/ada/projects/site/access", json!({ "mode": "org" })).await.expect(200);
    let visit = async |path: &str, cookie: &str| {
        let request = client().get(format!("http://{}{path}", edge.address)).header("host", "site-ada.localhost");
        request.header("cookie", cookie).send().await.unwrap()
    };
    let location = |response: &reqwest::Response| response.headers()["location"].to_str().unwrap().to_owned();
    edge.wait_for_status("site-ada.localhost", 302).await;
    let sent = visit("/?a=b", "").await;
    let screen: url::Url = location(&sent).parse().unwrap();
    assert_eq!((screen.host_str(), screen.path()), (Some("localhost"), "/access/authorize"));
    let asked: std::collections::HashMap<_, _> = screen.query_pairs().into_owned().collect();
    let redirect = ada.post("/v1/access/authorize", json!(asked)).await.expect(200)["redirect"].clone();
    let callback = redirect.as_str().unwrap().strip_prefix("http://site-ada.localhost").unwrap();
    let granted = visit(callback, "").await;
    assert_eq!((granted.status().as_u16(), location(&granted).as_str()), (302, "/?a=b"));
    let cookie = granted.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    assert_eq!(visit("/", &cookie).await.status(), 200);
    assert_eq!(visit(callback, "").await.status(), 403, "an authorization code was accepted twice");

    let nodes = nodes(&app.database.url());
    let revoked = nodes.revoke(&Actor::operator("test"), &"edge".parse().unwrap()).await.unwrap();
    assert_eq!((revoked.moved, revoked.pending), (0, 1));
    ada.upload(DEPLOYMENTS, site("later")).await.expect(201);
    assert_eq!(ada.get("/v1/orgs/ada/projects/site").await.expect(200)["placement"]["state"], "pending");
    // The revoked node keeps serving its last known state.
    assert_eq!(visit("/", &cookie).await.text().await.unwrap(), "inside");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_need_a_node_return_no_core_when_the_link_is_off() {
    let app = App::with(|config| config.core = server::config::CoreLink::Off).await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    // Deployments are accepted, but are not served until the link is on.
    ada.upload(DEPLOYMENTS, site("one")).await.expect(201);
    let access = "/v1/orgs/ada/projects/site/access";
    ada.get(access).await.expect_error(503, "no_core");
    ada.put(access, json!({ "mode": "org" })).await.expect_error(503, "no_core");
    ada.post(&format!("{access}/bypass"), json!({})).await.expect_error(503, "no_core");
    ada.delete(&format!("{access}/bypass")).await.expect_error(503, "no_core");
    let authorize = json!({ "to": "site-ada.localhost", "next": "/" });
    ada.post("/v1/access/authorize", authorize).await.expect_error(503, "no_core");
    // Authorization is checked first.
    app.sign_in("eve").await.get(access).await.expect_error(403, "forbidden");
    let node = token(&app, "edge").await;
    let poll = client().get(format!("{}/internal/v1/desired", app.internal)).bearer_auth(node).send().await.unwrap();
    assert_eq!(poll.status(), 503);
}
