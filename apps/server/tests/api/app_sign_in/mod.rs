//! Sign-in of an app's own users, on the whole platform: a server, a node with `workerd` and a Postgres, the identity
//! providers of the sandbox, and the members' page of `examples`.

mod hostile;
mod kills;
mod provider_faults;
mod visitor;
mod whole_way;

use std::fs;
use std::path::Path;
use std::process::Command;

use sandbox::{IdentityProvider, IdentityServer};
use serde_json::{Value, json};
use testkit::{PrivatePostgres, reserved_port};

use crate::convergence::node_process::{Node, workerd};
use crate::process::Process;
use crate::support::{bundle, client, eventually};
pub use visitor::Visitor;

/// The domain of the projects. Sites at sibling hosts can set cookies for it.
pub const DOMAIN: &str = "apps.localhost";

/// The platform with projects of Ada that their own users sign in to. Visitors reach them over https, through a proxy
/// that terminates TLS at [`Self::port`].
pub struct Platform {
    pub providers: IdentityServer,
    pub node: Node,
    /// The port in the addresses of the projects.
    pub port: u16,
    pub session: String,
    pub server: Process,
    postgres: PrivatePostgres,
}

impl Platform {
    /// Starts the platform. Returns `None` and prints a notice if `workerd` or Postgres' programs are missing.
    pub async fn start() -> Option<Self> {
        let (workerd, postgres) = (workerd()?, PrivatePostgres::start()?);
        let (providers, port) = (IdentityServer::start().await, reserved_port());
        let site_url = format!("https://{{hostname}}:{port}");
        let server = Process::with(&[("SVC_SITE_URL", site_url), ("SVC_PLATFORM_DOMAIN", DOMAIN.to_owned())]).await;
        let mut settings = vec![
            ("SVC_NODE_WORKERD", workerd),
            ("SVC_EDGE_TRUSTED_PROXIES", "127.0.0.1/32".to_owned()),
            ("SVC_NODE_DATABASE_URL", postgres.url()),
            ("SVC_NODE_DATABASE_ADDRESS", postgres.address()),
            ("SVC_NODE_DATABASE_SSLMODE", "disable".to_owned()),
            ("SVC_NODE_PG_BIN", postgres.programs().display().to_string()),
        ];
        settings.extend(providers.settings());
        let node = Node::start(&server, &settings).await;
        let session = server.sign_in().await;
        Some(Self { providers, node, port, session, server, postgres })
    }

    /// Starts the platform with the project `club` and all providers.
    pub async fn with_club() -> Option<Self> {
        let platform = Self::start().await?;
        platform.add_project("club").await;
        Some(platform)
    }

    /// Creates a project with the example, and registers all providers. Waits until the node serves it.
    pub async fn add_project(&self, name: &str) {
        self.call("POST", "/v1/orgs/ada/projects", Some(json!({ "name": name }))).await;
        let project = format!("/v1/orgs/ada/projects/{name}");
        let enable = async || (self.request("POST", &format!("{project}/database"), None).await.0 == 200).then_some(());
        eventually("the node has announced its Postgres", enable).await;
        self.call("POST", &format!("{project}/auth"), None).await;
        for provider in IdentityProvider::ALL {
            self.register(name, provider).await;
        }
        self.deploy(name, example()).await;
        self.wait_until_ready(name).await;
    }

    /// Deploys a bundle.
    pub async fn deploy(&self, project: &str, bundle: Vec<u8>) {
        let url = format!("{}/v1/orgs/ada/projects/{project}/deployments", self.server.base);
        let deploy = client().post(url).bearer_auth(&self.session).header("content-type", "application/gzip");
        assert_eq!(deploy.body(bundle).send().await.unwrap().status(), 201);
    }

    /// Waits until the worker of a project has its bindings, and visitors can sign in.
    pub async fn wait_until_ready(&self, name: &str) {
        let visitor = self.visitor(name);
        let status = async |path: &str| Some(visitor.try_get(path).await?.status().as_u16());
        let is_ready = async || (status("/members").await == Some(303)).then_some(());
        eventually("the worker has its bindings", is_ready).await;
        let is_available = async || (status("/__svc/auth/login").await? != 503).then_some(());
        eventually("the users are available", is_available).await;
    }

    /// Registers a client of the project at a provider.
    pub async fn register(&self, project: &str, provider: IdentityProvider) {
        let provider_name = provider.as_str();
        let redirect_uri = format!("{}/__svc/auth/callback/{provider_name}", self.origin(project));
        let client = self.providers.register(provider, &[&redirect_uri]);
        let path = format!("/v1/orgs/ada/projects/{project}/auth/providers/{provider_name}");
        let body = json!({ "clientId": client.client_id, "clientSecret": client.client_secret });
        self.call("PUT", &path, Some(body)).await;
    }

    /// Calls the API as Ada.
    pub async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, text) = self.request(method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Sends a request to the API as Ada. Returns the status and the body.
    async fn request(&self, method: &str, path: &str, body: Option<Value>) -> (u16, String) {
        let mut request = client().request(method.parse().unwrap(), format!("{}{path}", self.server.base));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.bearer_auth(&self.session).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// Returns the origin of a project.
    pub fn origin(&self, project: &str) -> String {
        format!("https://{project}-ada.{DOMAIN}:{}", self.port)
    }

    /// Returns a visitor with their own address and an empty browser.
    pub fn visitor(&self, project: &str) -> Visitor {
        Visitor::new(&self.node.edge, &self.origin(project))
    }

    /// Runs a statement in the database of a project, as the superuser. Returns the rows, with fields separated by `|`.
    pub async fn sql(&self, project: &str, statement: &str) -> String {
        let connect = self.call("GET", &format!("/v1/orgs/ada/projects/{project}/database/connect"), None).await;
        let url = self.postgres.url();
        let server = url.strip_suffix("postgres").unwrap();
        self.psql(&format!("{server}{}", connect["database"].as_str().unwrap()), statement).unwrap()
    }

    /// Runs a statement. Returns the rows, or the error of Postgres.
    pub fn psql(&self, url: &str, statement: &str) -> Result<String, String> {
        let psql = self.postgres.programs().join("psql");
        let output = Command::new(psql).args(["-X", "-Atc", statement, url]).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap().trim_end().to_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }
}

/// Returns the bundle of the members' page.
fn example() -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/members");
    let names = ["svc.json", "worker/index.js", "worker/pages.js", "worker/profiles.js", "assets/style.css"];
    let files = names.map(|name| (name, fs::read(folder.join(name)).unwrap()));
    bundle(&files.each_ref().map(|(name, content)| (*name, content.as_slice())))
}
