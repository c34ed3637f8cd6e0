//! Projects.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::kit::App;

#[tokio::test(flavor = "multi_thread")]
async fn create_list_and_get() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let project = ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201).clone();
    assert_eq!((&project["org"], &project["hostname"]), (&json!("ada"), &json!("site-ada.localhost")));
    let list = ada.get("/v1/orgs/ada/projects").await.expect(200).clone();
    assert_eq!(list, json!({ "items": [project], "nextCursor": null }));

    let detail = ada.get("/v1/orgs/ada/projects/site").await.expect(200).clone();
    assert_eq!(detail["id"], project["id"]);
    assert_eq!((&detail["live"], &detail["placement"]), (&Value::Null, &Value::Null));
    assert_eq!(detail["access"], json!({ "mode": "public" }));
    assert_eq!(detail["hostnames"][0]["name"], project["hostname"]);
    assert_eq!(detail["hostnames"][0]["kind"], "default");
    let none = json!({ "auth": false, "database": false, "email": false, "ai": false, "storage": false });
    assert_eq!(detail["resources"], none);
    ada.get("/v1/orgs/ada/projects/other").await.refused(404, "not_found");
    assert_eq!(app.db_audit("ada").await, ["project.create"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_hostnames_are_taken_once() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs", json!({ "slug": "b-c" })).await.expect(201);
    ada.post("/v1/orgs", json!({ "slug": "cc" })).await.expect(201);
    ada.post("/v1/orgs/b-c/projects", json!({ "name": "a" })).await.expect(201);
    ada.post("/v1/orgs/b-c/projects", json!({ "name": "a" })).await.refused(409, "project_name_taken");
    // a-b-c is the default hostname of `a` in `b-c` as of `a-b` in `c`.
    app.db_execute("UPDATE orgs.orgs SET slug = 'c' WHERE slug = 'cc'").await.unwrap();
    ada.post("/v1/orgs/c/projects", json!({ "name": "a-b" })).await.refused(409, "hostname_taken");
    assert_eq!(ada.get("/v1/orgs/c/projects").await.expect(200)["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_creates_at_a_limit_of_three_make_three() {
    for _ in 0..3 {
        let app = App::with(|config| config.database.connections = 48).await;
        let ada = app.sign_in("ada").await;
        let answers = join_all((0..40).map(|n| {
            let ada = ada.clone();
            async move { ada.post("/v1/orgs/ada/projects", json!({ "name": format!("p{n}") })).await }
        }))
        .await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 3);
        for refused in answers.iter().filter(|answer| answer.status != 201) {
            let details = refused.refused(409, "project_limit")["details"].clone();
            assert_eq!(details, json!({ "limit": 3, "count": 3, "plan": "free" }));
        }
        let mut events = app.db_audit("ada").await;
        events.sort();
        assert_eq!(events, ["notification.raise", "project.create", "project.create", "project.create"]);
    }
}
