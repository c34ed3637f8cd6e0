//! `env.db` in a real `workerd`, with a node in its own process and its own Postgres.

use std::ops::Deref;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use testkit::PrivatePostgres;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_postgres::{Client, NoTls};

use crate::control_plane::ControlPlane;
use crate::node_process::NodeProcess;
use crate::visitor::Visitor;
use crate::workers::workerd;

/// A node process with the projects `app` and `other`, which have databases and the worker of these tests.
struct Rig {
    node: NodeProcess,
    /// A session of the superuser.
    admin: Client,
    _postgres: PrivatePostgres,
}

impl Deref for Rig {
    type Target = NodeProcess;

    fn deref(&self) -> &NodeProcess {
        &self.node
    }
}

/// The verifier of a password that no test uses.
const VERIFIER: &str = "SCRAM-SHA-256$4096:AAAAAAAAAAAAAAAAAAAAAA==$\
    AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// Returns the part of a project's database, with this operation.
fn part(project: &str, revision: i64, operation: Value) -> Value {
    json!({
        "revision": revision,
        "id": format!("dbs_{project:0>26}"),
        "verifier": VERIFIER,
        "tokens": [],
        "sizeBytes": 1_u64 << 30,
        "backupDays": 7,
        "epoch": 1,
        "source": null,
        "operation": operation,
        "exports": [],
        "suspended": false,
    })
}

fn operation(kind: &str, phase: &str) -> Value {
    json!({ "id": format!("opn_{:0>26}", 1), "kind": kind, "phase": phase, "generation": null })
}

