//! From an upload to a page: a real node beside the server.

use std::time::Duration;

use convergence::Convergence;
use kernel::audit::Actor;
use kernel::{Secret, World};
use providers::testing::{DnsServer, RecordType};
use serde_json::json;
use store::Store;

use crate::kit::{App, bundle, client, site};

const DEPLOYMENTS: &str = "/v1/orgs/ada/projects/site/deployments";

/// A node that serves what the app decides.
pub struct Edge {
    pub address: String,
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Edge {
    /// Adds a node to the app and starts it.
    pub async fn start(app: &App) -> Self {
        let token = token(app, "edge").await;
        let settings = settings::Settings::read(
            node::config::TABLE,
            &node::config::CLAIM,
            [
                ("SVC_EDGE_LISTEN".to_owned(), "127.0.0.1:0".to_owned()),
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

    /// What the front answers under a host name.
    pub async fn page(&self, host: &str) -> (u16, String) {
        let answer = client().get(format!("http://{}/", self.address)).header("host", host).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// Waits until a page shows this text.
    pub async fn shows(&self, host: &str, text: &str) {
        let mut last = (0, String::new());
        for _ in 0..100 {
            last = self.page(host).await;
            if last == (200, text.to_owned()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{host} still shows {last:?} instead of {text:?}");
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The credential of a new node.
async fn token(app: &App, name: &str) -> String {
    let store = Store::new(&store::Config::new(Secret::new(app.database.url()), "test"), World::system()).unwrap();
    let node = Convergence::new(store).node_add(&Actor::operator("test"), name.parse().unwrap()).await.unwrap();
    node.token.reveal().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deployed_is_served_changed_and_rolled_back() {
    let app = App::start().await;
    let edge = Edge::start(&app).await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    assert_eq!(edge.page("site-ada.localhost").await.0, 404);
    for page in ["one", "two"] {
        ada.upload(DEPLOYMENTS, site(page)).await.expect(201);
        edge.shows("site-ada.localhost", page).await;
    }
    ada.post("/v1/orgs/ada/projects/site/rollback", json!({ "version": 1 })).await.expect(200);
    edge.shows("site-ada.localhost", "one").await;
    let placement = ada.get("/v1/orgs/ada/projects/site").await.expect(200)["placement"].clone();
    assert_eq!(placement, json!({ "state": "active", "epoch": 1 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_deployed_before_there_is_a_node_waits_for_one() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.upload(DEPLOYMENTS, site("early")).await.expect(201);
    assert_eq!(ada.get("/v1/orgs/ada/projects/site").await.expect(200)["placement"]["state"], "pending");
    let edge = Edge::start(&app).await;
    edge.shows("site-ada.localhost", "early").await;
    assert_eq!(ada.get("/v1/orgs/ada/projects/site").await.expect(200)["placement"]["state"], "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_internal_listener_is_for_nodes_and_each_sees_its_own() {
    let app = App::start().await;
    let (first, second) = (token(&app, "first").await, token(&app, "second").await);
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let worker = bundle(&[("svc.json", "{}"), ("worker/index.js", "export default {}")]);
    let digest = ada.upload(DEPLOYMENTS, worker).await.expect(201)["digest"].as_str().unwrap().to_owned();
    let get = async |path: &str, token: &str| {
        let answer = client().get(format!("{}{path}", app.internal)).bearer_auth(token).send().await.unwrap();
        let (status, body) = (answer.status().as_u16(), answer.bytes().await.unwrap());
        (status, body.to_vec())
    };
    let bundle = format!("/internal/v1/bundles/{digest}");
    let mine = get("/internal/v1/desired?since=0", &first).await;
    let mine: serde_json::Value = serde_json::from_slice(&mine.1).unwrap();
    assert_eq!(mine["sites"][0]["site"]["bundle"], json!(digest));
    assert_eq!((&mine["schema"], &mine["full"], &mine["revision"]), (&json!(2), &json!(true), &json!(2)));
    let others: serde_json::Value = serde_json::from_slice(&get("/internal/v1/desired", &second).await.1).unwrap();
    assert_eq!(others["sites"], json!([]));
    assert_eq!(get(&bundle, &first).await.0, 200);
    assert_eq!(get(&bundle, &second).await.0, 404);
    for path in ["/internal/v1/desired", &bundle] {
        assert_eq!(get(path, "svc_nod_x").await.0, 401);
        assert_eq!(get(path, ada.token.as_deref().unwrap()).await.0, 401);
    }
    // A poll that waits is woken by the change, long before its time is up.
    let since = std::time::Instant::now();
    let (woken, _) = tokio::join!(get("/internal/v1/desired?since=2&wait=30", &first), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        ada.upload(DEPLOYMENTS, site("two")).await.expect(201);
    });
    let woken: serde_json::Value = serde_json::from_slice(&woken.1).unwrap();
    assert_eq!((&woken["revision"], &woken["full"]), (&json!(3), &json!(false)));
    // Polls look again by themselves after five seconds.
    assert!(since.elapsed() < Duration::from_secs(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_policies_hold_at_the_front() {
    let dns = DnsServer::start().await;
    let resolver = dns.address();
    let app = App::with(|config| config.dns_resolver = Some(resolver)).await;
    let edge = Edge::start(&app).await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.upload(DEPLOYMENTS, site("page")).await.expect(201);
    edge.shows("site-ada.localhost", "page").await;
    // A claim is served once it is proved.
    let hostnames = "/v1/orgs/ada/projects/site/hostnames";
    ada.post(hostnames, json!({ "name": "www.example.org" })).await.expect(200);
    assert_eq!(edge.page("www.example.org").await.0, 404);
    dns.set("www.example.org", RecordType::CNAME, &["fallback.localhost."]);
    ada.post(&format!("{hostnames}/www.example.org/verify"), json!({})).await.expect(200);
    edge.shows("www.example.org", "page").await;

    let becomes = async |host: &str, status: u16| {
        for _ in 0..100 {
            if edge.page(host).await.0 == status {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{host} does not become {status}");
    };
    let key = ada.post("/v1/orgs/ada/projects/site/access/bypass", json!({})).await.expect(200)["secret"].clone();
    ada.put("/v1/orgs/ada/projects/site/access", json!({ "mode": "org" })).await.expect(200);
    becomes("www.example.org", 403).await;
    let by_key = async |key: &str| {
        let request = client().get(format!("http://{}/", edge.address)).header("host", "www.example.org");
        request.header("svc-access-bypass", key).send().await.unwrap().status().as_u16()
    };
    assert_eq!((by_key(key.as_str().unwrap()).await, by_key("svc_byp_wrong").await), (200, 403));
    ada.put("/v1/orgs/ada/projects/site/access", json!({ "mode": "public" })).await.expect(200);
    becomes("www.example.org", 200).await;

    let renamed = ada.patch("/v1/orgs/ada/projects/site", json!({ "name": "shop" })).await;
    renamed.expect(200);
    edge.shows("shop-ada.localhost", "page").await;
    becomes("site-ada.localhost", 404).await;
    ada.send(reqwest::Method::DELETE, "/v1/orgs/ada/projects/shop", |it| it.json(&json!({ "confirm": "shop" })))
        .await
        .expect(204);
    becomes("shop-ada.localhost", 404).await;
    becomes("www.example.org", 404).await;
}
