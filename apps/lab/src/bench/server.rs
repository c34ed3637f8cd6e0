//! The control API as it is measured, and somebody who is signed in.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kernel::World;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use xtask::probe;
use xtask::services::Services;
use xtask::workspace;

use super::machine::free_address;

/// What its key is called.
pub const SEALING_KEY: &str = "bench";

/// A server that runs, and a session with it. The organization is `ada`.
pub struct Server {
    /// Where everybody asks.
    pub public: SocketAddr,
    /// Where nodes ask.
    pub internal: SocketAddr,
    /// Its process.
    pub process: u32,
    /// From its start to its being ready.
    pub start: Duration,
    client: Client,
    api: String,
    token: String,
}

impl Server {
    /// Starts the server on a migrated database and signs in. `more` are settings beside those that it needs.
    pub async fn start(
        services: &mut Services,
        folder: &Path,
        database_url: String,
        more: &[(&'static str, String)],
    ) -> Result<Self> {
        let (public, internal) = (free_address()?, free_address()?);
        let api = format!("http://{public}");
        let given = settings(folder, database_url, public, internal)?;
        let start = Instant::now();
        let program = workspace::binaries(true)?.join("svc-server");
        let process = services.start("server", &program, folder, |it| {
            it.env_clear().envs(given);
            it.envs(more.iter().map(|(name, value)| (name, value)));
        })?;
        services.during(probe::until_ok(public, "/readyz")).await?;
        let start = start.elapsed();
        let client = client()?;
        let sign_in = client.post(format!("{api}/v1/auth/dev/login")).json(&json!({ "subject": "ada" }));
        let token = text(&answer(sign_in.send().await?).await?, "/token")?;
        Ok(Self { public, internal, process, start, client, api, token })
    }

    /// A client without a credential.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A request of hers.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.url(path)).bearer_auth(&self.token)
    }

    /// Where a path is asked for.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.api)
    }

    /// What her requests say in `Authorization`.
    pub fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// Sends a request that is to succeed.
    pub async fn done(&self, request: RequestBuilder) -> Result<()> {
        succeeded(request.send().await?).await.map(drop)
    }
}

/// What the server is told, wherever it is measured.
pub fn settings(
    folder: &Path,
    database_url: String,
    api: SocketAddr,
    internal: SocketAddr,
) -> Result<Vec<(&'static str, String)>> {
    let limits = folder.join("limits.toml");
    fs::write(&limits, chaos::LIMITS)?;
    Ok(vec![
        ("SVC_DATABASE_URL", database_url),
        ("SVC_LISTEN", api.to_string()),
        ("SVC_INTERNAL_LISTEN", internal.to_string()),
        ("SVC_PUBLIC_URL", format!("http://{api}")),
        ("SVC_DASHBOARD_URL", "http://localhost:3000".to_owned()),
        ("SVC_ENABLE_DEV_AUTH", "true".to_owned()),
        ("SVC_PLATFORM_DOMAIN", "localhost".to_owned()),
        ("SVC_FALLBACK_ORIGIN", "fallback.localhost".to_owned()),
        ("SVC_BUNDLE_STORE", format!("file://{}/bundles", folder.display())),
        ("SVC_SEALING_KEYS", format!("{SEALING_KEY}:{}", STANDARD.encode(World::system().bytes::<32>()))),
        ("SVC_LIMITS", limits.display().to_string()),
        ("SVC_LOG", "warn".to_owned()),
    ])
}

/// A client without a credential.
pub fn client() -> Result<Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(Client::builder().no_proxy().build()?)
}

/// The JSON of an answer that is a success.
pub async fn answer(response: Response) -> Result<Value> {
    Ok(serde_json::from_str(&succeeded(response).await?)?)
}

/// The body of an answer that is a success.
async fn succeeded(response: Response) -> Result<String> {
    let (status, url) = (response.status(), response.url().path().to_owned());
    let body = response.text().await?;
    ensure!(status.is_success(), "{url} answered {status}: {body}");
    Ok(body)
}

/// A text within it.
pub fn text(value: &Value, pointer: &str) -> Result<String> {
    let found = value.pointer(pointer).and_then(Value::as_str);
    Ok(found.with_context(|| format!("no {pointer} in {value}"))?.to_owned())
}
