//! A node in the background, for tests in which databases need a node but are not the subject.

use std::time::Duration;

use serde_json::{Value, json};

use super::kit::status;
use crate::support::ManualNode;

/// A node that applies the databases of all projects and stores their exports, until it is dropped.
pub struct NodeTask(tokio::task::JoinHandle<()>);

impl NodeTask {
    /// Runs a registered node.
    pub fn run(node: ManualNode) -> Self {
        Self(tokio::spawn(follow(node)))
    }
}

impl Drop for NodeTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn follow(node: ManualNode) {
    let mut since = 0;
    loop {
        let path = format!("desired?since={since}&wait=30");
        let desired = node.send(reqwest::Method::GET, &path, |request| request).await;
        if desired.status != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        since = desired.body["revision"].as_i64().unwrap();
        for change in desired.body["parts"].as_array().unwrap() {
            if change["part"] == "database" && !change["desired"].is_null() {
                apply(&node, &change["project"], &change["desired"]).await;
            }
        }
    }
}

async fn apply(node: &ManualNode, project: &Value, part: &Value) {
    let mut reports = vec![("database", status(part, json!({})))];
    for id in part["exports"].as_array().unwrap() {
        let key = format!("{}/exports/a.dump", project.as_str().unwrap());
        let created_at = "2026-11-21T08:00:00.000Z";
        reports.push(("export", json!({ "id": id, "key": key, "sizeBytes": 2048, "createdAt": created_at })));
    }
    // The pool may be full, or the test may hold a lock. So repeat the report.
    while node.report(project, &reports).await.status != 200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
