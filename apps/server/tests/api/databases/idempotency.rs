//! Idempotency keys of writes that wait for a node or start an operation.

use serde_json::{Value, json};

use super::kit::Kit;
use super::{DATABASE, EXPORT, RESTORE, TOKENS};
use crate::support::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn retry_of_a_creation_receives_the_first_response() {
    let kit = Kit::enabled().await;
    let body = json!({ "name": "ci" });
    let first = kit.ada.post_with_key("one", TOKENS, body.clone()).await;
    let again = kit.ada.post_with_key("one", TOKENS, body).await;
    // The replay includes the password.
    assert_eq!(again.expect(201), first.expect(201));
    assert_eq!(again.header("idempotent-replayed"), "true");
    kit.ada.post_with_key("one", TOKENS, json!({})).await.expect_error(422, "idempotency_mismatch");
    assert_eq!(kit.ada.get(TOKENS).await.expect(200)["items"].as_array().unwrap().len(), 1);
    let connect = kit.ada.post_with_key("two", DATABASE, json!({})).await;
    assert_eq!(kit.ada.post_with_key("two", DATABASE, json!({})).await.expect(200), connect.expect(200));
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_of_a_restore_starts_no_second_one() {
    let kit = Kit::enabled().await;
    let generation = kit.back_up().await;
    let pair = json!({ "epoch": generation["epoch"], "seq": generation["seq"] });
    let first = kit.ada.post_with_key("one", RESTORE, pair.clone()).await.expect(202).clone();
    assert_eq!(kit.ada.post_with_key("one", RESTORE, pair.clone()).await.expect(202), &first);
    kit.execute(&first["operationId"]).await;
    assert_eq!(kit.ada.post_with_key("one", RESTORE, pair).await.expect(202), &first);
    assert_eq!(kit.part().await["operation"], Value::Null);
    assert_eq!(kit.audit().await, ["database.grant", "database.restore"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_of_an_export_waits_for_no_second_one() {
    let kit = Kit::enabled().await;
    let export = async || kit.ada.post_with_key("one", EXPORT, json!({})).await;
    let node = async {
        let pending = async || Some(kit.part().await["exports"].as_array()?.first()?.clone());
        let id = eventually("an export is pending", pending).await;
        // The first request is still in progress.
        export().await.expect_error(409, "idempotency_in_progress");
        let created_at = kit.app.clock.clock_rng().now();
        let key = format!("{}/exports/a.dump", kit.project.as_str().unwrap());
        let stored = json!({ "id": id, "key": key, "sizeBytes": 1, "createdAt": created_at });
        kit.report("export", stored).await.expect(200);
    };
    let (first, ()) = tokio::join!(export(), node);
    let again = export().await;
    assert_eq!(again.expect(200), first.expect(200));
    assert_eq!(again.header("idempotent-replayed"), "true");
    assert_eq!(kit.part().await["exports"], json!([]));
    assert_eq!(kit.audit().await, ["database.grant", "database.export"]);
}
