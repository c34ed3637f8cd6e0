//! Databases whose project is renamed, deleted and created again.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::Kit;
use super::{CONNECT, DATABASE, GENERATIONS, PROJECT, TOKENS};
use crate::support::eventually;

async fn delete_project(kit: &Kit) -> u16 {
    let confirm = json!({ "confirm": "site" });
    kit.ada.send(Method::DELETE, PROJECT, |request| request.json(&confirm)).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn rename_keeps_the_connection() {
    let kit = Kit::enabled().await;
    let connect = kit.ada.get(CONNECT).await.expect(200).clone();
    let renamed = kit.ada.patch(PROJECT, json!({ "name": "shop" })).await;
    assert_eq!(renamed.expect(200)["resources"]["database"], true);
    let renamed = "/v1/orgs/ada/projects/shop/database";
    assert_eq!(kit.ada.get(&format!("{renamed}/connect")).await.expect(200), &connect);
    assert_eq!(kit.ada.post(renamed, json!({})).await.expect(200), &connect);
    // The deletion must be confirmed with the new name.
    kit.ada
        .post(&format!("{renamed}/delete"), json!({ "confirm": "site" }))
        .await
        .expect_error(400, "confirm_mismatch");
    kit.ada.post(&format!("{renamed}/delete"), json!({ "confirm": "shop" })).await.expect(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_project_loses_its_part_and_a_new_one_inherits_nothing() {
    let kit = Kit::enabled().await;
    let connect = kit.ada.get(CONNECT).await.expect(200).clone();
    kit.ada.post(TOKENS, json!({})).await.expect(201);
    kit.back_up().await;
    assert_eq!(delete_project(&kit).await, 204);
    assert_eq!(kit.part().await, Value::Null);
    kit.ada.get(DATABASE).await.expect_error(404, "not_found");
    kit.ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    assert_eq!(kit.ada.get(DATABASE).await.expect(200), &json!({ "db": false }));
    let none = json!({ "items": [], "lastCheckedAt": null });
    assert_eq!(kit.ada.get(GENERATIONS).await.expect(200), &none);
    let again = kit.ada.post(DATABASE, json!({})).await.expect(200).clone();
    for field in ["database", "user", "password"] {
        assert_ne!(again[field], connect[field], "{field}");
    }
    assert_eq!(kit.ada.get(TOKENS).await.expect(200)["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn node_deletes_the_backups_of_a_project_after_its_purge() {
    let kit = Kit::enabled().await;
    kit.back_up().await;
    assert_eq!(delete_project(&kit).await, 204);
    kit.app.db_execute("UPDATE projects.projects SET deleted_at = now() - interval '31 days'").await.unwrap();
    let rows = async |table: &str| kit.app.db_rows(&format!("SELECT * FROM {table}")).await.len();
    // A report that does not belong to a purged project changes nothing.
    kit.report("deletedBackups", json!({})).await.expect(200);
    assert_eq!(
        (rows("convergence.placements").await, kit.node.part(&kit.project, "deletedBackups").await),
        (1, Value::Null)
    );
    // The jobs of a server run when it starts.
    let _other = kit.app.another().await;
    eventually("the purge", async || (rows("projects.projects").await == 0).then_some(())).await;
    assert_eq!(kit.node.part(&kit.project, "deletedBackups").await, json!({}));
    // The second report is a repeated one.
    for _ in 0..2 {
        kit.report("deletedBackups", json!({})).await.expect(200);
        assert_eq!((rows("convergence.placements").await, kit.node.desired(0).await.1), (0, json!({})));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_desired_after_a_deletion_during_changes() {
    let kit = Kit::start().await;
    for round in 0..5 {
        if round > 0 {
            kit.ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
        }
        let (enabled, deleted) = tokio::join!(kit.ada.post(DATABASE, json!({})), delete_project(&kit));
        assert_eq!(deleted, 204);
        assert!([200, 404].contains(&enabled.status), "{}", enabled.status);
        let desired = kit.app.db_rows("SELECT part FROM convergence.parts WHERE desired IS NOT NULL").await;
        assert_eq!(desired, Vec::<Value>::new());
    }
}
