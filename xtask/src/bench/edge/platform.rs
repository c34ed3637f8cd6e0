//! The product, as a client of its API sees it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use kernel::{Secret, World};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use store::migrations::{self, Migrator};

use super::free_address;
use crate::dev::services::Services;
use crate::dev::{node, probe};
use crate::postgres::Cluster;
use crate::workspace::{self, step};

/// Whoever measures may have and ask more than anybody else.
const LIMITS: &str = "
    [plans.free]
    projects = 1000000
    bundle = { compressed = 52428800, unpacked = 262144000, entries = 20000 }
    [rates]
    sign_in = 30
    credential = 1000000
";

/// A server and a node that run, and somebody who is signed in.
pub struct Platform {
    pub edge: SocketAddr,
    pub node: u32,
    client: Client,
    api: String,
    token: String,
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
        node::ensure_node(Secret::new(url.clone()), &token).await?;
        let limits = folder.join("limits.toml");
        fs::write(&limits, LIMITS)?;
        let (api, internal, edge) = (free_address()?, free_address()?, free_address()?);
        let programs = workspace::binaries(true)?;
        services.start("server", &programs.join("svc-server"), folder, |it| {
            it.env_clear().envs([
                ("SVC_DATABASE_URL", url),
                ("SVC_LISTEN", api.to_string()),
                ("SVC_INTERNAL_LISTEN", internal.to_string()),
                ("SVC_PUBLIC_URL", format!("http://{api}")),
                ("SVC_DASHBOARD_URL", "http://localhost:3000".to_owned()),
                ("SVC_ENABLE_DEV_AUTH", "true".to_owned()),
                ("SVC_PLATFORM_DOMAIN", "localhost".to_owned()),
                ("SVC_FALLBACK_ORIGIN", "fallback.localhost".to_owned()),
                ("SVC_BUNDLE_STORE", format!("file://{}/bundles", folder.display())),
                ("SVC_SEALING_KEYS", format!("bench:{}", STANDARD.encode(World::system().bytes::<32>()))),
                ("SVC_LIMITS", limits.display().to_string()),
                ("SVC_LOG", "warn".to_owned()),
            ]);
        })?;
        services.during(probe::until_ok(api, "/readyz")).await?;
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
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().build()?;
        let api = format!("http://{api}");
        let sign_in = client.post(format!("{api}/v1/auth/dev/login")).json(&json!({ "subject": "ada" }));
        let token = text(&json(sign_in.send().await?).await?, "/token")?;
        Ok(Self { edge, node, client, api, token })
    }

    /// A new project of that name.
    pub async fn project(&self, name: &str) -> Result<Project<'_>> {
        let request = self.request(Method::POST, "/v1/orgs/ada/projects");
        let made = json(request.json(&json!({ "name": name })).send().await?).await?;
        Ok(Project { platform: self, name: name.to_owned(), hostname: text(&made, "/hostname")? })
    }

    /// Asks a front.
    pub async fn get(&self, url: &str, headers: &[(&str, String)]) -> Result<Response> {
        let request = headers.iter().fold(self.client.get(url), |request, (name, value)| request.header(*name, value));
        Ok(request.send().await?)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.api)).bearer_auth(&self.token)
    }
}

impl Project<'_> {
    /// Deploys files; done when that is acknowledged.
    pub async fn deploy(&self, files: &[(&str, &[u8])]) -> Result<()> {
        let path = format!("/v1/orgs/ada/projects/{}/deployments", self.name);
        let request = self.platform.request(Method::POST, &path).header("content-type", "application/gzip");
        json(request.body(archive(files)?).send().await?).await.map(drop)
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

fn archive(files: &[(&str, &[u8])]) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, content) in [("svc.json", &b"{}"[..])].iter().chain(files) {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, *content)?;
    }
    Ok(tar.into_inner()?.finish()?)
}

async fn json(response: Response) -> Result<Value> {
    let (status, url) = (response.status(), response.url().path().to_owned());
    let body = response.text().await?;
    ensure!(status.is_success(), "{url} answered {status}: {body}");
    Ok(serde_json::from_str(&body)?)
}

fn text(value: &Value, pointer: &str) -> Result<String> {
    let found = value.pointer(pointer).and_then(Value::as_str);
    Ok(found.with_context(|| format!("no {pointer} in {value}"))?.to_owned())
}
