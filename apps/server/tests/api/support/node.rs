//! A node that a test controls. It sends one request at a time.

use std::sync::atomic::{AtomicI64, Ordering};

use convergence::{NodeKind, Nodes};
use kernel::audit::Actor;
use kernel::{ClockRng, Secret};
use reqwest::Method;
use serde_json::{Map, Value, json};
use store::Store;

use super::{ApiResponse, App, client};

/// A registered node. It sends only the requests that a test tells it to send.
pub struct ManualNode {
    internal: String,
    client: reqwest::Client,
    token: String,
    batch: AtomicI64,
}

impl ManualNode {
    /// Registers a node named `edge`.
    pub async fn new(app: &App) -> Self {
        Self::named(app, "edge").await
    }

    /// Registers a node.
    pub async fn named(app: &App, name: &str) -> Self {
        Self::register(&app.database.url(), &app.internal, name).await
    }

    /// Returns the same node, connected to this server.
    pub fn connect(&self, app: &App) -> Self {
        let (client, token) = (self.client.clone(), self.token.clone());
        Self {
            internal: app.internal.clone(),
            client,
            token,
            batch: AtomicI64::new(self.batch.load(Ordering::Relaxed)),
        }
    }

    /// Registers a mail node.
    pub async fn mail(app: &App) -> Self {
        Self::register_as(&app.database.url(), &app.internal, "mx", NodeKind::Mail).await
    }

    /// Registers a node in this database, for the server with this internal address.
    pub async fn register(database: &str, internal: &str, name: &str) -> Self {
        Self::register_as(database, internal, name, NodeKind::App).await
    }

    /// Replaces the credential of this node, which has this name. Returns the node with the new credential.
    pub async fn renew(&self, app: &App, name: &str) -> Self {
        let nodes = nodes(&app.database.url());
        let node = nodes.renew(&Actor::operator("test"), &name.parse().unwrap()).await.unwrap();
        Self { token: node.token.reveal().to_owned(), ..self.connect(app) }
    }

    async fn register_as(database: &str, internal: &str, name: &str, kind: NodeKind) -> Self {
        let node = nodes(database).add(&Actor::operator("test"), name.parse().unwrap(), kind).await.unwrap();
        let token = node.token.reveal().to_owned();
        Self { internal: internal.to_owned(), client: client(), token, batch: AtomicI64::new(0) }
    }

    /// Sends a GET request, again and again while the server is stopped.
    pub async fn get_when_reachable(&self, path: &str) -> ApiResponse {
        loop {
            match self.request(Method::GET, path).send().await {
                Ok(response) => return ApiResponse::read(&Method::GET, path, response).await,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        build: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder,
    ) -> ApiResponse {
        let request = self.request(method.clone(), path);
        ApiResponse::read(&method, path, build(request).send().await.unwrap()).await
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}/internal/v1/{path}", self.internal)).bearer_auth(&self.token)
    }

    /// Fetches the changes after a revision. Returns the new revision, and the value of each part by name.
    pub async fn desired(&self, since: i64) -> (i64, Value) {
        let desired = self.send(Method::GET, &format!("desired?since={since}"), |request| request).await;
        let desired = desired.expect(200);
        let part = |change: &Value| (change["part"].as_str().unwrap().to_owned(), change["desired"].clone());
        let parts: Map<_, _> = desired["parts"].as_array().unwrap().iter().map(part).collect();
        (desired["revision"].as_i64().unwrap(), parts.into())
    }

    /// Returns the current value of a part of a project; null without one.
    pub async fn part(&self, project: &Value, part: &str) -> Value {
        let desired = self.send(Method::GET, "desired?since=0", |request| request).await;
        let parts = desired.expect(200)["parts"].as_array().unwrap().clone();
        let found = parts.into_iter().find(|change| change["project"] == *project && change["part"] == part);
        found.map(|change| change["desired"].clone()).unwrap_or_default()
    }

    /// Sends reports about a project as the next batch. Each report has a kind.
    pub async fn report(&self, project: &Value, reports: &[(&str, Value)]) -> ApiResponse {
        self.report_as(self.batch.fetch_add(1, Ordering::Relaxed) + 1, project, reports).await
    }

    /// Sends reports about a project as the batch with this number.
    pub async fn report_as(&self, batch: i64, project: &Value, reports: &[(&str, Value)]) -> ApiResponse {
        let report = |(kind, report): &(&str, Value)| json!({ "project": project, "kind": kind, "report": report });
        let reports: Vec<Value> = reports.iter().map(report).collect();
        let batch = json!({ "batch": batch, "reports": reports });
        self.send(Method::POST, "reports", |request| request.json(&batch)).await
    }
}

/// Returns the operations on the nodes in this database.
pub fn nodes(database: &str) -> Nodes {
    let config = store::Config::new(Secret::new(database.to_owned()), "test");
    Nodes::new(Store::new(&config, ClockRng::system()).unwrap())
}
