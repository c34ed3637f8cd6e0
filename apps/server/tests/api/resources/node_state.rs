//! The desired state that a node fetches, and its reports about storage.

use std::time::Duration;

use kernel::audit::Actor;
use reqwest::Method;
use serde_json::{Value, json};

use super::{CANARY, SECRETS, STORAGE, ada_with_project};
use crate::support::{App, Caller, ManualNode, nodes};

/// Sends a report about the storage of Ada's project, and returns the status.
async fn report(node: &ManualNode, ada: &Caller, batch: i64, used_bytes: u64, quota_exceeded: bool) -> u16 {
    let project = ada.get("/v1/orgs/ada/projects/site").await.expect(200)["id"].clone();
    let report = json!({ "usedBytes": used_bytes, "quotaExceeded": quota_exceeded });
    node.report_as(batch, &project, &[("storage", report)]).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn node_fetches_secrets_that_the_desired_state_does_not_store() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let node = ManualNode::new(&app).await;
    let (start, _) = node.desired(0).await;
    ada.put(&format!("{SECRETS}/API_KEY"), json!({ "value": CANARY })).await.expect(200);
    let (first, parts) = node.desired(start).await;
    assert_eq!(parts, json!({ "secrets": { "revision": 1, "values": { "API_KEY": CANARY } } }));
    ada.put(SECRETS, json!({ "secrets": { "API_KEY": null, "OTHER": "x" } })).await.expect(200);
    let (second, parts) = node.desired(first).await;
    assert_eq!(parts, json!({ "secrets": { "revision": 2, "values": { "OTHER": "x" } } }));
    assert_eq!(second, first + 1);
    ada.delete(&format!("{SECRETS}/OTHER")).await.expect(204);
    let expected = json!({ "secrets": { "revision": 3, "values": {} } });
    assert_eq!(node.desired(second).await.1, expected);
    assert_eq!(node.desired(0).await.1, expected);
    let stored = app.db_rows("SELECT desired FROM convergence.parts WHERE part = 'secrets'").await;
    assert_eq!(stored, [json!({ "desired": {} })]);
}

