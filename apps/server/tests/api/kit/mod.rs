//! A running server for each test, and callers of each kind.

mod answer;
mod openapi;
mod outside;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use gateway::SignIns;
use kernel::{Limits, Secret, World};
use prometheus::Registry;
use providers::CodeHostConfig;
use reqwest::Method;
use serde_json::{Value, json};
use server::config::CodeHostLogin;
use server::{Config, Server};
use tokio::sync::oneshot;

pub use answer::Answer;
pub use openapi::Document;
pub use outside::{Folder, outside};
pub use testkit::bundle::{pack as bundle, site};
pub use testkit::{TestClock, TestDatabase};

/// A server of its own: database, bundle store, listeners and clock.
pub struct App {
    pub base: String,
    pub internal: String,
    pub clock: TestClock,
    pub bundles: PathBuf,
    pub document: Arc<Document>,
    pub database: Arc<TestDatabase>,
    config: Config,
    client: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
}

/// Somebody who calls the API.
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

    /// A server whose configuration `change` has changed.
    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let database = TestDatabase::create().await;
        let bundles = std::env::temp_dir().join(format!("svc-test-{}", World::system().id::<uuid::Uuid>()));
        let mut config = config(&database.url(), &bundles);
        change(&mut config);
        Self::serve(config, Arc::new(database), bundles, TestClock::running()).await
    }

    /// Another server of the same deployment: on this one's database, bundle store and clock.
    pub async fn another(&self) -> Self {
        self.another_with(|_| {}).await
    }

    /// Another one, whose configuration `change` has changed.
    pub async fn another_with(&self, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = self.config.clone();
        change(&mut config);
        Self::serve(config, self.database.clone(), self.bundles.clone(), self.clock.clone()).await
    }

    async fn serve(config: Config, database: Arc<TestDatabase>, bundles: PathBuf, clock: TestClock) -> Self {
        let server = Server::bind(&config, clock.world(), Registry::new()).unwrap();
        let (base, internal) = (format!("http://{}", server.public), format!("http://{}", server.internal));
        let (stop, stopping) = oneshot::channel();
        tokio::spawn(server.run_until(async {
            let _ = stopping.await;
        }));
        let client = client();
        let document =
            client.get(format!("{base}/v1/openapi.json")).send().await.unwrap().json::<Value>().await.unwrap();
        let (document, stop) = (Arc::new(Document::new(document)), Some(stop));
        Self { base, internal, clock, bundles, document, database, config, client, stop }
    }

    /// Nobody in particular.
    pub fn anyone(&self) -> Caller {
        let (base, client, document) = (self.base.clone(), self.client.clone(), self.document.clone());
        Caller { base, client, document, token: None, user_id: String::new() }
    }

    /// Whoever sends this as their token.
    pub fn with_token(&self, token: &str) -> Caller {
        Caller { token: Some(token.to_owned()), ..self.anyone() }
    }

    /// The same caller, at another server.
    pub fn meets(&self, caller: &Caller) -> Caller {
        Caller { base: self.base.clone(), ..caller.clone() }
    }

    pub async fn sign_in(&self, subject: &str) -> Caller {
        self.sign_in_with(json!({ "subject": subject })).await
    }

    /// Signs in with this body.
    pub async fn sign_in_with(&self, login: Value) -> Caller {
        let answer = self.anyone().post("/v1/auth/dev/login", login).await;
        let session = answer.expect(200);
        let text = |name: &str| session[name].as_str().unwrap().to_owned();
        Caller { token: Some(text("token")), user_id: text("userId"), ..self.anyone() }
    }

    /// Somebody new with this role in an organization.
    pub async fn joined(&self, admin: &Caller, org: &str, subject: &str, role: &str) -> Caller {
        let caller = self.sign_in(subject).await;
        let body = json!({ "provider": "dev", "subject": subject, "role": role });
        admin.post(&format!("/v1/orgs/{org}/members"), body).await.expect(201);
        caller
    }

    /// The rows of a statement, each as one JSON object: a look behind the API.
    pub async fn db_rows(&self, statement: &str) -> Vec<Value> {
        self.database.rows(statement).await
    }

    /// Runs a statement: a change behind the API.
    pub async fn db_execute(&self, statement: &str) -> Result<(), diesel::result::Error> {
        use diesel_async::{AsyncConnection as _, SimpleAsyncConnection as _};
        let mut connection = store::Connection::establish(&self.database.url()).await.unwrap();
        connection.batch_execute(statement).await
    }

    /// The audit events of one organization, oldest first, as `event target`.
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
    }
}

