//! Changes of app sign-in while its database or its project is deleted.

use reqwest::Method;
use serde_json::{Value, json};

use super::AUTH;
use crate::databases::kit::{Kit, abort_path};

const DATABASE: &str = "/v1/orgs/ada/projects/site/database";
const DELETE: &str = "/v1/orgs/ada/projects/site/database/delete";

#[tokio::test(flavor = "multi_thread")]
async fn either_sign_in_is_enabled_or_its_database_is_deleted() {
    let kit = Kit::with(|config| config.abuse_limits.database_changes_per_project = 100).await;
    kit.ada.post(DATABASE, json!({})).await.expect(200);
    kit.apply().await;
    let (mut enabled, mut deleted) = (0, 0);
    for round in 0..12 {
        let enable = kit.ada.post(AUTH, json!({}));
        let delete = kit.ada.post(DELETE, json!({ "confirm": "site" }));
        // Alternate the order, so that both outcomes occur.
        let (enable, delete) = if round % 2 == 0 {
            tokio::join!(enable, delete)
        } else {
            let (delete, enable) = tokio::join!(delete, enable);
            (enable, delete)
        };
        let is_granted = kit.ada.get(AUTH).await.expect(200)["granted"] == true;
        match (enable.status, delete.status) {
            (200, 409) => {
                delete.expect_error(409, "auth_enabled");
                assert!(is_granted);
                enabled += 1;
                kit.ada.delete(AUTH).await.expect(204);
            }
            (409, 202) => {
                enable.expect_error(409, "database_required");
                assert!(!is_granted);
                assert_eq!(kit.node.part(&kit.project, "auth").await, Value::Null);
                deleted += 1;
                // The database is there again after an abort.
                kit.ada.post(&abort_path(&delete.body["operationId"]), json!({})).await.expect(200);
                kit.apply().await;
            }
            other => panic!("{other:?}: {} {}", enable.body, delete.body),
        }
    }
    assert_eq!(enabled + deleted, 12);
    kit.ada.post(AUTH, json!({})).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn enabling_waits_for_a_deletion_that_has_begun() {
    let kit = Kit::enabled().await;
    // The transaction of a deletion: it holds the placement, and begins an operation.
    let deletion = kit.app.hold("SELECT FROM convergence.placements FOR UPDATE").await;
    let operation = "
        INSERT INTO databases.operations (id, project_id, database_id, kind, phase, created_at, updated_at)
        SELECT gen_random_uuid(), project_id, id, 'delete', 'draining', now(), now() FROM databases.databases";
    let begin = async {
        // A part of the statement with which the request locks the placement.
        kit.app.wait_for_lock(r#""placements"."project_id" = $1"#).await;
        deletion.commit(operation).await;
    };
    let (response, ()) = tokio::join!(kit.ada.post(AUTH, json!({})), begin);
    response.expect_error(409, "database_required");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_desired_after_a_deletion_of_the_project_during_changes() {
    let kit = Kit::enabled().await;
    kit.ada.post(AUTH, json!({})).await.expect(200);
    let provider = format!("{AUTH}/providers/codehost");
    let (patched, set, revoked, granted, deleted) = tokio::join!(
        kit.ada.patch(AUTH, json!({ "sessionDays": 7 })),
        kit.ada.put(&provider, json!({ "clientId": "id", "clientSecret": "secret" })),
        kit.ada.delete(AUTH),
        kit.ada.post(AUTH, json!({})),
        kit.ada.send(Method::DELETE, "/v1/orgs/ada/projects/site", |request| {
            request.json(&json!({ "confirm": "site" }))
        }),
    );
    deleted.expect(204);
    for response in [patched, set, revoked, granted] {
        assert!([200, 204, 404].contains(&response.status), "{}: {}", response.request, response.body);
    }
    let desired = kit.app.db_rows("SELECT part FROM convergence.parts WHERE desired IS NOT NULL").await;
    assert_eq!(desired, Vec::<Value>::new());
    kit.ada.get(AUTH).await.expect_error(404, "not_found");
}
