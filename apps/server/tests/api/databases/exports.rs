//! Exports of a database.

use serde_json::{Value, json};

use super::kit::Kit;
use super::{DELETE, EXPORT, GENERATIONS};

/// Waits for the export that the node is asked to make, and returns it.
async fn pending(kit: &Kit) -> Value {
    let part = async || Some(kit.part().await["exports"].as_array()?.first()?.clone());
    crate::support::eventually("an export is pending", part).await
}

/// Returns the report of a stored export.
fn stored(kit: &Kit, id: &Value) -> Value {
    let created_at = kit.app.clock.clock_rng().now();
    let key = format!("{}/exports/a.dump", kit.project.as_str().unwrap());
    json!({ "id": id, "key": key, "sizeBytes": 2048, "createdAt": created_at })
}

#[tokio::test(flavor = "multi_thread")]
async fn export_returns_the_key_that_the_node_stored() {
    let kit = Kit::enabled().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let node = async {
            let id = pending(&kit).await;
            let report = stored(&kit, &id);
            // A repeated report changes nothing.
            for _ in 0..2 {
                kit.report("export", report.clone()).await.expect(200);
            }
            (id, report)
        };
        let (response, (id, report)) = tokio::join!(kit.ada.post(EXPORT, json!({})), node);
        let expected = json!({ "key": report["key"], "sizeBytes": 2048, "createdAt": report["createdAt"] });
        assert_eq!(response.expect(200), &expected);
        assert_eq!(kit.part().await["exports"], json!([]));
        ids.push(id);
    }
    assert_ne!(ids[0], ids[1], "a new export for each request");
    // An export is not a backup.
    assert_eq!(kit.ada.get(GENERATIONS).await.expect(200)["items"], json!([]));
    assert_eq!(kit.audit().await, ["database.grant", "database.export", "database.export"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn export_with_the_key_of_another_project_is_dropped() {
    let kit = Kit::enabled().await;
    let node = async {
        let id = pending(&kit).await;
        let report = stored(&kit, &id);
        let mut foreign = report.clone();
        foreign["key"] = json!("prj_01h455vb4pex5vsknk084sn02q/exports/a.dump");
        kit.report("export", foreign).await.expect(200);
        kit.report("export", report.clone()).await.expect(200);
        report
    };
    let (response, report) = tokio::join!(kit.ada.post(EXPORT, json!({})), node);
    assert_eq!(response.expect(200)["key"], report["key"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_export_is_an_upstream_failure_with_its_reason() {
    let kit = Kit::enabled().await;
    let node = async {
        let id = pending(&kit).await;
        let report = json!({ "id": id, "error": "the object store is full" });
        kit.report("export", report).await.expect(200);
    };
    let (response, ()) = tokio::join!(kit.ada.post(EXPORT, json!({})), node);
    let message = response.expect_error(502, "export_failed")["message"].as_str().unwrap();
    assert!(message.contains("the object store is full"), "{message}");
    assert_eq!(kit.part().await["exports"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_export_or_operation_runs_at_a_time() {
    let kit = Kit::enabled().await;
    let generation = kit.back_up().await;
    let node = async {
        let id = pending(&kit).await;
        kit.ada.post(EXPORT, json!({})).await.expect_error(409, "operation_in_progress");
        let report = stored(&kit, &id);
        kit.report("export", report).await.expect(200);
    };
    let (first, ()) = tokio::join!(kit.ada.post(EXPORT, json!({})), node);
    first.expect(200);
    let operation = kit.restore(&generation).await;
    kit.ada.post(EXPORT, json!({})).await.expect_error(409, "operation_in_progress");
    kit.execute(&operation).await;
    let node = async {
        let id = pending(&kit).await;
        let report = stored(&kit, &id);
        kit.report("export", report).await.expect(200);
    };
    tokio::join!(kit.ada.post(EXPORT, json!({})), node).0.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn database_of_a_suspended_project_is_neither_exported_nor_deleted() {
    let kit = Kit::enabled().await;
    kit.suspend().await;
    kit.ada.post(EXPORT, json!({})).await.expect_error(409, "suspended");
    kit.ada.post(DELETE, json!({ "confirm": "site" })).await.expect_error(409, "suspended");
    let part = kit.part().await;
    assert_eq!((&part["exports"], &part["operation"]), (&json!([]), &Value::Null));
    assert_eq!(kit.audit().await, ["database.grant"]);
}
