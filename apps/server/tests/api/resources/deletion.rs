//! Changes of resources while their project is deleted.

use serde_json::{Value, json};

use super::{SECRETS, STORAGE, ada_with_project};
use crate::support::{App, ManualNode, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_desired_after_a_deletion_during_changes() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    for round in 0..10 {
        if round > 0 {
            ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
        }
        let path = format!("{SECRETS}/API_KEY");
        let (set, granted, deleted) = tokio::join!(
            ada.put(&path, json!({ "value": "x" })),
            ada.post(STORAGE, json!({})),
            ada.send(reqwest::Method::DELETE, "/v1/orgs/ada/projects/site", |request| {
                request.json(&json!({ "confirm": "site" }))
            }),
        );
        deleted.expect(204);
        for response in [set, granted] {
            assert!([200, 404].contains(&response.status), "{}: {}", response.request, response.body);
        }
        let desired = app.db_rows("SELECT part FROM convergence.parts WHERE desired IS NOT NULL").await;
        assert_eq!(desired, Vec::<Value>::new());
        // The deletion also deletes the secrets, which no request can reach any more.
        assert_eq!(app.db_rows("SELECT project_id FROM resources.secret_sets").await, Vec::<Value>::new());
        ada.get(SECRETS).await.expect_error(404, "not_found");
        ada.get(STORAGE).await.expect_error(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_deletes_the_objects_of_a_project_30_days_after_its_deletion() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let node = ManualNode::new(&app).await;
    let project = ada.get("/v1/orgs/ada/projects/site").await.expect(200)["id"].clone();
    let prefix = ada.post(STORAGE, json!({})).await.expect(200)["prefix"].clone();
    // Storage is disabled before the deletion of the project, but its objects still exist.
    ada.delete(STORAGE).await.expect(204);
    let deletion = json!({ "confirm": "site" });
    let delete = ada.send(reqwest::Method::DELETE, "/v1/orgs/ada/projects/site", |request| request.json(&deletion));
    delete.await.expect(204);
    let rows = async |table: &str| app.db_rows(&format!("SELECT * FROM {table}")).await.len();
    let report = async || {
        node.report(&project, &[("deletedStorage", json!({ "prefix": prefix }))]).await.expect(200);
    };
    // The jobs of a server run when it starts.
    for (days, is_purged) in [(29, false), (31, true)] {
        app.db_execute(&format!("UPDATE projects.projects SET deleted_at = now() - interval '{days} days'"))
            .await
            .unwrap();
        let _other = app.another().await;
        let purged = async || (rows("projects.projects").await == 0).then_some(());
        if is_purged {
            eventually("the purge", purged).await;
        }
        let part = node.part(&project, "deletedStorage").await;
        assert_eq!(part, if is_purged { json!({ "prefix": prefix }) } else { Value::Null });
        if !is_purged {
            // A report that does not belong to a purged project changes nothing.
            report().await;
            assert_eq!(rows("resources.storage").await, 1);
        }
    }
    report().await;
    assert_eq!(node.desired(0).await.1, json!({}));
    assert_eq!((rows("resources.storage").await, rows("convergence.placements").await), (0, 0));
    // A repeated report is accepted.
    report().await;
}
