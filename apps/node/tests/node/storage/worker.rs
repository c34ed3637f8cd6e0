//! `env.storage` in a real `workerd`, with a node in its own process.

use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use protocol::StorageReport;
use reqwest::{Body, Method};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Kind, TestStore};
use crate::control_plane::ControlPlane;
use crate::node_process::NodeProcess;
use crate::running::until;
use crate::visitor::Visitor;
use crate::workers::workerd;

const QUOTA: u64 = 2 << 30;

/// A node process with two projects: `app`, which has the worker of these tests, and `other`.
struct Rig {
    node: NodeProcess,
    store: TestStore,
}

impl Deref for Rig {
    type Target = NodeProcess;

    fn deref(&self) -> &NodeProcess {
        &self.node
    }
}

fn part(project: &str, quota_bytes: u64) -> Value {
    json!({ "prefix": format!("sto_{project}"), "quotaBytes": quota_bytes })
}

impl Rig {
    /// Starts the node. Returns `None` without `workerd`.
    async fn start(kind: Kind) -> Option<Self> {
        let store = TestStore::start(kind).await;
        let settings = store.settings();
        Self::start_with(store, settings).await
    }

    async fn start_with(store: TestStore, settings: Vec<(String, String)>) -> Option<Self> {
        workerd()?;
        let core = ControlPlane::start().await;
        for project in ["app", "other"] {
            core.set_part(project, "storage", part(project, QUOTA));
            core.deploy(project, &[("worker/index.js", include_bytes!("worker.js"))]);
        }
        let interval = ("SVC_NODE_STORAGE_REPORT_INTERVAL".to_owned(), "1s".to_owned());
        let node = NodeProcess::start(core, settings.into_iter().chain([interval])).await;
        let rig = Self { node, store };
        rig.wait_until_granted("true").await;
        Some(rig)
    }

    async fn kill_and_restart(&mut self) {
        self.node.kill();
        self.node.restart().await;
        self.wait_until_granted("true").await;
    }

    async fn wait_until_granted(&self, granted: &str) {
        for host in ["app.localhost", "other.localhost"] {
            self.visitor().sees(host, "/granted", 200, granted).await;
        }
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let response = self.visitor().get("app.localhost", path).await;
        (response.status, response.body)
    }

    async fn objects(&self) -> String {
        self.get("/list").await.1
    }

