//! A server with resources of all kinds, and the schemathesis configuration for it.

use std::path::PathBuf;

use sandbox::{PaymentsServer, RegistrarServer};
use serde_json::{Value, json};

use crate::databases::kit::{announce, node_info};
use crate::databases::node_task::NodeTask;
use crate::domains::purchase;
use crate::git::kit::GitNode;
use crate::oauth::kit::{public, register_at};
use crate::process::Process;
use crate::support::{Folder, ManualNode, client, site};

pub const CONFIG: &str = include_str!("schemathesis.toml");
const HOOKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api/openapi_tools/hooks.py");

/// Limits that the tests never reach.
const LIMITS: &str = "
    [plans.free]
    projects = 1000000
    zones = 1000000
    bundle = { compressed = 52428800, unpacked = 262144000, entries = 20000 }
    [rates]
    sign_in = 10000000
    credential = 10000000
    oauth_address = 10000000
    oauth_client = 10000000
    [abuse]
    orgs_per_user = 10000000
    deleted_projects_per_org = 10000000
    deleted_repositories_per_org = 10000000
    deployments_per_project = 10000000
    registrar_requests_per_org = 10000000
    [registrar]
    requests_per_second = 10000000
    requests_per_hour = 10000000
";

/// Scopes that cover all routes.
const SCOPES: [&str; 8] =
    ["account:read", "billing:write", "org:write", "project:write", "deploy", "dns:write", "git:write", "ai:use"];

/// A server with Ada's organization `acme`, and Bob's organization `guild`, to which Ada is invited.
pub struct Fixture {
    pub server: Process,
    pub folder: Folder,
    pub config: PathBuf,
    pub document: String,
    _node: NodeTask,
    _git: GitNode,
    _payments: PaymentsServer,
    _registrar: RegistrarServer,
}

impl Fixture {
    pub async fn new(folder: Folder) -> Self {
        let unreachable = |path: &str| format!("http://127.0.0.1:9/{path}");
        let (payments, registrar) = (PaymentsServer::start(None).await, RegistrarServer::start().await);
        let settings = [
            ("SVC_LIMITS", folder.write("limits.toml", LIMITS).display().to_string()),
            ("SVC_NAMESERVERS", "ns1.svc.example,ns2.svc.example".to_owned()),
            ("SVC_DNS_RESOLVER", "127.0.0.1:9".to_owned()),
            ("SVC_CODEHOST_CLIENT_ID", "svc".to_owned()),
            ("SVC_CODEHOST_CLIENT_SECRET", "secret".to_owned()),
            ("SVC_CODEHOST_AUTHORIZE_URL", unreachable("authorize")),
            ("SVC_CODEHOST_TOKEN_URL", unreachable("token")),
            ("SVC_CODEHOST_USER_URL", unreachable("user")),
            ("SVC_CODEHOST_REDIRECTS", "http://localhost:3000".to_owned()),
            ("SVC_MAILHOOK_TOPIC_ARN", "arn:aws:sns:eu-west-1:123456789012:mail".to_owned()),
            ("SVC_OAUTH_ISSUER", "http://127.0.0.1".to_owned()),
            ("SVC_OAUTH_DEVICE_FLOW", "on".to_owned()),
            // Do not log thousands of requests.
            ("SVC_LOG", "warn".to_owned()),
        ];
        let server = Process::with(&[&payments.settings()[..], &registrar.settings(), &settings].concat()).await;
        let git = GitNode::start(&server.database.url(), &server.internal).await;
        let node = ManualNode::register(&server.database.url(), &server.internal, "edge").await;
        announce(&node, &node_info()).await.expect(204);
        let node = NodeTask::run(node);
        let (bob, ada) = (sign_in(&server, "bob").await, sign_in(&server, "ada").await);
        sign_in(&server, "cy").await;
        let invitation = create_guild(&server, text(&bob, "token")).await;
        let token = create_acme(&server, &payments, text(&ada, "token")).await;
        // Schemathesis signs in again, so it may end this session.
        let sessions = server.json(text(&ada, "token"), "GET", "/v1/me/sessions", None).await;
        let mut new = public();
        new.device = true;
        let (client, _) = register_at(&server, new).await;
        let users = folder.write("users.json", users(&token).to_string());
        let config = [
            ("HOOKS", HOOKS),
            ("USERS", users.to_str().unwrap()),
            ("INVITATION", text(&invitation, "acceptUrl").rsplit('/').next().unwrap()),
            ("MEMBER", text(&bob, "userId")),
            ("SESSION", text(&sessions["items"][0], "id")),
            ("TOKEN", &token),
            ("CLIENT", &client.id),
        ];
        let config = config.iter().fold(CONFIG.to_owned(), |config, (word, value)| config.replace(word, value));
        let (config, document) =
            (folder.write("schemathesis.toml", config), format!("{}/v1/openapi.json", server.base));
        Self { server, folder, config, document, _node: node, _git: git, _payments: payments, _registrar: registrar }
    }
}

