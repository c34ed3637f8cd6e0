//! Test fixtures: a running server for each test, and callers.

mod locks;
mod node;
mod openapi;
mod pebble;
mod programs;
mod response;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway::{MaxWaits, SignInMethods};
use kernel::{AbuseLimits, ClockRng, Limits, Secret};
use prometheus::Registry;
use providers::CodeHostConfig;
use reqwest::Method;
use sandbox::{CREDIT_PRODUCT, PAYMENTS_WEBHOOK_SECRET, PRO_PRODUCT, TOPUP_PRODUCT};
use serde_json::{Value, json};
use server::config::CodeHostLogin;
use server::{Config, Server};
use testkit::LONG_TIMEOUTS;
use tokio::sync::oneshot;
use webhooks::VerifyingKeys;

pub use locks::{HeldLocks, while_changes_wait, while_waiting};
pub use node::{ManualNode, nodes};
pub use openapi::Document;
pub use pebble::Pebble;
pub use programs::{Folder, external_program};
pub use response::ApiResponse;
pub use testkit::bundle::{pack as bundle, site};
pub use testkit::{TestClock, TestDatabase};

/// A running server with its own database, bundle store, listeners and clock.
pub struct App {
    pub base: String,
    pub internal: String,
    /// The address of the TLS listener.
    pub tls: Option<SocketAddr>,
    pub clock: TestClock,
    pub bundles: PathBuf,
    pub document: Arc<Document>,
    pub database: Arc<TestDatabase>,
    config: Config,
    client: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    task: Option<tokio::task::JoinHandle<anyhow::Result<()>>>,
}

/// A client of the API with an optional token.
#[derive(Clone)]
pub struct Caller {
    base: String,
    client: reqwest::Client,
    document: Arc<Document>,
    pub token: Option<String>,
    pub user_id: String,
}