/// Ends the credential with which a poll waits, and changes a secret. The poll returns no values.
async fn end_credential<T>(node: &ManualNode, ada: &Caller, end: impl Future<Output = T>) -> T {
    let (since, _) = node.desired(0).await;
    let path = format!("desired?since={since}&wait=30");
    let change = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let ended = end.await;
        ada.put(&format!("{SECRETS}/API_KEY"), json!({ "value": format!("{CANARY}-{since}") })).await.expect(200);
        ended
    };
    let (poll, ended) = tokio::join!(node.send(Method::GET, &path, |request| request), change);
    poll.expect_error(401, "unauthenticated");
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_poll_of_a_renewed_or_revoked_credential_gets_no_secrets() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let node = ManualNode::new(&app).await;
    ada.put(&format!("{SECRETS}/API_KEY"), json!({ "value": "leaked" })).await.expect(200);
    let renewed = end_credential(&node, &ada, node.renew(&app, "edge")).await;
    let (_, parts) = renewed.desired(0).await;
    assert!(parts["secrets"]["values"]["API_KEY"].as_str().unwrap().starts_with(CANARY), "{parts}");
    // The revocation moves the other projects in its first batch. The second one fails, so the node still has Ada's
    // project.
    app.db_execute(
        "INSERT INTO convergence.placements (project_id, node_id, state, epoch, created_at) \
             SELECT lpad(number::text, 32, '0')::uuid, id, 'active', 1, now() \
             FROM convergence.nodes, generate_series(1, 1000) number; \
         CREATE TRIGGER stay BEFORE DELETE ON convergence.nodes FOR EACH ROW EXECUTE FUNCTION store.reject_change()",
    )
    .await
    .unwrap();
    let revoke = async {
        let nodes = nodes(&app.database.url());
        nodes.revoke(&Actor::operator("test"), &"edge".parse().unwrap()).await.unwrap_err();
    };
    end_credential(&renewed, &ada, revoke).await;
    let placed = app.db_rows("SELECT placements FROM convergence.nodes").await;
    assert_eq!(placed, [json!({ "placements": 1 })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn corrupt_secret_blocks_no_other_project() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let node = ManualNode::new(&app).await;
    for name in ["API_KEY", "WHOLE"] {
        ada.put(&format!("{SECRETS}/{name}"), json!({ "value": "x" })).await.expect(200);
    }
    ada.post("/v1/orgs/ada/projects", json!({ "name": "blog" })).await.expect(201);
    ada.put("/v1/orgs/ada/projects/blog/secrets/API_KEY", json!({ "value": "of the blog" })).await.expect(200);
    app.db_execute(
        "UPDATE resources.secrets SET sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1) \
         WHERE name = 'API_KEY' AND project_id = (SELECT id FROM projects.projects WHERE name = 'site')",
    )
    .await
    .unwrap();
    let project = ada.get("/v1/orgs/ada/projects/site").await.expect(200)["id"].clone();
    for since in [0, 1] {
        let desired = node.send(Method::GET, &format!("desired?since={since}"), |request| request).await;
        let desired = desired.expect(200);
        assert_eq!(desired["unavailable"], json!([{ "project": project, "part": "secrets" }]));
        let parts = desired["parts"].as_array().unwrap();
        let secrets: Vec<&Value> = parts.iter().filter(|change| change["part"] == "secrets").collect();
        assert_eq!(secrets.len(), 1);
        assert_eq!(secrets[0]["desired"]["values"], json!({ "API_KEY": "of the blog" }));
    }
    // A new value of the secret makes the project's secrets readable again.
    ada.put(&format!("{SECRETS}/API_KEY"), json!({ "value": "new" })).await.expect(200);
    let desired = node.send(Method::GET, "desired?since=0", |request| request).await;
    assert_eq!(desired.expect(200)["unavailable"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn node_fetches_granted_storage() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let node = ManualNode::new(&app).await;
    let (start, _) = node.desired(0).await;
    let prefix = ada.post(STORAGE, json!({})).await.expect(200)["prefix"].clone();
    let (granted, parts) = node.desired(start).await;
    let free = json!({ "storage": { "prefix": prefix, "quotaBytes": 1_073_741_824_u64 } });
    assert_eq!(parts, free);
    assert_eq!(node.desired(0).await.1, free);
    app.db_execute("UPDATE orgs.orgs SET plan = 'pro'").await.unwrap();
    assert_eq!(node.desired(0).await.1["storage"]["quotaBytes"], 107_374_182_400_u64);
    ada.delete(STORAGE).await.expect(204);
    assert_eq!(node.desired(granted).await.1, json!({ "storage": null }));
    ada.post(STORAGE, json!({})).await.expect(200);
    assert_eq!(node.desired(0).await.1["storage"]["prefix"], prefix);
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_are_shown_and_each_crossing_of_the_quota_is_notified() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let node = ManualNode::new(&app).await;
    ada.post(STORAGE, json!({})).await.expect(200);
    let kinds = async || {
        let page = ada.get("/v1/orgs/ada/notifications").await.expect(200).clone();
        let of = |item: &Value| (item["kind"].as_str().unwrap().to_owned(), item["project"].clone());
        page["items"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let full = || ("limit.storage".to_owned(), json!("site"));
    assert_eq!(report(&node, &ada, 1, 10_240, false).await, 200);
    let status = ada.get(STORAGE).await.expect(200).clone();
    assert_eq!(status["usedBytes"], 10_240);
    assert!(status["reportedAt"].is_string());
    assert_eq!(kinds().await, []);
    // A repeated report and a repeated batch notify once.
    for batch in [2, 3, 3] {
        assert_eq!(report(&node, &ada, batch, 1_073_741_824, true).await, 200);
        assert_eq!(kinds().await, [full()]);
    }
    report(&node, &ada, 4, 5, false).await;
    report(&node, &ada, 5, 1_073_741_824, true).await;
    assert_eq!(kinds().await, [full(), full()]);
    let of_project = async |name: &str| {
        ada.get(&format!("/v1/orgs/ada/projects/{name}/overview")).await.expect(200)["notifications"].clone()
    };
    let shown = of_project("site").await;
    assert!(shown[0]["message"].as_str().unwrap().contains("1024 MiB"), "{shown}");
    // A renamed project keeps its notifications, and a new project of the old name has none.
    ada.patch("/v1/orgs/ada/projects/site", json!({ "name": "shop" })).await.expect(200);
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    assert_eq!((of_project("shop").await, of_project("site").await), (shown, json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_report_about_storage_is_refused() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let node = ManualNode::new(&app).await;
    ada.post(STORAGE, json!({})).await.expect(200);
    let project = ada.get("/v1/orgs/ada/projects/site").await.expect(200)["id"].clone();
    for report in [json!({}), json!({ "usedBytes": -1, "quotaExceeded": true }), json!({ "usedBytes": 1 })] {
        let refused = node.report_as(1, &project, &[("storage", report)]).await;
        refused.expect_error(400, "bad_request");
    }
    assert_eq!(ada.get(STORAGE).await.expect(200)["reportedAt"], Value::Null);
}