    fn last_report(&self) -> Option<StorageReport> {
        let report = self.core.last_report_of("app", "storage")?;
        Some(serde_json::from_value(report).unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interface_is_that_of_the_specification() {
    for kind in [Kind::Folder, Kind::S3] {
        let Some(node) = Rig::start(kind).await else { return };
        assert_eq!(node.get("/checks").await, (200, "ok".to_owned()), "{kind:?}");
        node.has_metrics(&[
            r#"svc_node_storage_operations_total{operation="put",outcome="ok"}"#,
            r#"svc_node_storage_operations_total{operation="put",outcome="invalid_argument"}"#,
            r#"svc_node_storage_bytes_total{direction="in"}"#,
            r#"svc_node_storage_bytes_total{direction="out"}"#,
            "svc_node_storage_orphans_removed_total 0",
        ])
        .await;
        // The other project does not see the objects.
        node.visitor().sees("other.localhost", "/list", 200, "[]").await;
        let used = async || {
            let objects: Vec<(String, u64)> = serde_json::from_str(&node.objects().await).unwrap();
            objects.iter().map(|(_, size)| size).sum::<u64>()
        };
        let expected = Some(StorageReport { used_bytes: used().await, quota_exceeded: false });
        until("the report", || node.last_report() == expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_grant_removes_the_binding_and_keeps_the_objects() {
    let Some(node) = Rig::start(Kind::Folder).await else { return };
    let put = node.visitor().request(Method::POST, "app.localhost", "/put?key=a").body("kept");
    assert_eq!(Visitor::send(put).await.status, 200);
    for project in ["app", "other"] {
        node.core.set_part(project, "storage", Value::Null);
    }
    node.wait_until_granted("false").await;
    for project in ["app", "other"] {
        node.core.set_part(project, "storage", part(project, QUOTA));
    }
    node.wait_until_granted("true").await;
    assert_eq!(node.get("/get?key=a").await, (200, "kept".to_owned()));
    // A new quota requires no new process.
    node.core.set_part("app", "storage", part("app", 4));
    let refused = async || {
        let put = node.visitor().request(Method::POST, "app.localhost", "/put?key=b").body("x");
        let response = Visitor::send(put).await;
        response.status == 500 && response.body.contains("quota_exceeded")
    };
    while !refused().await {
        // The old quota applied. A replacement of the object by one of the same size would fit into the new one as well.
        node.get("/delete?key=b").await;
        sleep(Duration::from_millis(50)).await;
    }
    // A content that is too large is refused with the same error while it is sent, both with a known length and as a
    // stream of the worker.
    let put = node.visitor().request(Method::POST, "app.localhost", "/put?key=b").body(vec![0; 20 << 20]);
    let response = Visitor::send(put).await;
    assert!(response.status == 500 && response.body.contains("quota_exceeded"), "{response:?}");
    let (status, body) = node.get(&format!("/zeros?key=b&bytes={}", 100 << 20)).await;
    assert!(status == 500 && body.contains("quota_exceeded"), "{body}");
    let expected = Some(StorageReport { used_bytes: 4, quota_exceeded: true });
    until("the report of the refusal", || node.last_report() == expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn process_with_too_many_calls_gets_an_error() {
    let Some(node) = Rig::start(Kind::Folder).await else { return };
    let (status, body) = node.get("/exhaust").await;
    let expected = json!({ "code": "too_many_calls", "rest": true, "after": 4 << 20 });
    assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()), (200, expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn node_without_a_store_returns_an_error_that_says_so() {
    let Some(node) = Rig::start_with(TestStore::start(Kind::Folder).await, Vec::new()).await else { return };
    let (status, body) = node.get("/list").await;
    assert!(status == 500 && body.contains("storage_unavailable") && body.contains("SVC_NODE_STORAGE"), "{body}");
}

/// Returns a request body that begins with this content and does not end.
fn endless(content: Vec<u8>) -> Body {
    let first = stream::iter([Ok::<Bytes, std::io::Error>(content.into())]);
    Body::wrap_stream(first.chain(stream::pending()))
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_node_leaves_no_partial_object() {
    for kind in [Kind::Folder, Kind::S3] {
        let Some(mut node) = Rig::start(kind).await else { return };
        let put = node.visitor().request(Method::POST, "app.localhost", "/put?key=a").body("before");
        assert_eq!(Visitor::send(put).await.status, 200);
        for (round, size) in [3, 700 << 10, 6 << 20].into_iter().enumerate() {
            let put = node.visitor().request(Method::POST, "app.localhost", "/put?key=a").body(endless(vec![1; size]));
            let sending = tokio::spawn(put.send());
            // In the next round, the node is killed while small objects are put.
            for number in 0..10 {
                let path = format!("/put?key={round}-{number}");
                let put = node.visitor().request(Method::POST, "app.localhost", &path).body("12345");
                assert_eq!(Visitor::send(put).await.status, 200);
            }
            if size > 256 << 10 && matches!(kind, Kind::Folder) || size > 5 << 20 {
                let parts = 1 + 10 * (round + 1) + 1;
                until("a part of the upload", || node.store.blobs().len() >= parts).await;
            }
            node.kill_and_restart().await;
            assert!(sending.await.unwrap().is_err());
            assert_eq!(node.get("/get?key=a").await, (200, "before".to_owned()));
            let count = 10 * (round + 1);
            let expected = Some(StorageReport { used_bytes: 6 + 5 * count as u64, quota_exceeded: false });
            until("the usage after the restart", || node.last_report() == expected).await;
            assert_eq!(node.objects().await.matches("-").count(), count);
            if matches!(kind, Kind::Folder) {
                // A bucket keeps the parts of unfinished uploads, until its lifecycle rule removes them.
                until("the removal of the upload", || node.store.blobs().len() == count + 1).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_request_stores_nothing() {
    let Some(node) = Rig::start(Kind::S3).await else { return };
    for size in [3, 6 << 20] {
        let put = node.visitor().request(Method::POST, "app.localhost", "/put?key=a").body(endless(vec![1; size]));
        assert!(tokio::time::timeout(Duration::from_secs(2), put.send()).await.is_err());
    }
    until("the removal of the uploads", || node.store.blobs().is_empty()).await;
    assert_eq!(node.objects().await, "[]");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_object_uses_little_memory() {
    const MAX_GROWTH: u64 = 32 << 20;
    // The memory for S3 does not grow after the first parts of 5 MiB.
    for (kind, size) in [(Kind::Folder, 1_u64 << 30), (Kind::S3, 256 << 20)] {
        let Some(node) = Rig::start(kind).await else { return };
        // The first object creates threads and connections that later ones reuse.
        assert_eq!(node.get(&format!("/zeros?key=warm&bytes={}", 8 << 20)).await.0, 200);
        let before = node.memory("VmRSS");
        node.reset_peak();
        let (status, stored) = node.get(&format!("/large?key=large&bytes={size}")).await;
        assert_eq!(status, 200, "{stored}");
        let stored: Value = serde_json::from_str(&stored).unwrap();
        assert_eq!(stored["size"], size);
        let peak = node.memory("VmHWM");
        println!("{kind:?}: put of {size} bytes from {before} to {peak}");
        assert!(peak < before + MAX_GROWTH, "{kind:?}: from {before} to {peak} bytes");
        // The same limit applies to reading the object.
        let response = node.visitor().request(Method::GET, "app.localhost", "/get?key=large").send().await.unwrap();
        let mut read = 0;
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            read += chunk.unwrap().len() as u64;
        }
        assert_eq!(read, size);
        let peak = node.memory("VmHWM");
        println!("{kind:?}: get, to {peak}");
        assert!(peak < before + MAX_GROWTH, "{kind:?}: from {before} to {peak} bytes");
    }
}
