//! The product, as a client of its API sees it.

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
use xtask::workspace::{self, step};
use xtask::{credential, probe};

use crate::bench::machine::free_address;
use crate::bench::server::{Server, answer, text};

/// A server and a node that run, and somebody who is signed in.
pub struct Platform {
    pub edge: SocketAddr,
    pub node: u32,
    server: Server,
}

/// A project of theirs.
pub struct Project<'a> {
    platform: &'a Platform,
    name: String,
    pub hostname: String,
}

impl Platform {
    /// Starts everything on an empty database in memory: what is measured begins when a deploy is acknowledged.
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
        let programs = workspace::binaries(true)?;
        let node = services.start("node", &programs.join("svc-node"), folder, |it| {
            it.env_clear().envs([
                ("SVC_EDGE_LISTEN", edge.to_string()),
                ("SVC_NODE_CORE_URL", format!("http://{internal}")),
                ("SVC_NODE_TOKEN_FILE", token.display().to_string()),
                ("SVC_NODE_DIR", folder.join("node").display().to_string()),
                ("SVC_NODE_LOG", "warn".to_owned()),
            ]);
        })?;
        services.during(probe::until_ok(edge, "/__svc/node/health")).await?;
        step("Platform", "ready", start);
        Ok(Self { edge, node, server })
    }

    /// A new project of that name.
    pub async fn project(&self, name: &str) -> Result<Project<'_>> {
        let request = self.server.request(Method::POST, "/v1/orgs/ada/projects");
        let made = answer(request.json(&json!({ "name": name })).send().await?).await?;
        Ok(Project { platform: self, name: name.to_owned(), hostname: text(&made, "/hostname")? })
    }

    /// Asks a front.
    pub async fn get(&self, url: &str, headers: &[(&str, String)]) -> Result<Response> {
        let request =
            headers.iter().fold(self.server.client().get(url), |request, (name, value)| request.header(*name, value));
        Ok(request.send().await?)
    }
}

impl Project<'_> {
    /// Deploys files; done when that is acknowledged.
    pub async fn deploy(&self, files: &[(&str, &[u8])]) -> Result<()> {
        let path = format!("/v1/orgs/ada/projects/{}/deployments", self.name);
        let request = self.platform.server.request(Method::POST, &path).header("content-type", "application/gzip");
        answer(request.body(testkit::bundle::pack(&[&[("svc.json", &b"{}"[..])], files].concat())).send().await?)
            .await
            .map(drop)
    }

    /// Waits until the node answers like that at this path, and tells how long it took.
    pub async fn until_served(&self, path: &str, is_so: impl Fn(&Response) -> bool) -> Result<Duration> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let start = Instant::now();
        let url = format!("http://{}{path}", self.platform.edge);
        while !is_so(&self.platform.get(&url, &[("Host", self.hostname.clone())]).await?) {
            ensure!(start.elapsed() < PATIENCE, "what was deployed to {} is not served", self.hostname);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(start.elapsed())
    }
}
