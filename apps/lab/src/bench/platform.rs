//! A server and a node, controlled through the API.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use convergence::NodeKind;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use kernel::Secret;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use store::migrations::{self, Migrator};
use xtask::credential;
use xtask::postgres::Cluster;
use xtask::services::Services;
use xtask::workspace::print_step;

use crate::bench::server::{Server, string_at, success_json};
use crate::program::RunningProgram;
use crate::usage;
use testkit::reserved_address;

/// A running server and node, and a session of a signed-in user.
pub struct Platform {
    pub edge: SocketAddr,
    pub server: Server,
    pub node: RunningProgram,
}

/// Settings in addition to the defaults.
#[derive(Default)]
pub struct Settings {
    pub server: Vec<(&'static str, String)>,
    pub node: Vec<(&'static str, String)>,
}

/// A project on the platform.
pub struct Project<'a> {
    platform: &'a Platform,
    name: String,
    pub hostname: String,
}

impl Platform {
    /// Starts the server and the node on an empty in-memory database. Its speed does not matter: measurements start
    /// when a change is acknowledged. `node` contains additional settings of the node.
    pub async fn start(services: &mut Services, folder: &Path, node: Vec<(&'static str, String)>) -> Result<Self> {
        Self::start_on(services, folder, Cluster::test()?, Settings { node, ..Settings::default() }).await
    }

    /// Starts the server and the node on an empty database.
    pub async fn start_on(services: &mut Services, folder: &Path, cluster: Cluster, more: Settings) -> Result<Self> {
        let start = Instant::now();
        let url = cluster.url("postgres");
        services.postgres = Some(cluster);
        Migrator::default().up(&mut migrations::connect(Secret::new(url.clone())).await?).await?;
        let token = folder.join("node.token");
        credential::ensure_node(Secret::new(url.clone()), &token, NodeKind::App).await?;
        let server = Server::start(services, folder, url, &more.server).await?;
        let (internal, edge) = (server.internal, reserved_address());
        let mut settings = vec![
            ("SVC_EDGE_LISTEN", edge.to_string()),
            ("SVC_NODE_CORE_URL", format!("http://{internal}")),
            ("SVC_NODE_TOKEN_FILE", token.display().to_string()),
            ("SVC_NODE_DIR", folder.join("node").display().to_string()),
            ("SVC_NODE_LOG", "warn".to_owned()),
        ];
        settings.extend(more.node);
        let node = RunningProgram::start(services, "node", folder, settings, (edge, "/__svc/node/health")).await?;
        print_step("Platform", "ready", start);
        Ok(Self { edge, server, node })
    }

    /// Returns the base URL of the public API.
    pub fn public_url(&self) -> String {
        self.server.url("")
    }

    /// Returns the base URL of the API for nodes.
    pub fn internal_url(&self) -> String {
        format!("http://{}", self.server.internal)
    }

    /// Returns the organizations of the user.
    pub async fn organizations(&self) -> Result<Value> {
        success_json(self.server.request(Method::GET, "/v1/orgs").send().await?).await
    }

    /// Creates a project.
    pub async fn create_project(&self, name: &str) -> Result<Project<'_>> {
        let request = self.server.request(Method::POST, "/v1/orgs/ada/projects");
        let created = success_json(request.json(&json!({ "name": name })).send().await?).await?;
        Ok(Project { platform: self, name: name.to_owned(), hostname: string_at(&created, "/hostname")? })
    }

    /// Sends a request to a path below the path of the projects. Fails unless the response is 2xx.
    pub async fn send(&self, method: Method, path: &str, body: &Value) -> Result<()> {
        self.server.expect_success(self.request(method, path, body)).await
    }

    /// Returns the JSON response to GET of a path below the path of the projects.
    pub async fn read(&self, path: &str) -> Result<Value> {
        let request = self.server.request(Method::GET, &format!("/v1/orgs/ada/projects/{path}"));
        success_json(request.send().await?).await
    }

    /// Like [`Self::send`], and returns the JSON response.
    pub async fn call(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        success_json(self.request(method, path, body).send().await?).await
    }

    /// Builds a request. A null body is omitted.
    fn request(&self, method: Method, path: &str, body: &Value) -> RequestBuilder {
        let request = self.server.request(method, &format!("/v1/orgs/ada/projects/{path}"));
        if body.is_null() { request } else { request.json(body) }
    }

    /// Waits until the node uses no CPU time.
    pub async fn wait_until_idle(&self) -> Result<()> {
        let mut before = usage::cpu_time(self.node.pid())?;
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let now = usage::cpu_time(self.node.pid())?;
            if now - before < 0.1 {
                return Ok(());
            }
            before = now;
        }
    }

    /// Sends a GET request to the node or nginx.
    pub async fn get(&self, url: &str, headers: &[(&str, String)]) -> Result<Response> {
        let request =
            headers.iter().fold(self.server.client().get(url), |request, (name, value)| request.header(*name, value));
        Ok(request.send().await?)
    }
}

/// Runs an action for each item, at most as many at the same time as the server permits for an organization. Returns
/// the results in the order of the items.
pub async fn run_concurrently<I, T, F: Future<Output = Result<T>>>(
    items: impl IntoIterator<Item = I>,
    action: impl FnMut(I) -> F,
) -> Result<Vec<T>> {
    /// The server's limit of concurrent requests for an organization.
    const LIMIT: usize = 4;
    stream::iter(items.into_iter().map(action)).buffered(LIMIT).try_collect().await
}

impl Project<'_> {
    /// Deploys files and waits for the acknowledgement.
    pub async fn deploy(&self, files: &[(&str, &[u8])]) -> Result<()> {
        self.deploy_with("{}", files).await
    }

    /// Like [`Self::deploy`], with a manifest.
    pub async fn deploy_with(&self, manifest: &str, files: &[(&str, &[u8])]) -> Result<()> {
        let path = format!("/v1/orgs/ada/projects/{}/deployments", self.name);
        let request = self.platform.server.request(Method::POST, &path).header("content-type", "application/gzip");
        success_json(
            request.body(testkit::bundle::pack(&[&[("svc.json", manifest.as_bytes())], files].concat())).send().await?,
        )
        .await
        .map(drop)
    }

    /// Waits until the node's response at this path is 2xx, and returns the duration.
    pub async fn wait_until_served(&self, path: &str) -> Result<Duration> {
        const TIMEOUT: Duration = Duration::from_secs(60);
        let (start, url) = (Instant::now(), format!("http://{}{path}", self.platform.edge));
        while !self.platform.get(&url, &[("Host", self.hostname.clone())]).await?.status().is_success() {
            ensure!(start.elapsed() < TIMEOUT, "{path} of {} was not served in time", self.hostname);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(start.elapsed())
    }
}
