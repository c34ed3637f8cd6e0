//! Changes of resources while their project is deleted.

use serde_json::{Value, json};

use super::{SECRETS, STORAGE, ada_with_project};
use crate::support::App;

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
        ada.get(SECRETS).await.expect_error(404, "not_found");
        ada.get(STORAGE).await.expect_error(404, "not_found");
    }
}
