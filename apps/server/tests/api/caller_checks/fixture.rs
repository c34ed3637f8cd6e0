//! The callers of the writes, and the ways in which they lose the permission.

use sandbox::{DnsServer, PaymentsServer, RecordType, RegistrarServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::writes::{KEY, Write};
use crate::billing::use_provider;
use crate::databases::kit::{announce, generation, node_info, status};
use crate::databases::node_task::NodeTask;
use crate::domains::{purchase, use_registrar};
use crate::oauth::kit::{Client, public, register};
use crate::support::{App, Caller, ManualNode, eventually, site};

/// The ways in which a caller loses the permission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    Credential,
    Role,
}

/// The kinds of credentials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Session,
    Token,
    /// An access token of a connected app.
    App,
}

impl Kind {
    /// Returns the table that records the last use of such a credential.
    pub fn table(self) -> &'static str {
        match self {
            Self::Session => "identity.sessions",
            Self::Token => "identity.access_tokens",
            Self::App => "oauth.grants",
        }
    }
}

/// A caller of a write, who has exactly the role that it needs.
pub struct Sender {
    pub subject: String,
    pub role: Option<&'static str>,
    pub kind: Kind,
    pub token: String,
}

/// The organization `acme`, with the resources that the writes need, and its admin.
pub struct Fixture {
    pub app: App,
    pub ada: Caller,
    pub bob: Caller,
    /// The user name of a database token of `site`.
    pub token_user: String,
    pub operation: String,
    pub client: Client,
    sent: std::cell::Cell<usize>,
    _dns: DnsServer,
    _node: NodeTask,
    pub payments: PaymentsServer,
    _registrar: RegistrarServer,
}

