//! `env.email` and `email()` in a real `workerd`.

mod example;
mod failures;
mod handlers;
mod receiving;
mod sending;

use std::ops::Deref;

use protocol::DeliveryResult;
use reqwest::Method;
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::node_process::NodeProcess;
use crate::visitor::Visitor;
use crate::workers::workerd;

const HOST: &str = "app.localhost";

/// A node process with the project `app`, which has a mail address and the worker of these tests.
struct Rig(NodeProcess);

impl Deref for Rig {
    type Target = NodeProcess;

    fn deref(&self) -> &NodeProcess {
        &self.0
    }
}

impl Rig {
    /// Starts the node. Returns `None` without `workerd`.
    async fn start() -> Option<Self> {
        let rig = Self::start_with(&[]).await?;
        rig.sees_granted("true").await;
        Some(rig)
    }

    /// Starts the node with more settings. Returns before the worker runs.
    async fn start_with(settings: &[(&str, String)]) -> Option<Self> {
        workerd()?;
        let _ = rustls::crypto::ring::default_provider().install_default();
        let core = ControlPlane::start().await;
        core.set_part("app", "email", address("app"));
        core.deploy("app", &[("worker/index.js", include_bytes!("worker.js"))]);
        Some(Self(NodeProcess::start(core, settings.iter().cloned()).await))
    }

    async fn sees_granted(&self, granted: &str) {
        self.visitor().sees(HOST, "/granted", 200, granted).await;
    }

    /// Sends a mail with `env.email`. Returns its result, or the thrown error.
    async fn send(&self, mail: &Value) -> Value {
        let request = self.visitor().request(Method::POST, HOST, "/send").body(mail.to_string());
        serde_json::from_str(&Visitor::send(request).await.body).unwrap()
    }

    /// Returns the ids for which `email()` was called.
    async fn seen(&self) -> Vec<String> {
        serde_json::from_str(&self.visitor().get(HOST, "/seen").await.body).unwrap()
    }

    /// Returns the result of a received mail.
    async fn result_of(&self, raw: impl Into<actix_web::web::Bytes>) -> DeliveryResult {
        self.core.mail_result(&self.core.receive_mail("app", raw)).await
    }

    /// Returns what `email()` receives for a mail in the mode `describe`.
    async fn described(&self, raw: impl Into<actix_web::web::Bytes>) -> Value {
        let result = self.result_of(raw).await;
        let DeliveryResult::Rejected(description) = &result else { return Value::String(format!("{result:?}")) };
        serde_json::from_str(description).unwrap()
    }
}

/// Returns the part `email` of a project.
fn address(project: &str) -> Value {
    json!({ "domain": format!("{project}.ada.example") })
}

/// Returns a mail that the worker handles in this mode.
fn mail(mode: &str) -> String {
    format!("X-Mode: {mode}\r\nSubject: Hello\r\n\r\nThe body.\r\n")
}