impl App {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts a server whose configuration `change` modifies.
    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let database = TestDatabase::create().await;
        let bundles = std::env::temp_dir().join(format!("svc-test-{}", ClockRng::system().id::<uuid::Uuid>()));
        let mut config = config(&database.url(), &bundles);
        change(&mut config);
        Self::serve(config, Arc::new(database), bundles, TestClock::running()).await
    }

    /// Starts another server of the same deployment, with the same database, bundle store and clock.
    pub async fn another(&self) -> Self {
        self.another_with(|_| {}).await
    }

    /// Starts another server of the same deployment, whose configuration `change` modifies.
    pub async fn another_with(&self, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = self.config.clone();
        change(&mut config);
        Self::serve(config, self.database.clone(), self.bundles.clone(), self.clock.clone()).await
    }

    /// Starts another server when the hostnames in new zones are due: a server checks the due hostnames immediately after
    /// its start and then every minute.
    pub async fn check_new_zones(&self) -> Self {
        let queued = "SELECT id FROM store.outbox WHERE topic = 'projects.hostnames'";
        eventually("the hostnames are due", async || self.db_rows(queued).await.is_empty().then_some(())).await;
        self.another().await
    }

    async fn serve(config: Config, database: Arc<TestDatabase>, bundles: PathBuf, clock: TestClock) -> Self {
        let server = Server::bind(&config, clock.clock_rng(), Registry::new()).unwrap();
        let (base, internal) = (format!("http://{}", server.public), format!("http://{}", server.internal));
        let tls = server.tls;
        let (stop, stopping) = oneshot::channel();
        let task = tokio::spawn(server.run_until(async {
            let _ = stopping.await;
        }));
        let client = client();
        let document = Document::of(config.gateway.sign_ins, &client, &base).await;
        let (stop, task) = (Some(stop), Some(task));
        Self { base, internal, tls, clock, bundles, document, database, config, client, stop, task }
    }

    /// Begins the graceful shutdown.
    pub fn begin_shutdown(&mut self) {
        drop(self.stop.take());
    }

    /// Stops the server, and waits until its jobs have ended.
    pub async fn shut_down(&mut self) {
        self.begin_shutdown();
        if let Some(task) = self.task.take() {
            task.await.unwrap().unwrap();
        }
    }

    /// Returns a caller without a credential.
    pub fn anonymous(&self) -> Caller {
        let (base, client, document) = (self.base.clone(), self.client.clone(), self.document.clone());
        Caller { base, client, document, token: None, user_id: String::new() }
    }

    /// Returns a caller with this token.
    pub fn with_token(&self, token: &str) -> Caller {
        Caller { token: Some(token.to_owned()), ..self.anonymous() }
    }

    /// Returns the same caller, connected to this server.
    pub fn connect(&self, caller: &Caller) -> Caller {
        Caller { base: self.base.clone(), ..caller.clone() }
    }

    pub async fn sign_in(&self, subject: &str) -> Caller {
        self.sign_in_with(json!({ "subject": subject })).await
    }

    /// Signs in with this body.
    pub async fn sign_in_with(&self, login: Value) -> Caller {
        let response = self.anonymous().post("/v1/auth/dev/login", login).await;
        let session = response.expect(200);
        let text = |name: &str| session[name].as_str().unwrap().to_owned();
        Caller { token: Some(text("token")), user_id: text("userId"), ..self.anonymous() }
    }

    /// Signs in a new user and adds them to an organization with this role.
    pub async fn add_member(&self, admin: &Caller, org: &str, subject: &str, role: &str) -> Caller {
        let caller = self.sign_in(subject).await;
        let body = json!({ "provider": "dev", "subject": subject, "role": role });
        admin.post(&format!("/v1/orgs/{org}/members"), body).await.expect(201);
        caller
    }

    /// Queries the database directly. Each row is a JSON object.
    pub async fn db_rows(&self, statement: &str) -> Vec<Value> {
        self.database.rows(statement).await
    }

    /// Changes the database directly.
    pub async fn db_execute(&self, statement: &str) -> Result<(), diesel::result::Error> {
        self.database.try_run(statement).await
    }

    /// Returns the names of an organization's audit events, oldest first.
    pub async fn db_audit(&self, org: &str) -> Vec<String> {
        let statement = format!(
            "SELECT a.event FROM store.audit a JOIN orgs.orgs o ON o.id = a.org_id WHERE o.slug = '{org}' ORDER BY a.id"
        );
        self.db_rows(&statement).await.iter().map(|row| row["event"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for App {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = std::fs::remove_dir_all(&self.bundles);
        let _ = std::fs::remove_dir_all(mail_store(&self.bundles));
    }
}

impl Caller {
    /// Returns a caller of a server that runs as a process, without a credential.
    pub async fn at(base: &str) -> Self {
        let client = client();
        let document = Document::fetch(&client, base).await;
        Self { base: base.to_owned(), client, document, token: None, user_id: String::new() }
    }

    /// Returns a caller of the same server with this token.
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    pub async fn get(&self, path: &str) -> ApiResponse {
        self.send(Method::GET, path, |request| request).await
    }

    pub async fn delete(&self, path: &str) -> ApiResponse {
        self.send(Method::DELETE, path, |request| request).await
    }

    pub async fn post(&self, path: &str, body: Value) -> ApiResponse {
        self.send(Method::POST, path, |request| request.json(&body)).await
    }

    /// Sends a POST with an idempotency key.
    pub async fn post_with_key(&self, key: &str, path: &str, body: Value) -> ApiResponse {
        self.send(Method::POST, path, |request| request.header("idempotency-key", key).json(&body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> ApiResponse {
        self.send(Method::PUT, path, |request| request.json(&body)).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> ApiResponse {
        self.send(Method::PATCH, path, |request| request.json(&body)).await
    }

    pub async fn upload(&self, path: &str, bundle: Vec<u8>) -> ApiResponse {
        self.send(Method::POST, path, |request| request.header("content-type", "application/gzip").body(bundle)).await
    }

    /// Sends a request and validates the response against the OpenAPI document.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        build: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder,
    ) -> ApiResponse {
        let mut request = self.client.request(method.clone(), format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let response = build(request).send().await.unwrap();
        let response = ApiResponse::read(&method, path, response).await;
        self.document.assert_allows(&method, path, &response);
        response
    }

    /// Sends a request without the caller's token to a path that is not in the OpenAPI document.
    pub async fn send_unchecked(
        &self,
        method: Method,
        path: &str,
        build: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder,
    ) -> ApiResponse {
        let request = self.client.request(method.clone(), format!("{}{path}", self.base));
        ApiResponse::read(&method, path, build(request).send().await.unwrap()).await
    }
}

/// The longest pause between two polls.
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// Parses a timestamp of a response.
pub fn time(value: &Value) -> kernel::Time {
    serde_json::from_value(value.clone()).unwrap()
}

/// Polls until `poll` returns a value. A longer wait could reach a timeout that hides a defect, such as that of idle
/// transactions.
pub async fn eventually<T>(what: &str, poll: impl AsyncFnMut() -> Option<T>) -> T {
    eventually_within(Duration::from_secs(60), what, poll).await
}

/// Polls as [`eventually`] does, for the result of a job that repeats a failed attempt after one or two minutes.
pub async fn eventually_with_retries<T>(what: &str, poll: impl AsyncFnMut() -> Option<T>) -> T {
    eventually_within(Duration::from_secs(180), what, poll).await
}

/// The first polls follow each other more closely, because most waits are short.
async fn eventually_within<T>(limit: Duration, what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let (began, mut pause) = (Instant::now(), Duration::from_millis(5));
    loop {
        if let Some(value) = poll().await {
            return value;
        }
        assert!(began.elapsed() < limit, "timed out after {limit:?}: {what}");
        tokio::time::sleep(pause).await;
        pause = MAX_PAUSE.min(pause * 2);
    }
}

/// Returns the folder of the mail store, which is next to that of the bundle store.
fn mail_store(bundles: &std::path::Path) -> PathBuf {
    bundles.with_extension("mail")
}

/// Sets the waits and timeouts of the program, for a test about one of them. By default they are so long that no test
/// reaches them, even on a busy machine, except the timeout of a request.
pub fn use_short_waits(config: &mut Config) {
    config.database.timeouts = store::Timeouts::default();
    config.gateway.max_waits = MaxWaits::default();
}

fn config(database: &str, bundles: &std::path::Path) -> Config {
    let loopback = "127.0.0.1:0".parse().unwrap();
    Config {
        database: store::Config {
            // A connection costs as much time as the statements of a short test, and each one is opened only if all
            // others are in use. One organization, or one user outside of organizations, can use four.
            connections: 6,
            ..testkit::store_config(database.to_owned())
        },
        // No server listens on this port. A test that verifies hostnames starts its own DNS server.
        dns_resolver: Some("127.0.0.1:9".parse().unwrap()),
        own_domains: vec!["localhost".to_owned()],
        acme: Vec::new(),
        platform_org: None,
        code_host: Some(code_host()),
        mail: None,
        mail_hook: None,
        oauth: Some(oauth()),
        lending: None,
        billing: billing(),
        payments: None,
        registrar: None,
        registrar_limits: server::config::RegistrarLimits {
            requests_per_second: u32::MAX,
            requests_per_hour: u32::MAX,
        },
        domain_product: None,
        dns: Some(hosting()),
        primary: None,
        signer: None,
        core: server::config::CoreLink::Embedded,
        site_url: "http://{hostname}".parse().unwrap(),
        listen: loopback,
        tls: None,
        internal_listen: loopback,
        bundle_store: objects::StoreConfig::Folder(bundles.to_owned()),
        mail_store: objects::StoreConfig::Folder(mail_store(bundles)),
        dkim: None,
        limits: Limits::default(),
        abuse_limits: AbuseLimits::default(),
        gateway: gateway::Config {
            site: gateway::Site {
                name: "test".into(),
                public_url: "http://127.0.0.1".into(),
                dashboard_url: "http://localhost:3000".into(),
                platform_domain: "localhost".into(),
                mail_domain: None,
                nameservers: Vec::new(),
                site_url: "http://{hostname}".into(),
                fallback_origin: "fallback.localhost".into(),
                git_url: None,
                ssh_host: None,
                version: "0".into(),
            },
            sign_ins: SignInMethods { dev: true, code_host: true },
            trusted_proxies: settings::Networks::default(),
            rate_limits: gateway::RateLimits {
                sign_in: NonZeroU32::MAX,
                credential: NonZeroU32::MAX,
                user: None,
                oauth_address: NonZeroU32::MAX,
                oauth_client: NonZeroU32::MAX,
                git: NonZeroU32::MAX,
            },
            max_concurrent_requests: 512,
            max_waits: MaxWaits { write_permit: LONG_TIMEOUTS.acquire, connection: LONG_TIMEOUTS.acquire },
        },
        otlp_url: None,
    }
}

/// Returns the products of the sandbox's payments provider. Only the tests of billing start the provider.
fn billing() -> billing::BillingConfig {
    billing::BillingConfig {
        products: billing::Products {
            pro: Some(PRO_PRODUCT.to_owned()),
            credit: Some(CREDIT_PRODUCT.to_owned()),
            topup: Some(TOPUP_PRODUCT.to_owned()),
        },
        sandbox: true,
        webhook_keys: Some(VerifyingKeys::parse(PAYMENTS_WEBHOOK_SECRET).unwrap()),
        return_addresses: "http://127.0.0.1,http://localhost:3000".parse().unwrap(),
        catalog: billing::Catalog::default(),
    }
}

/// Returns the configuration of hosted zones. Its nameservers do not run.
fn hosting() -> dns::Hosting {
    let nameservers = ["ns1.svc.example", "ns2.svc.example"].map(str::to_owned);
    let mut hosting = dns::Hosting::new(&nameservers, "fallback.localhost").unwrap();
    hosting.platform_domains = vec!["localhost".to_owned(), "svc.example".to_owned()];
    hosting
}

/// Returns the configuration of the authorization server, with the device flow.
fn oauth() -> oauth::OAuthConfig {
    oauth::OAuthConfig {
        issuer: "http://127.0.0.1".to_owned(),
        audience: "http://127.0.0.1".to_owned(),
        refresh_grace_seconds: 0,
        device_verification_uri: Some("http://localhost:3000/oauth/device".to_owned()),
        cli_client: None,
    }
}

/// Returns the configuration of a code host that does not run. A test that signs in at a code host starts its own.
fn code_host() -> CodeHostLogin {
    let unreachable: url::Url = "http://127.0.0.1:9".parse().unwrap();
    let host = CodeHostConfig {
        client_id: "svc".to_owned(),
        client_secret: Secret::new("secret".to_owned()),
        authorize_url: unreachable.clone(),
        token_url: unreachable.clone(),
        user_url: unreachable,
    };
    CodeHostLogin { host, redirects: "http://localhost:3000".parse().unwrap() }
}

/// Returns an HTTP client. It trusts no certificates, because loading those of the system takes long in a debug build.
pub fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).tls_certs_only([]);
    builder.no_proxy().build().unwrap()
}
