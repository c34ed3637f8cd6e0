//! `env.ai` in a real `workerd`, with the sandbox's upstream.

mod calls;
mod failures;
mod streams;

use std::ops::Deref;
use std::time::Duration;

use protocol::{AiUsage, EndedCall};
use reqwest::{Method, Response};
use sandbox::AiServer;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::control_plane::ControlPlane;
use crate::node_process::NodeProcess;
use crate::running::until;
use crate::timeout::TIMEOUT;
use crate::visitor::{Visitor, VisitorResponse};
use crate::workers::workerd;

const HOST: &str = "app.localhost";
const MANIFEST: &str = r#"{"ai":true}"#;

/// A node process with an upstream, and the projects `app` and `other` with the worker of these tests.
struct Rig {
    node: NodeProcess,
    upstream: AiServer,
}

impl Deref for Rig {
    type Target = NodeProcess;

    fn deref(&self) -> &NodeProcess {
        &self.node
    }
}

impl Rig {
    /// Starts the node. Returns `None` without `workerd`.
    async fn start() -> Option<Self> {
        let upstream = AiServer::start().await;
        let settings = upstream.settings();
        Self::start_with(upstream, settings).await
    }

    async fn start_with(
        upstream: AiServer,
        settings: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Option<Self> {
        workerd()?;
        let _ = rustls::crypto::ring::default_provider().install_default();
        let core = ControlPlane::start().await;
        core.set_part("app", "ai", json!({}));
        core.deploy_with(MANIFEST, "app", &[("worker/index.js", include_bytes!("worker.js"))]);
        let rig = Self { node: NodeProcess::start(core, settings).await, upstream };
        rig.sees_granted("true").await;
        Some(rig)
    }

    async fn sees_granted(&self, granted: &str) {
        self.visitor().sees(HOST, "/granted", 200, granted).await;
    }

    /// Sends a body to a path of the worker.
    async fn post(&self, path: &str, body: &Value) -> Response {
        self.visitor().request(Method::POST, HOST, path).body(body.to_string()).send().await.unwrap()
    }

    async fn post_whole(&self, path: &str, body: &Value) -> VisitorResponse {
        Visitor::send(self.visitor().request(Method::POST, HOST, path).body(body.to_string())).await
    }

    /// Waits until this number of calls is settled. Returns the only settlement of each call, in the order of the
    /// calls.
    async fn settlements(&self, count: usize) -> Vec<EndedCall> {
        let asked = || self.core.asked_ai_calls().into_iter().map(|call| call.id);
        let ended = |id: String| self.core.settled_ai_calls().into_iter().find(|ended| ended.id == id);
        let all = async {
            loop {
                let settled: Vec<EndedCall> = asked().filter_map(ended).collect();
                if settled.len() >= count {
                    return settled;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        let settled = timeout(TIMEOUT, all).await;
        assert_eq!(settled.as_ref().map(Vec::len), Ok(count), "{:?}", self.core.settled_ai_calls());
        settled.unwrap()
    }

    /// Waits until this number of calls is settled. Returns the usage of the last one.
    async fn usage(&self, count: usize) -> Option<AiUsage> {
        self.settlements(count).await.pop().unwrap().usage
    }

    /// Waits until the upstream saw this outcome of its last call.
    async fn upstream_sees(&self, outcome: &str) {
        let seen = async {
            while self.upstream.calls().last().is_none_or(|(_, seen)| *seen != outcome) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let seen = timeout(TIMEOUT, seen).await;
        assert!(seen.is_ok(), "not {outcome}: {:?}", self.upstream.calls());
    }

    /// Returns the number of files in the journal of calls.
    fn journal(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("ai")).unwrap().count()
    }

    /// Returns the output tokens of the calls in progress that the journal records.
    fn recorded_output(&self) -> u64 {
        let files = std::fs::read_dir(self.dir.path().join("ai")).unwrap();
        // A file may be replaced at any time.
        let states = files.filter_map(|file| std::fs::read(file.unwrap().path()).ok());
        let states = states.filter_map(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        states.filter_map(|state| state["sent"]["outputTokens"].as_u64()).sum()
    }

    async fn waits_for_an_empty_journal(&self) {
        until("the empty journal", || self.journal() == 0).await;
    }
}

/// Returns a request with one message.
fn question(content: &str) -> Value {
    json!({ "model": "lab/small", "messages": [{ "role": "user", "content": content }] })
}

fn streamed(content: &str) -> Value {
    let mut question = question(content);
    question["stream"] = json!(true);
    question
}

/// Returns the usage that the sandbox reports for a request.
fn reported(body: &Value) -> AiUsage {
    let answer = format!("You said: {}", body["messages"][0]["content"].as_str().unwrap());
    AiUsage { input_tokens: tokens(&body["messages"].to_string()), output_tokens: tokens(&answer), estimated: false }
}

fn tokens(text: &str) -> u32 {
    u32::try_from(text.len().div_ceil(4)).unwrap()
}
