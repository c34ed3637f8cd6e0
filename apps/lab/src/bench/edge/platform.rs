//! A server and a node, controlled through the API.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kernel::Secret;
use reqwest::{Method, Response};
use serde_json::json;
use store::migrations::{self, Migrator};
use xtask::postgres::Cluster;
use xtask::services::Services;
use xtask::workspace::{self, print_step};
use xtask::{credential, probe};

use crate::bench::machine::free_address;
use crate::bench::server::{Server, string_at, success_json};

/// A running server and node, and a session of a signed-in user.
pub struct Platform {
    pub edge: SocketAddr,
    pub node_pid: u32,
    server: Server,
}

/// A project on the platform.
pub struct Project<'a> {
    platform: &'a Platform,
    name: String,
    pub hostname: String,
}

impl Platform {
    /// Starts the server and the node on an empty in-memory database. Its speed does not matter: measurements start
    /// when a deployment is acknowledged.
    pub async fn start(services: &mut Services, folder: &Path) -> Result<Self> {
        let start = Instant::now();
        let cluster = Cluster::test()?;
        let url = cluster.url("postgres");
        services.postgres = Some(cluster);
        Migrator::default().up(&mut migrations::connect(Secret::new(url.clone())).await?).await?;
        let token = folder.join("node.token");
        credential::ensure_node(Secret::new(url.clone()), &token).await?;
        let server = Server::start(services, folder, url, &[]).await?;
        let (internal, edge) = (server.internal, free_address()?);
        let programs = workspace::program_folder(true)?;
        let node = services.start("node", &programs.join("svc-node"), folder, |it| {
            it.env_clear().envs([
                ("SVC_EDGE_LISTEN", edge.to_string()),
                ("SVC_NODE_CORE_URL", format!("http://{internal}")),
                ("SVC_NODE_TOKEN_FILE", token.display().to_string()),
                ("SVC_NODE_DIR", folder.join("node").display().to_string()),
                ("SVC_NODE_LOG", "warn".to_owned()),
            ]);
        })?;
        services.supervise(probe::wait_until_ok(edge, "/__svc/node/health")).await?;
        print_step("Platform", "ready", start);
        Ok(Self { edge, node_pid: node, server })
    }

    /// Creates a project.
    pub async fn create_project(&self, name: &str) -> Result<Project<'_>> {
        let request = self.server.request(Method::POST, "/v1/orgs/ada/projects");
        let created = success_json(request.json(&json!({ "name": name })).send().await?).await?;
        Ok(Project { platform: self, name: name.to_owned(), hostname: string_at(&created, "/hostname")? })
    }

    /// Sends a GET request to the node or nginx.
    pub async fn get(&self, url: &str, headers: &[(&str, String)]) -> Result<Response> {
        let request =
            headers.iter().fold(self.server.client().get(url), |request, (name, value)| request.header(*name, value));
        Ok(request.send().await?)
    }
}

impl Project<'_> {
    /// Deploys files and waits for the acknowledgement.
    pub async fn deploy(&self, files: &[(&str, &[u8])]) -> Result<()> {
        let path = format!("/v1/orgs/ada/projects/{}/deployments", self.name);
        let request = self.platform.server.request(Method::POST, &path).header("content-type", "application/gzip");
        success_json(request.body(testkit::bundle::pack(&[&[("svc.json", &b"{}"[..])], files].concat())).send().await?)
            .await
            .map(drop)
    }

    /// Waits until the node's response at this path satisfies the condition, and returns the duration.
    pub async fn wait_until_served(&self, path: &str, is_expected: impl Fn(&Response) -> bool) -> Result<Duration> {
        const TIMEOUT: Duration = Duration::from_secs(60);
        let start = Instant::now();
        let url = format!("http://{}{path}", self.platform.edge);
        while !is_expected(&self.platform.get(&url, &[("Host", self.hostname.clone())]).await?) {
            ensure!(start.elapsed() < TIMEOUT, "the deployment to {} was not served in time", self.hostname);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(start.elapsed())
    }
}