impl Fixture {
    pub async fn new() -> Self {
        let (payments, registrar) = (PaymentsServer::start(None).await, RegistrarServer::start().await);
        let dns = DnsServer::start().await;
        let app = App::with(|config| {
            config.limits.free.projects = 10;
            config.dns_resolver = Some(dns.address());
            config.gateway.site.mail_domain = Some("mail.localhost".to_owned());
            use_provider(config, &payments);
            use_registrar(config, &registrar);
        })
        .await;
        let ada = app.sign_in("ada").await;
        ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201);
        for project in ["site", "renamed", "doomed", "restored", "aborted", "deleted"] {
            ada.post("/v1/orgs/acme/projects", json!({ "name": project })).await.expect(201);
        }
        for page in ["one", "two"] {
            ada.upload("/v1/orgs/acme/projects/site/deployments", site(page)).await.expect(201);
        }
        ada.post("/v1/orgs/acme/projects/site/access/bypass", json!({})).await.expect(200);
        ada.post("/v1/orgs/acme/projects/site/storage", json!({})).await.expect(200);
        ada.post("/v1/orgs/acme/projects/site/ai", json!({})).await.expect(200);
        ada.post("/v1/orgs/acme/projects/site/email", json!({})).await.expect(200);
        let suppress = "INSERT INTO mail.suppressions SELECT id, 'bounced@example.org', 'bounce', NULL, now() \
                        FROM projects.projects WHERE name = 'site'";
        app.db_execute(suppress).await.unwrap();
        ada.put("/v1/orgs/acme/projects/site/secrets/OLD_KEY", json!({ "value": "value" })).await.expect(200);
        for name in ["app", "old"] {
            ada.post("/v1/orgs/acme/projects/site/repos", json!({ "name": name })).await.expect(201);
        }
        for host in ["old.example.net", "check.example.net", "unproved.example.net"] {
            ada.post("/v1/orgs/acme/projects/site/hostnames", json!({ "name": host })).await.expect(200);
        }
        // The job that checks pending hostnames would verify one of them in a test that takes longer than a minute.
        let later = "UPDATE projects.hostnames SET next_check_at = now() + interval '1 day' WHERE kind = 'custom'";
        app.db_execute(later).await.unwrap();
        dns.set("check.example.net", RecordType::CNAME, &["fallback.localhost."]);
        let hsts = "/v1/orgs/acme/projects/site/hostnames/old.example.net/hsts";
        ada.put(hsts, json!({ "maxAge": 300 })).await.expect(200);
        for zone in ["example.org", "doomed.example", "unwanted.example"] {
            ada.post("/v1/orgs/acme/dns/zones", json!({ "name": zone })).await.expect(200);
        }
        let dnssec = json!({ "enabled": true });
        ada.post("/v1/orgs/acme/dns/zones/example.org/dnssec", dnssec).await.expect(200);
        let rrset = "/v1/orgs/acme/dns/zones/example.org/rrsets/old/A";
        ada.put(rrset, json!({ "records": ["192.0.2.1"] })).await.expect(200);
        // The organization is a customer with a subscription, but its webhooks did not arrive. So it can still buy the
        // plan.
        let return_to = json!({ "returnTo": "http://localhost:3000/" });
        let checkout = ada.post("/v1/orgs/acme/billing/checkout", return_to).await.expect(200).clone();
        let _ = payments.pay(checkout["url"].as_str().unwrap());
        ada.post("/v1/orgs/acme/domains", purchase("owned.com")).await.expect(201);
        let event: Value = serde_json::from_str(&payments.deliveries()[0].body).unwrap();
        let subscribe = format!(
            "INSERT INTO billing.subscriptions (id, org_id, status, cancel_at_period_end, modified_at) \
             SELECT '{}', id, 'active', false, '2026-01-01' FROM orgs.orgs WHERE slug = 'acme'",
            event["data"]["id"].as_str().unwrap()
        );
        app.db_execute(&subscribe).await.unwrap();
        let bob = app.add_member(&ada, "acme", "bob", "viewer").await;
        app.sign_in("cy").await;
        let node = ManualNode::new(&app).await;
        announce(&node, &node_info()).await.expect(204);
        for project in ["site", "restored", "aborted", "deleted"] {
            ada.post(&format!("/v1/orgs/acme/projects/{project}/database"), json!({})).await.expect(200);
        }
        ada.post("/v1/orgs/acme/projects/site/auth", json!({})).await.expect(200);
        let client = json!({ "clientId": "id", "clientSecret": "secret" });
        ada.put("/v1/orgs/acme/projects/site/auth/providers/codehost", client).await.expect(200);
        let token = ada.post("/v1/orgs/acme/projects/site/database/tokens", json!({})).await.expect(201).clone();
        let restored = ada.get("/v1/orgs/acme/projects/restored").await.expect(200)["id"].clone();
        let part = node.part(&restored, "database").await;
        let generation = generation(&restored, &part, "scheduled", app.clock.clock_rng().now());
        node.report(&restored, &[("database", status(&part, json!({}))), ("generation", generation)]).await.expect(200);
        let confirm = json!({ "confirm": "aborted" });
        let started = ada.post("/v1/orgs/acme/projects/aborted/database/delete", confirm).await.expect(202).clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (token_user, operation) = (text(&token["user"]), text(&started["operationId"]));
        let node = NodeTask::run(node);
        let mut client = public();
        client.device = true;
        let client = register(&app, client).await;
        Self {
            app,
            ada,
            bob,
            token_user,
            operation,
            client,
            sent: std::cell::Cell::default(),
            _dns: dns,
            _node: node,
            payments,
            _registrar: registrar,
        }
    }

    /// Returns the operation of the OpenAPI document.
    fn operation(&self, route: &str) -> &Value {
        let (method, path) = route.split_once(' ').unwrap();
        &self.app.document.document["paths"][path][method]
    }

    /// Creates a caller who may make the write with a credential of this kind. Returns `None` if the operation does not
    /// accept such a credential.
    pub async fn sender(&self, write: &Write, kind: Kind) -> Option<(Sender, String)> {
        let operation = self.operation(write.route);
        let is_accepted = match kind {
            Kind::Session => !write.is_powerdns(),
            Kind::Token => operation["x-session-only"] != true,
            Kind::App => operation["x-session-only"] != true && !write.is_powerdns(),
        };
        if !is_accepted {
            return None;
        }
        self.sent.set(self.sent.get() + 1);
        let subject = format!("sender-{}", self.sent.get());
        let stated = match write.is_powerdns() {
            true if write.route.starts_with("patch") => "member",
            true => "admin",
            false => operation["x-role"].as_str().unwrap_or_default(),
        };
        let role = ["viewer", "member", "admin"].into_iter().find(|role| *role == stated);
        let caller = match role {
            Some(role) => self.app.add_member(&self.ada, "acme", &subject, role).await,
            None => self.app.sign_in(&subject).await,
        };
        let mut path = write.path.replace("{own user}", &caller.user_id);
        // For routes about the account, the resources must belong to the sender.
        if path.ends_with("{own key}") {
            let key = json!({ "title": "laptop", "key": KEY });
            // An SSH key belongs to only one user at a time.
            self.app.db_execute("DELETE FROM identity.ssh_keys").await.unwrap();
            let id = caller.post("/v1/me/ssh-keys", key).await.expect(201)["id"].clone();
            path = path.replace("{own key}", id.as_str().unwrap());
        }
        if path.ends_with("{own token}") {
            let created = caller.post("/v1/me/tokens", json!({ "name": "old", "scopes": ["deploy"] })).await;
            path = path.replace("{own token}", created.expect(201)["id"].as_str().unwrap());
        }
        if path.ends_with("{own session}") {
            let sessions = caller.get("/v1/me/sessions").await;
            path = path.replace("{own session}", sessions.expect(200)["items"][0]["id"].as_str().unwrap());
        }
        if path.ends_with("{own grant}") {
            path = path.replace("{own grant}", &self.client.sign_in(&caller).await.sid());
        }
        if path.contains("{invitation}") {
            let invite = json!({ "email": format!("{subject}@example.org"), "role": "viewer" });
            let created = self.ada.post("/v1/orgs/acme/invites", invite).await;
            let url = created.expect(201)["acceptUrl"].as_str().unwrap().to_owned();
            path = path.replace("{invitation}", url.rsplit('/').next().unwrap());
        }
        let scopes =
            ["account:read", "billing:write", "org:write", "project:write", "deploy", "dns:write", "git:write"];
        let token = match kind {
            Kind::Session => caller.token.clone().unwrap(),
            Kind::Token => {
                let mut body = json!({ "name": "sender", "scopes": scopes });
                if role.is_some() {
                    body["restrict"] = json!({ "org": "acme" });
                }
                let created = caller.post("/v1/me/tokens", body).await;
                created.expect(201)["token"].as_str().unwrap().to_owned()
            }
            Kind::App => self.client.sign_in_with(&caller, json!({ "scope": scopes.join(" ") })).await.access,
        };
        Some((Sender { subject, role, kind, token }, path))
    }

    /// Sends the request without the last byte of its body.
    pub async fn send(&self, write: &Write, path: &str, token: &str) -> TcpStream {
        let method = write.route.split_once(' ').unwrap().0.to_ascii_uppercase();
        let content = self.operation(write.route)["requestBody"]["content"].as_object();
        let content_type =
            content.and_then(|content| content.keys().next()).map_or("application/json", |it| it.as_str());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\n{}{token}\r\nConnection: close\r\n\
             Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
            if write.is_powerdns() { "X-API-Key: " } else { "Authorization: Bearer " },
            write.body.len()
        );
        let mut stream = TcpStream::connect(self.app.base.strip_prefix("http://").unwrap()).await.unwrap();
        let (first, _) = write.body.split_at(write.body.len().saturating_sub(1));
        stream.write_all(&[head.as_bytes(), first].concat()).await.unwrap();
        stream
    }

    /// Sets back the last use of the callers' credentials of this kind.
    pub async fn forget_uses(&self, kind: Kind, senders: &[&Sender]) {
        let forget = format!("UPDATE {} SET last_used_at = '2000-01-01' WHERE {}", kind.table(), of_users(senders));
        self.app.db_execute(&forget).await.unwrap();
    }

    /// Waits until each of these callers was authorized since [`Self::forget_uses`]. The last use of a credential is
    /// recorded then.
    pub async fn wait_until_authorized(&self, kind: Kind, senders: &[&Sender]) {
        let (table, users) = (kind.table(), of_users(senders));
        let recorded = format!("SELECT id FROM {table} WHERE last_used_at > '2000-01-01' AND {users}");
        let are_authorized = async || (self.app.db_rows(&recorded).await.len() == senders.len()).then_some(());
        eventually("the callers are authorized", are_authorized).await;
    }

    /// Revokes the permission directly in the database.
    pub async fn revoke(&self, sender: &Sender, loss: Loss) {
        let Sender { subject, role, kind, .. } = sender;
        let user = format!("user_id = (SELECT id FROM identity.users WHERE subject = '{subject}')");
        let member = format!("{user} AND org_id = (SELECT id FROM orgs.orgs WHERE slug = 'acme')");
        let statement = match (loss, role) {
            (Loss::Credential, _) => match kind {
                Kind::Session => format!("UPDATE identity.sessions SET expires_at = '2000-01-01' WHERE {user}"),
                Kind::Token => format!("UPDATE identity.access_tokens SET revoked_at = now() WHERE {user}"),
                Kind::App => format!("DELETE FROM oauth.grants WHERE {user}"),
            },
            (Loss::Role, Some("admin")) => format!("UPDATE orgs.members SET role = 'member' WHERE {member}"),
            (Loss::Role, Some("member")) => format!("UPDATE orgs.members SET role = 'viewer' WHERE {member}"),
            (Loss::Role, _) => format!("DELETE FROM orgs.members WHERE {member}"),
        };
        self.app.db_execute(&statement).await.unwrap();
    }

    /// Returns the number of changes by these callers, and of the counted bundles.
    pub async fn changes(&self, senders: &[&Sender]) -> usize {
        let statement = format!(
            "SELECT event FROM (SELECT event, actor_id AS user_id FROM store.audit) a WHERE {} \
             UNION ALL SELECT 'bundle' FROM projects.bundles",
            of_users(senders)
        );
        self.app.db_rows(&statement).await.len()
    }
}

/// Returns the condition that selects the rows of these users.
fn of_users(senders: &[&Sender]) -> String {
    let subjects: Vec<String> = senders.iter().map(|sender| format!("'{}'", sender.subject)).collect();
    format!("user_id IN (SELECT id FROM identity.users WHERE subject IN ({}))", subjects.join(", "))
}

/// Returns the status and the error code of the response. PowerDNS has no codes.
pub async fn response(mut stream: TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    let body = text.split_once("\r\n\r\n").unwrap().1;
    let code = serde_json::from_str::<Value>(body).unwrap_or_default()["code"].as_str().unwrap_or_default().to_owned();
    (status, code)
}

pub fn expected(write: &Write, loss: Loss) -> (u16, String) {
    let (status, code) = match loss {
        Loss::Credential => (401, "unauthenticated"),
        Loss::Role => (403, "forbidden"),
    };
    (status, if write.is_powerdns() { String::new() } else { code.to_owned() })
}