impl Rig {
    /// Starts the node. Returns `None` without `workerd` or the programs of Postgres.
    async fn start() -> Option<Self> {
        workerd()?;
        let _ = rustls::crypto::ring::default_provider().install_default();
        let postgres = PrivatePostgres::start()?;
        let core = ControlPlane::start().await;
        for project in ["app", "other"] {
            core.set_part(project, "database", part(project, 1, Value::Null));
            core.deploy(project, &[("worker/index.js", include_bytes!("worker.js"))]);
        }
        let settings = [
            ("SVC_NODE_DATABASE_URL", postgres.url()),
            ("SVC_NODE_DATABASE_ADDRESS", postgres.address()),
            ("SVC_NODE_DATABASE_SSLMODE", "disable".to_owned()),
            ("SVC_NODE_PG_BIN", postgres.programs().display().to_string()),
            // On a busy machine, V8 collects the garbage of many large calls late.
            ("SVC_NODE_WORKER_MEMORY", "512MiB".to_owned()),
        ];
        let node = NodeProcess::start(core, settings).await;
        let (admin, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        let node = Self { node, admin, _postgres: postgres };
        for host in ["app.localhost", "other.localhost"] {
            node.visitor().sees(host, "/granted", 200, "true").await;
            node.wait_until_ready(host).await;
        }
        Some(node)
    }

    /// Waits until a call succeeds.
    async fn wait_until_ready(&self, host: &str) {
        let ready = async {
            while self.query(host, "SELECT 1", json!([])).await.0 != 200 {
                sleep(Duration::from_millis(50)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(60), ready).await.is_ok(), "{host} has no database");
    }

    /// Returns the status and body of a call.
    async fn query(&self, host: &str, text: &str, params: Value) -> (u16, Value) {
        let request = self.visitor().request(Method::POST, host, "/query");
        let response = Visitor::send(request.body(json!({ "text": text, "params": params }).to_string())).await;
        (response.status, serde_json::from_str(&response.body).unwrap_or_default())
    }

    /// Returns the number of sessions whose statement sleeps.
    async fn sleeping(&self) -> i64 {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'node%' AND query LIKE '%pg_sleep%' \
             AND state = 'active'";
        self.admin.query_one(count, &[]).await.unwrap().get(0)
    }

    async fn wait_for_sleeping(&self, count: i64) {
        let reached = async {
            while self.sleeping().await != count {
                sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(30), reached).await.is_ok(), "not {count} statements");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interface_is_that_of_the_specification() {
    let Some(node) = Rig::start().await else { return };
    for path in ["/checks", "/large-bytes", "/large-text", "/large-results"] {
        let response = node.visitor().get("app.localhost", path).await;
        assert_eq!((response.status, response.body.as_str()), (200, "ok"), "{path}");
    }
    node.has_metrics(&[
        r#"svc_node_database_calls_total{method="query",outcome="ok"}"#,
        r#"svc_node_database_calls_total{method="batch",outcome="error"}"#,
        r#"svc_node_database_calls_total{method="query",outcome="result_too_large"}"#,
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn projects_cannot_reach_each_other() {
    let Some(node) = Rig::start().await else { return };
    let [app, other] = ["app.localhost", "other.localhost"];
    let (status, _) = node.query(app, "CREATE TABLE secret AS SELECT 'hush' AS v", json!([])).await;
    assert_eq!(status, 200);
    let (_, body) = node.query(other, "SELECT * FROM secret", json!([])).await;
    assert_eq!(body["code"], "42P01");
    // Without the role of its project, the login has no privileges.
    for text in [
        format!("SET ROLE db_{:0>26}", "app"),
        format!("SET SESSION AUTHORIZATION db_{:0>26}", "app"),
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'node_{:0>26}'", "app"),
        "COPY (SELECT 1) TO PROGRAM 'true'".to_owned(),
        "SELECT pg_read_file('/etc/passwd')".to_owned(),
        "CREATE EXTENSION dblink".to_owned(),
        "CREATE DATABASE mine".to_owned(),
        "CREATE ROLE mine".to_owned(),
    ] {
        let (status, body) = node.query(other, &text, json!([])).await;
        let rows = body["rows"].as_array().map_or(0, Vec::len);
        assert!(status == 500 || rows == 0, "{text}: {body}");
    }
    assert_eq!(node.query(app, "SELECT v FROM secret", json!([])).await.1["rows"], json!([{ "v": "hush" }]));
}

#[tokio::test(flavor = "multi_thread")]
async fn gone_callers_cancel_their_statements() {
    let Some(node) = Rig::start().await else { return };
    let slow = || {
        let request = node.visitor().request(Method::POST, "app.localhost", "/query");
        tokio::spawn(request.body(json!({ "text": "SELECT pg_sleep(29)" }).to_string()).send())
    };
    // If the visitors disconnect, the node releases the connections to Postgres of their requests before the next call
    // times out.
    let visitors: Vec<_> = (0..8).map(|_| slow()).collect();
    node.wait_for_sleeping(8).await;
    visitors.iter().for_each(JoinHandle::abort);
    let (status, body) = node.query("app.localhost", "SELECT 1", json!([])).await;
    assert_eq!(status, 200, "{body}");
    node.wait_for_sleeping(0).await;
    // The code of the worker blocks, so the node kills its process.
    let visitors: Vec<_> = (0..8).map(|_| slow()).collect();
    node.wait_for_sleeping(8).await;
    assert_eq!(node.visitor().get("app.localhost", "/block").await.status, 502);
    loop {
        match node.query("app.localhost", "SELECT 1", json!([])).await {
            (200, _) => break,
            (502 | 503, _) => sleep(Duration::from_millis(50)).await,
            failed => panic!("{failed:?}"),
        }
    }
    node.wait_for_sleeping(0).await;
    for visitor in visitors {
        assert_eq!(visitor.await.unwrap().unwrap().status(), 502);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn binding_follows_the_part_and_its_deletion() {
    let Some(node) = Rig::start().await else { return };
    let granted = async |expected: &str| node.visitor().sees("app.localhost", "/granted", 200, expected).await;
    node.query("app.localhost", "CREATE TABLE kept AS SELECT 1 AS v", json!([])).await;
    // While the database is drained, the binding is present and its calls fail.
    node.core.set_part("app", "database", part("app", 2, operation("delete", "draining")));
    let drained = async {
        while node.query("app.localhost", "SELECT 1", json!([])).await.1["code"] != "database_unavailable" {
            sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), drained).await.is_ok(), "the database is not drained");
    granted("true").await;
    // An aborted operation changes nothing.
    node.core.set_part("app", "database", part("app", 3, Value::Null));
    node.wait_until_ready("app.localhost").await;
    assert_eq!(node.query("app.localhost", "SELECT v FROM kept", json!([])).await.1["rows"], json!([{ "v": 1 }]));
    node.core.set_part("app", "database", part("app", 4, operation("delete", "committing")));
    granted("false").await;
    assert_eq!(node.query("other.localhost", "SELECT 1 AS v", json!([])).await.0, 200);
}