impl Caller {
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, |request| request).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, |request| request).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, |request| request.json(&body)).await
    }

    /// A POST that may be sent again.
    pub async fn post_once(&self, key: &str, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, |request| request.header("idempotency-key", key).json(&body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PUT, path, |request| request.json(&body)).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, |request| request.json(&body)).await
    }

    pub async fn upload(&self, path: &str, bundle: Vec<u8>) -> Answer {
        self.send(Method::POST, path, |request| request.header("content-type", "application/gzip").body(bundle)).await
    }

    /// Sends a request; the answer is held against the OpenAPI document, whatever it is.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        build: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder,
    ) -> Answer {
        let mut request = self.client.request(method.clone(), format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let response = build(request).send().await.unwrap();
        let answer = Answer::read(&method, path, response).await;
        self.document.admits(&method, path, &answer);
        answer
    }
}

/// A point in time, as answers tell it.
pub fn time(value: &Value) -> kernel::Time {
    serde_json::from_value(value.clone()).unwrap()
}

/// Asks again until the answer is there.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("in half a minute it did not come to this: {what}");
}

fn config(database: &str, bundles: &std::path::Path) -> Config {
    let loopback = "127.0.0.1:0".parse().unwrap();
    Config {
        database: store::Config {
            keys: testkit::keys(),
            ..store::Config::new(Secret::new(database.to_owned()), "test")
        },
        // Nobody answers there; a test that proves names has a name server of its own.
        dns_resolver: Some("127.0.0.1:9".parse().unwrap()),
        own_domains: vec!["localhost".to_owned()],
        code_host: Some(code_host()),
        mail: None,
        dns: Some(hosting()),
        primary: None,
        signer: None,
        core: server::config::CoreLink::Embedded,
        site_url: "http://{hostname}".parse().unwrap(),
        listen: loopback,
        internal_listen: loopback,
        bundle_store: server::config::BundleStore::Folder(bundles.to_owned()),
        limits: Limits::default(),
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
            sign_ins: SignIns { dev: true, code_host: true },
            trusted_proxies: settings::Networks::default(),
            rate_limits: gateway::RateLimits { sign_in: NonZeroU32::MAX, credential: NonZeroU32::MAX },
            in_flight: 512,
        },
        otlp_url: None,
    }
}

/// Zones, whose nameservers nobody runs.
fn hosting() -> dns::Hosting {
    let nameservers = ["ns1.svc.example", "ns2.svc.example"].map(str::to_owned);
    let mut hosting = dns::Hosting::new(&nameservers, "fallback.localhost").unwrap();
    hosting.own_domains = vec!["localhost".to_owned(), "svc.example".to_owned()];
    hosting
}

/// A code host that nobody runs; a test that signs in there names its own.
fn code_host() -> CodeHostLogin {
    let nobody: url::Url = "http://127.0.0.1:9".parse().unwrap();
    let host = CodeHostConfig {
        client_id: "svc".to_owned(),
        client_secret: Secret::new("secret".to_owned()),
        authorize_url: nobody.clone(),
        token_url: nobody.clone(),
        user_url: nobody,
    };
    CodeHostLogin { host, redirects: "http://localhost:3000".parse().unwrap() }
}

pub fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().build().unwrap()
}