async fn sign_in(server: &Process, subject: &str) -> Value {
    let login = json!({ "subject": subject, "email": format!("{subject}@example.org") });
    server.json("", "POST", "/v1/auth/dev/login", Some(login)).await
}

/// Creates `guild` and returns Ada's invitation.
async fn create_guild(server: &Process, bob: &str) -> Value {
    server.json(bob, "POST", "/v1/orgs", Some(json!({ "slug": "guild" }))).await;
    let invite = json!({ "email": "ada@example.org", "role": "viewer" });
    server.json(bob, "POST", "/v1/orgs/guild/invites", Some(invite)).await
}

/// Creates `acme` with resources of all kinds, and returns an access token of Ada.
async fn create_acme(server: &Process, payments: &PaymentsServer, ada: &str) -> String {
    let post = async |path: &str, body: Value| server.json(ada, "POST", path, Some(body)).await;
    let org = post("/v1/orgs", json!({ "slug": "acme" })).await;
    payments.set_card(text(&org, "id"), false);
    post("/v1/orgs/acme/domains", purchase("owned.com")).await;
    post("/v1/orgs/acme/members", json!({ "provider": "dev", "subject": "bob", "role": "member" })).await;
    for project in ["site", "spare"] {
        post("/v1/orgs/acme/projects", json!({ "name": project })).await;
    }
    for page in ["one", "two"] {
        let upload = client().post(format!("{}/v1/orgs/acme/projects/site/deployments", server.base)).bearer_auth(ada);
        let upload = upload.header("content-type", "application/gzip").body(site(page));
        assert_eq!(upload.send().await.unwrap().status(), 201);
    }
    for repository in ["app", "spare"] {
        post("/v1/orgs/acme/projects/site/repos", json!({ "name": repository })).await;
    }
    post("/v1/orgs/acme/projects/site/hostnames", json!({ "name": "www.example.net" })).await;
    for zone in ["example.org", "spare.example.org"] {
        post("/v1/orgs/acme/dns/zones", json!({ "name": zone })).await;
    }
    post("/v1/orgs/acme/dns/zones/example.org/dnssec", json!({ "enabled": true })).await;
    for project in ["site", "spare"] {
        post(&format!("/v1/orgs/acme/projects/{project}/database"), json!({})).await;
    }
    post("/v1/orgs/acme/projects/site/auth", json!({})).await;
    let token = post("/v1/me/tokens", json!({ "name": "judged", "scopes": SCOPES })).await;
    text(&token, "token").to_owned()
}

/// Returns the users in the format of Web Fuzzing Commons: two users who sign in on demand, and a token.
fn users(token: &str) -> Value {
    let session_user = |name: &str| {
        json!({ "name": name, "loginEndpointAuth": {
            "endpoint": "/v1/auth/dev/login",
            "verb": "POST",
            "contentType": "application/json",
            "payloadRaw": json!({ "subject": name }).to_string(),
            "token": {
                "extractFrom": "body",
                "extractSelector": "/token",
                "sendIn": "header",
                "sendName": "Authorization",
                "sendTemplate": "Bearer {token}",
            },
        }})
    };
    let headers = json!([{ "name": "Authorization", "value": format!("Bearer {token}") }]);
    json!({ "auth": [session_user("ada"), session_user("mallory"), { "name": "token", "fixedHeaders": headers }] })
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap()
}
