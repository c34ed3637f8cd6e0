//! A server with something of everything, and what schemathesis is told of it.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::kit::{Folder, client, site};
use crate::process::Process;

const CONFIG: &str = include_str!("schemathesis.toml");
const HOOKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api/judges/hooks.py");

/// Nobody is held back by a rate or a plan here.
const LIMITS: &str = "
    [plans.free]
    projects = 1000000
    bundle = { compressed = 52428800, unpacked = 262144000, entries = 20000 }
    [rates]
    sign_in = 10000000
    credential = 10000000
";

/// Every scope that a route asks for.
const SCOPES: [&str; 5] = ["account:read", "org:write", "project:write", "deploy", "dns:write"];

/// The organization `acme` of ada's, and `guild` of bob's, who invites her.
pub struct World {
    pub server: Process,
    pub folder: Folder,
    pub config: PathBuf,
    pub document: String,
}

impl World {
    pub async fn new(folder: Folder) -> Self {
        let nowhere = |path: &str| format!("http://127.0.0.1:9/{path}");
        let server = Process::with(&[
            ("SVC_LIMITS", folder.write("limits.toml", LIMITS).display().to_string()),
            ("SVC_NAMESERVERS", "ns1.svc.example,ns2.svc.example".to_owned()),
            ("SVC_DNS_RESOLVER", "127.0.0.1:9".to_owned()),
            ("SVC_CODEHOST_CLIENT_ID", "svc".to_owned()),
            ("SVC_CODEHOST_CLIENT_SECRET", "secret".to_owned()),
            ("SVC_CODEHOST_AUTHORIZE_URL", nowhere("authorize")),
            ("SVC_CODEHOST_TOKEN_URL", nowhere("token")),
            ("SVC_CODEHOST_USER_URL", nowhere("user")),
            ("SVC_CODEHOST_REDIRECTS", "http://localhost:3000".to_owned()),
            // Of thousands of requests each would be a line.
            ("SVC_LOG", "warn".to_owned()),
        ])
        .await;
        let (bob, ada) = (somebody(&server, "bob").await, somebody(&server, "ada").await);
        somebody(&server, "cy").await;
        let invitation = guild(&server, text(&bob, "token")).await;
        let token = acme(&server, text(&ada, "token")).await;
        // Who is judged with signs in anew; this session may be ended.
        let sessions = server.json(text(&ada, "token"), "GET", "/v1/me/sessions", None).await;
        let users = folder.write("users.json", users(&token).to_string());
        let config = [
            ("HOOKS", HOOKS),
            ("USERS", users.to_str().unwrap()),
            ("INVITATION", text(&invitation, "acceptUrl").rsplit('/').next().unwrap()),
            ("MEMBER", text(&bob, "userId")),
            ("SESSION", text(&sessions["items"][0], "id")),
            ("TOKEN", &token),
        ];
        let config = config.iter().fold(CONFIG.to_owned(), |config, (word, value)| config.replace(word, value));
        let (config, document) =
            (folder.write("schemathesis.toml", config), format!("{}/v1/openapi.json", server.base));
        Self { server, folder, config, document }
    }
}

async fn somebody(server: &Process, subject: &str) -> Value {
    let login = json!({ "subject": subject, "email": format!("{subject}@example.org") });
    server.json("", "POST", "/v1/auth/dev/login", Some(login)).await
}

/// The invitation that ada gets.
async fn guild(server: &Process, bob: &str) -> Value {
    server.json(bob, "POST", "/v1/orgs", Some(json!({ "slug": "guild" }))).await;
    let invite = json!({ "email": "ada@example.org", "role": "viewer" });
    server.json(bob, "POST", "/v1/orgs/guild/invites", Some(invite)).await
}

/// A token of ada's, who has made something of everything.
async fn acme(server: &Process, ada: &str) -> String {
    let post = async |path: &str, body: Value| server.json(ada, "POST", path, Some(body)).await;
    post("/v1/orgs", json!({ "slug": "acme" })).await;
    post("/v1/orgs/acme/members", json!({ "provider": "dev", "subject": "bob", "role": "member" })).await;
    for project in ["site", "spare"] {
        post("/v1/orgs/acme/projects", json!({ "name": project })).await;
    }
    for page in ["one", "two"] {
        let upload = client().post(format!("{}/v1/orgs/acme/projects/site/deployments", server.base)).bearer_auth(ada);
        let upload = upload.header("content-type", "application/gzip").body(site(page));
        assert_eq!(upload.send().await.unwrap().status(), 201);
    }
    post("/v1/orgs/acme/projects/site/hostnames", json!({ "name": "www.example.net" })).await;
    for zone in ["example.org", "spare.example.org"] {
        post("/v1/orgs/acme/dns/zones", json!({ "name": zone })).await;
    }
    post("/v1/orgs/acme/dns/zones/example.org/dnssec", json!({ "enabled": true })).await;
    let token = post("/v1/me/tokens", json!({ "name": "judged", "scopes": SCOPES })).await;
    text(&token, "token").to_owned()
}

/// Who comes, as schemathesis reads it (Web Fuzzing Commons): two who sign in whenever they have to, and a token.
fn users(token: &str) -> Value {
    let signs_in = |name: &str| {
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
    let sends = json!([{ "name": "Authorization", "value": format!("Bearer {token}") }]);
    json!({ "auth": [signs_in("ada"), signs_in("stranger"), { "name": "token", "fixedHeaders": sends }] })
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap()
}
