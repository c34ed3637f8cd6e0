//! Projects.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{App, bundle, site};

#[tokio::test(flavor = "multi_thread")]
async fn projects_are_created_listed_and_read() {
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
    ada.get("/v1/orgs/ada/projects/other").await.expect_error(404, "not_found");
    assert_eq!(app.db_audit("ada").await, ["project.create"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn project_names_and_hostnames_are_unique() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs", json!({ "slug": "b-c" })).await.expect(201);
    ada.post("/v1/orgs", json!({ "slug": "cc" })).await.expect(201);
    ada.post("/v1/orgs/b-c/projects", json!({ "name": "a" })).await.expect(201);
    ada.post("/v1/orgs/b-c/projects", json!({ "name": "a" })).await.expect_error(409, "project_name_taken");
    // `a` in `b-c` and `a-b` in `c` have the same default hostname, a-b-c.
    app.db_execute("UPDATE orgs.orgs SET slug = 'c' WHERE slug = 'cc'").await.unwrap();
    ada.post("/v1/orgs/c/projects", json!({ "name": "a-b" })).await.expect_error(409, "hostname_taken");
    assert_eq!(ada.get("/v1/orgs/c/projects").await.expect(200)["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn reserved_prefix_is_listed_with_the_other_invalid_fields() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let body = || json!({ "name": "xn--a", "x": 1 });
    for response in
        [ada.post("/v1/orgs/ada/projects", body()).await, ada.patch("/v1/orgs/ada/projects/site", body()).await]
    {
        let expected = json!([
            { "path": "name", "message": "must not begin with xn--, as internationalized names do" },
            { "path": "x", "message": "is not a field of this request" },
        ]);
        assert_eq!(response.expect_error(400, "bad_request")["details"]["fields"], expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creates_respect_the_project_limit() {
    for _ in 0..3 {
        let app = App::with(|config| config.database.connections = 48).await;
        let ada = app.sign_in("ada").await;
        let new = |n: u32| ada.post("/v1/orgs/ada/projects", json!({ "name": format!("p{n}") }));
        let responses = join_all((0..40).map(new)).await;
        assert_eq!(responses.iter().filter(|response| response.status == 201).count(), 3);
        for refused in responses.iter().filter(|response| response.status != 201) {
            let details = refused.expect_error(409, "project_limit")["details"].clone();
            assert_eq!(details, json!({ "limit": 3, "count": 3, "plan": "free" }));
        }
        let mut events = app.db_audit("ada").await;
        events.sort();
        assert_eq!(events, ["notification.raise", "project.create", "project.create", "project.create"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn project_shows_declared_and_granted_resources() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let path = "/v1/orgs/ada/projects/site";
    for name in ["site", "other"] {
        ada.post("/v1/orgs/ada/projects", json!({ "name": name })).await.expect(201);
    }
    let none = json!({ "auth": false, "database": false, "email": false, "ai": false, "storage": false });
    assert_eq!(ada.get(path).await.expect(200)["resources"], none);
    let state = |declared: bool, granted: bool| json!({ "declared": declared, "granted": granted });
    let overview = ada.get(&format!("{path}/overview")).await.expect(200)["resources"].clone();
    assert!(overview.as_object().unwrap().values().all(|it| *it == state(false, false)), "{overview}");

    // Grant two resources in the database, before a deployment declares any. No route can do this yet.
    let grant = "INSERT INTO resources.grants SELECT id, unnest(ARRAY['database', 'ai']), now() FROM projects.projects \
                 WHERE name = 'site'";
    app.db_execute(grant).await.unwrap();
    let declaring = bundle(&[("svc.json", br#"{"database":true,"email":true}"#), ("assets/index.html", b"page")]);
    ada.upload(&format!("{path}/deployments"), declaring).await.expect(201);
    let granted = json!({ "auth": false, "database": true, "email": false, "ai": true, "storage": false });
    assert_eq!(ada.get(path).await.expect(200)["resources"], granted);
    let overview = ada.get(&format!("{path}/overview")).await.expect(200)["resources"].clone();
    let expected = json!({
        "auth": state(false, false), "database": state(true, true), "email": state(true, false),
        "ai": state(false, true), "storage": state(false, false),
    });
    assert_eq!(overview, expected);
    let renamed = ada.patch(path, json!({ "name": "shop" })).await.expect(200).clone();
    assert_eq!(renamed["resources"], granted);
    assert_eq!(ada.get("/v1/orgs/ada/projects/other").await.expect(200)["resources"], none);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_projects_above_the_limit_prevent_a_creation() {
    let app = App::with(|config| config.abuse_limits.deleted_projects_per_org = 1).await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let body = json!({ "confirm": "site" });
    let delete = ada.send(Method::DELETE, "/v1/orgs/ada/projects/site", |request| request.json(&body)).await;
    delete.expect(204);
    let refused = ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await;
    let details = refused.expect_error(409, "deleted_project_limit")["details"].clone();
    assert_eq!(details["limit"], json!(1));
    assert!(details["purgeAt"].as_str().is_some_and(|at| at.parse::<kernel::Time>().is_ok()), "{details}");
    app.clock.advance(30 * 24 * 3600);
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_or_deleted_project_frees_its_names_immediately() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.post("/v1/orgs/ada/projects", json!({ "name": "other" })).await.expect(201);
    ada.upload("/v1/orgs/ada/projects/site/deployments", site("page")).await.expect(201);
    ada.patch("/v1/orgs/ada/projects/site", json!({ "name": "other" })).await.expect_error(409, "project_name_taken");
    let renamed = ada.patch("/v1/orgs/ada/projects/site", json!({ "name": "shop" })).await.expect(200).clone();
    assert_eq!((&renamed["name"], &renamed["hostname"]), (&json!("shop"), &json!("shop-ada.localhost")));
    ada.get("/v1/orgs/ada/projects/site").await.expect_error(404, "not_found");
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);

    let overview = ada.get("/v1/orgs/ada/projects/shop/overview").await.expect(200).clone();
    assert_eq!((&overview["live"]["version"], &overview["lastBackup"]), (&json!(1), &Value::Null));
    assert_eq!(overview["resources"]["auth"], json!({ "declared": false, "granted": false }));
    let delete = async |confirm: &str| {
        let body = json!({ "confirm": confirm });
        ada.send(Method::DELETE, "/v1/orgs/ada/projects/shop", |request| request.json(&body)).await
    };
    for confirm in ["site", "", &"x".repeat(300)] {
        delete(confirm).await.expect_error(400, "confirm_mismatch");
    }
    ada.get("/v1/orgs/ada/projects/shop").await.expect(200);
    delete("shop").await.expect(204);
    for path in ["", "/overview", "/deployments", "/hostnames", "/access"] {
        ada.get(&format!("/v1/orgs/ada/projects/shop{path}")).await.expect_error(404, "not_found");
    }
    assert_eq!(ada.get("/v1/orgs/ada/projects").await.expect(200)["items"].as_array().unwrap().len(), 2);
    // A deleted project does not count towards the limit of three.
    ada.post("/v1/orgs/ada/projects", json!({ "name": "shop" })).await.expect(201);
    let events = app.db_audit("ada").await;
    assert_eq!(events[3..], ["project.rename", "project.create", "project.delete", "project.create"]);
}
