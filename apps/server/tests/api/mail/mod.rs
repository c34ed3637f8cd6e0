//! The mail of projects.

mod address;
pub mod bot;
mod hook;
mod nodes;
mod receiving;
mod sending;
mod suppressions;

use kernel::{ClockRng, MailId};
use reqwest::Method;
use sandbox::{Encryption, SmtpServer};
use serde_json::{Value, json};
use server::Config;
use server::config::MailConfig;

use crate::support::{ApiResponse, App, Caller, ManualNode, eventually, site};

const EMAIL: &str = "/v1/orgs/ada/projects/site/email";
const LOG: &str = "/v1/orgs/ada/projects/site/email/log";
const DOMAIN: &str = "site.ada.mail.localhost";

/// A server with a mail domain and a relay, and Ada with her project `site`, whose home node is `node`.
struct Kit {
    app: App,
    ada: Caller,
    node: ManualNode,
    mx: ManualNode,
    relay: SmtpServer,
    project: Value,
}

/// Sets the mail domain and the relay of the configuration.
fn use_mail(config: &mut Config, relay: &SmtpServer) {
    config.gateway.site.mail_domain = Some("mail.localhost".to_owned());
    let from = "Svc <no-reply@svc.example>".parse().unwrap();
    config.mail = Some(MailConfig { server: relay.url().parse().unwrap(), from });
}

impl Kit {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let relay = SmtpServer::start(Encryption::None).await;
        let app = App::with(|config| {
            use_mail(config, &relay);
            change(config);
        })
        .await;
        let ada = app.sign_in("ada").await;
        let project = ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201)["id"].clone();
        let node = ManualNode::new(&app).await;
        ada.upload("/v1/orgs/ada/projects/site/deployments", site("page")).await.expect(201);
        let mx = ManualNode::mail(&app).await;
        ada.post(EMAIL, json!({})).await.expect(200);
        Self { app, ada, node, mx, relay, project }
    }

    /// Submits a mail from the node, as the node does. The given fields replace those of a valid mail.
    async fn submit(&self, id: &str, fields: Value) -> ApiResponse {
        let mut mail = json!({
            "from": null, "replyTo": null, "to": ["ada@example.org"], "cc": [], "bcc": [], "subject": "Welcome",
            "text": "Hello", "html": null, "headers": {}, "attachments": [],
        });
        for (name, value) in fields.as_object().unwrap() {
            mail[name] = value.clone();
        }
        let submission = json!({ "id": id, "project": self.project, "mail": mail });
        self.node.send(Method::POST, "mail/submissions", |request| request.json(&submission)).await
    }

    /// Submits a mail that is accepted, and returns its id.
    async fn send(&self, fields: Value) -> String {
        let id = new_id();
        assert_eq!(self.submit(&id, fields).await.expect(200), &json!("queued"));
        id
    }

    /// Submits a mail, and returns the code of the refusal.
    async fn refusal(&self, fields: Value) -> String {
        let response = self.submit(&new_id(), fields).await;
        let refused = &response.expect(200)["refused"];
        assert!(!refused["message"].as_str().unwrap().is_empty());
        refused["code"].as_str().unwrap().to_owned()
    }

    /// Waits until a mail has this outcome, and returns its entry in the log.
    async fn wait_for(&self, id: &str, outcome: &str) -> Value {
        eventually(&format!("the mail is {outcome}"), async || {
            let entry = self.ada.get(&format!("{LOG}/{id}")).await.expect(200).clone();
            (entry["outcome"] == outcome).then_some(entry)
        })
        .await
    }

    /// Hands over a received mail, as the mail node does, and returns its id.
    async fn receive(&self, message: &'static str) -> String {
        let id = new_id();
        self.upload(&id, message).await.expect(204);
        self.commit(&id, inbound(&self.project, message)).await.expect(204);
        id
    }

    async fn upload(&self, id: &str, message: &'static str) -> ApiResponse {
        let path = format!("mail/uploads/{}/{id}", self.project.as_str().unwrap());
        let build = |request: reqwest::RequestBuilder| request.header("content-type", "message/rfc822").body(message);
        self.mx.send(Method::PUT, &path, build).await
    }

    async fn commit(&self, id: &str, mail: Value) -> ApiResponse {
        self.mx.send(Method::PUT, &format!("mail/inbound/{id}"), |request| request.json(&mail)).await
    }

    /// Claims the due mail of a node that has no mail in progress.
    async fn claim(&self, node: &ManualNode) -> Vec<Value> {
        claim(node, 0, &[]).await.expect(200)["deliveries"].as_array().unwrap().clone()
    }

    async fn complete(&self, node: &ManualNode, id: &str, attempt: u32, (outcome, reason): (&str, Option<&str>)) {
        let body = json!({ "attempt": attempt, "outcome": outcome, "reason": reason });
        node.send(Method::POST, &format!("mail/deliveries/{id}"), |request| request.json(&body)).await.expect(204);
    }
}

/// Claims the due mail of a node that has these mails in progress. Waits for mail for these seconds.
async fn claim(node: &ManualNode, wait: u8, in_progress: &[String]) -> ApiResponse {
    let path = format!("mail/deliveries?wait={wait}");
    node.send(Method::POST, &path, |request| request.json(&json!({ "inProgress": in_progress }))).await
}

/// Returns the ids of the claimed mails.
fn ids(claimed: &ApiResponse) -> Vec<String> {
    let claimed = claimed.expect(200)["deliveries"].as_array().unwrap();
    claimed.iter().map(|mail| mail["id"].as_str().unwrap().to_owned()).collect()
}

fn new_id() -> String {
    ClockRng::system().id::<MailId>().to_string()
}

fn inbound(project: &Value, message: &str) -> Value {
    json!({
        "project": project, "from": "eve@example.org", "to": [format!("sales@{DOMAIN}")], "subject": "Hi",
        "spf": "pass", "sizeBytes": message.len(), "receivedAt": ClockRng::system().now(),
    })
}
