//! The server under test, and a session of a signed-in user.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use xtask::credential::random_key;
use xtask::services::Services;

use crate::program::RunningProgram;
use testkit::reserved_address;

/// The id of the server's sealing key.
pub const SEALING_KEY: &str = "bench";

/// A running server and a session of the user `ada`, whose organization has the same name.
pub struct Server {
    /// The address of the public API.
    pub public: SocketAddr,
    /// The address of the internal API for nodes.
    pub internal: SocketAddr,
    pub program: RunningProgram,
    /// The duration from the start until the server was ready.
    pub startup_time: Duration,
    client: Client,
    api: String,
    token: String,
}

impl Server {
    /// Starts the server on a migrated database and signs in. `more` contains additional settings.
    pub async fn start(
        services: &mut Services,
        folder: &Path,
        database_url: String,
        more: &[(&'static str, String)],
    ) -> Result<Self> {
        let (public, internal) = (reserved_address(), reserved_address());
        let api = format!("http://{public}");
        let mut settings = settings(folder, database_url, public, internal)?;
        settings.extend_from_slice(more);
        let start = Instant::now();
        let program = RunningProgram::start(services, "server", folder, settings, (public, "/readyz")).await?;
        let startup_time = start.elapsed();
        let client = client()?;
        let sign_in = client.post(format!("{api}/v1/auth/dev/login")).json(&json!({ "subject": "ada" }));
        let token = string_at(&success_json(sign_in.send().await?).await?, "/token")?;
        Ok(Self { public, internal, program, startup_time, client, api, token })
    }

    /// Returns a client without a credential.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Builds a request with the session's token.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.url(path)).bearer_auth(&self.token)
    }

    /// Returns the URL of a path in the public API.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.api)
    }

    /// Returns the `Authorization` header of the session.
    pub fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// Sends a request and fails unless the response is 2xx.
    pub async fn expect_success(&self, request: RequestBuilder) -> Result<()> {
        success_body(request.send().await?).await.map(drop)
    }
}

/// Returns the settings of every server under test.
pub fn settings(
    folder: &Path,
    database_url: String,
    api: SocketAddr,
    internal: SocketAddr,
) -> Result<Vec<(&'static str, String)>> {
    let limits = folder.join("limits.toml");
    fs::write(&limits, chaos::LOAD_TEST_LIMITS)?;
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
        ("SVC_SEALING_KEYS", format!("{SEALING_KEY}:{}", random_key())),
        ("SVC_LIMITS", limits.display().to_string()),
        ("SVC_LOG", "warn".to_owned()),
    ])
}

/// Builds a client without a credential.
pub fn client() -> Result<Client> {
    // Fails only if a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(Client::builder().no_proxy().build()?)
}

/// Returns the JSON body of a 2xx response, and fails for other responses.
pub async fn success_json(response: Response) -> Result<Value> {
    Ok(serde_json::from_str(&success_body(response).await?)?)
}

/// Returns the body of a 2xx response, and fails for other responses.
async fn success_body(response: Response) -> Result<String> {
    let (status, url) = (response.status(), response.url().path().to_owned());
    let body = response.text().await?;
    ensure!(status.is_success(), "{url} returned {status}: {body}");
    Ok(body)
}

/// Returns the string at a JSON pointer.
pub fn string_at(value: &Value, pointer: &str) -> Result<String> {
    let found = value.pointer(pointer).and_then(Value::as_str);
    Ok(found.with_context(|| format!("no {pointer} in {value}"))?.to_owned())
}
