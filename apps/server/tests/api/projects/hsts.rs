//! `Strict-Transport-Security` of hostnames.

use serde_json::{Value, json};

use crate::support::{App, Caller, ManualNode, site};

const HOSTNAMES: &str = "/v1/orgs/ada/projects/site/hostnames";
const DEFAULT: &str = "/v1/orgs/ada/projects/site/hostnames/site-ada.localhost/hsts";
const CUSTOM: &str = "/v1/orgs/ada/projects/site/hostnames/www.example.org/hsts";

/// Returns a deployment, its node, and Ada with a deployed project `site` and a pending hostname.
async fn setup() -> (App, Caller, ManualNode) {
    let app = App::start().await;
    let (ada, node) = (app.sign_in("ada").await, ManualNode::new(&app).await);
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.upload("/v1/orgs/ada/projects/site/deployments", site("page")).await.expect(201);
    ada.post(HOSTNAMES, json!({ "name": "www.example.org" })).await.expect(200);
    (app, ada, node)
}

/// Returns the revision of the node, and `hsts` of the site.
async fn desired(node: &ManualNode) -> (i64, Value) {
    let (revision, parts) = node.desired(0).await;
    (revision, parts["site"]["hsts"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn hsts_is_a_setting_of_each_hostname() {
    let (app, ada, node) = setup().await;
    let before = desired(&node).await;
    assert_eq!(before.1, json!([]));
    let listed = ada.get(HOSTNAMES).await.expect(200)["items"].clone();
    assert!(listed.as_array().unwrap().iter().all(|hostname| hostname["hsts"].is_null()), "{listed}");

    let set = ada.put(DEFAULT, json!({ "maxAge": 300 })).await.expect(200).clone();
    let hsts = json!({ "maxAge": 300, "includeSubDomains": false, "preload": false });
    assert_eq!((&set["name"], &set["hsts"]), (&json!("site-ada.localhost"), &hsts));
    let after = desired(&node).await;
    let part =
        json!([{ "hostname": "site-ada.localhost", "maxAge": 300, "includeSubDomains": false, "preload": false }]);
    assert_eq!(after.1, part);
    assert!(after.0 > before.0, "the node is notified of the change");
    // The same value is a no-op.
    ada.put(DEFAULT, json!({ "maxAge": 300, "preload": false })).await.expect(200);
    assert_eq!(desired(&node).await, after);

    // A pending hostname is not served yet.
    let preload = json!({ "maxAge": 31_536_000, "includeSubDomains": true, "preload": true });
    let set = ada.put(CUSTOM, preload.clone()).await.expect(200).clone();
    assert_eq!((&set["hsts"], set["verify"].as_array().unwrap().len()), (&preload, 2));
    assert_eq!(desired(&node).await, after);
    assert_eq!(ada.get("/v1/orgs/ada/projects/site").await.expect(200)["hostnames"][1]["hsts"], preload);
    app.db_execute("UPDATE projects.hostnames SET state = 'active'").await.unwrap();
    ada.put(DEFAULT, json!({ "maxAge": 0 })).await.expect(200);
    let (_, served) = desired(&node).await;
    assert_eq!((&served[0]["maxAge"], &served[1]["hostname"]), (&json!(0), &json!("www.example.org")));

    ada.delete(CUSTOM).await.expect(204);
    ada.delete(CUSTOM).await.expect(204);
    assert_eq!(desired(&node).await.1.as_array().unwrap().len(), 1);
    let events = app.db_audit("ada").await;
    let (set, deleted) = ("hostname.hsts.set", "hostname.hsts.delete");
    assert_eq!(events[events.len() - 4..], [set, set, set, deleted]);
    let rows = app.db_rows("SELECT data FROM store.audit WHERE event = 'hostname.hsts.delete'").await;
    assert_eq!(rows[0]["data"], json!({ "hostname": "www.example.org", "from": preload }));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_hsts_is_rejected() {
    let (app, ada, _node) = setup().await;
    let year = 31_536_000;
    for (path, field, body) in [
        (CUSTOM, "maxAge", json!({ "maxAge": -1 })),
        (CUSTOM, "maxAge", json!({ "maxAge": 63_072_001 })),
        (CUSTOM, "maxAge", json!({})),
        (CUSTOM, "preload", json!({ "maxAge": year, "preload": true })),
        (CUSTOM, "preload", json!({ "maxAge": year - 1, "includeSubDomains": true, "preload": true })),
        (DEFAULT, "includeSubDomains", json!({ "maxAge": year, "includeSubDomains": true })),
    ] {
        let response = ada.put(path, body.clone()).await;
        assert_eq!(response.expect_error(400, "bad_request")["details"]["fields"][0]["path"], field, "{body}");
    }
    ada.put(&format!("{HOSTNAMES}/other.example.org/hsts"), json!({ "maxAge": 1 }))
        .await
        .expect_error(404, "not_found");
    ada.delete(&format!("{HOSTNAMES}/other.example.org/hsts")).await.expect_error(404, "not_found");
    let member = app.add_member(&ada, "ada", "mia", "member").await;
    member.put(CUSTOM, json!({ "maxAge": 1 })).await.expect_error(403, "forbidden");
    member.delete(CUSTOM).await.expect_error(403, "forbidden");
    assert!(!app.db_audit("ada").await.iter().any(|event| event.starts_with("hostname.hsts")));
}
