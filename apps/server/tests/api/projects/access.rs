//! Access policies of projects.

use serde_json::{Value, json};

use crate::support::{App, site};

const ACCESS: &str = "/v1/orgs/ada/projects/site/access";
const BYPASS: &str = "/v1/orgs/ada/projects/site/access/bypass";

#[tokio::test(flavor = "multi_thread")]
async fn access_policy_is_set_and_its_secrets_are_not_returned() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.upload("/v1/orgs/ada/projects/site/deployments", site("page")).await.expect(201);
    let policy = |mode: &str, password: bool, bypass: bool, at: &Value| json!({ "mode": mode, "hasPassword": password, "hasBypass": bypass, "updatedAt": at });
    let response = ada.get(ACCESS).await.expect(200).clone();
    assert_eq!(response, policy("public", false, false, &response["updatedAt"]));
    let refused = ada.put(ACCESS, json!({ "mode": "password" })).await;
    assert_eq!(refused.expect_error(400, "bad_request")["details"]["fields"][0]["path"], "password");
    for password in ["short", &"x".repeat(129)] {
        ada.put(ACCESS, json!({ "mode": "password", "password": password })).await.expect_error(400, "bad_request");
    }
    let secret = "correct horse battery";
    let set = ada.put(ACCESS, json!({ "mode": "password", "password": secret })).await.expect(200).clone();
    assert_eq!(set, policy("password", true, false, &set["updatedAt"]));
    ada.put(ACCESS, json!({ "mode": "org" })).await.expect(200);
    ada.put(ACCESS, json!({ "mode": "org" })).await.expect(200);
    let key = ada.post(BYPASS, json!({})).await.expect(200)["secret"].as_str().unwrap().to_owned();
    assert!(key.starts_with("svc_byp_"));
    let newer = ada.post(BYPASS, json!({})).await.expect(200)["secret"].as_str().unwrap().to_owned();
    assert_ne!(key, newer);
    assert_eq!(ada.get(ACCESS).await.expect(200)["hasBypass"], true);
    ada.delete(BYPASS).await.expect(204);
    ada.delete(BYPASS).await.expect(204);
    assert_eq!(ada.get(ACCESS).await.expect(200)["hasBypass"], false);

    let events = app.db_audit("ada").await;
    assert_eq!(
        events[2..],
        ["access.set", "access.set", "access.bypass.new", "access.bypass.new", "access.bypass.revoke"]
    );
    let rows = Value::from(app.db_rows("SELECT t::text FROM store.audit t").await).to_string();
    let stored = Value::from(app.db_rows("SELECT t::text FROM projects.projects t").await).to_string();
    for hidden in [secret, &key, &newer] {
        assert!(!rows.contains(hidden) && !stored.contains(hidden));
    }
    assert!(stored.contains("$argon2id$"));
    let desired = app.db_rows("SELECT desired -> 'access' AS access FROM convergence.parts WHERE part = 'site'").await;
    assert_eq!((&desired[0]["access"]["mode"], &desired[0]["access"]["bypass"]), (&json!("org"), &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_authorized_only_at_known_hostnames() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let viewer = app.add_member(&ada, "ada", "vera", "viewer").await;
    let authorize = async |caller: &crate::support::Caller, to: &str, next: &str| {
        caller.post("/v1/access/authorize", json!({ "to": to, "next": next })).await
    };
    let host = "site-ada.localhost";
    authorize(&viewer, host, "/").await.expect(200);
    ada.put(ACCESS, json!({ "mode": "org" })).await.expect(200);
    authorize(&viewer, host, "/").await.expect_error(403, "forbidden");
    authorize(&app.sign_in("eve").await, host, "/").await.expect_error(403, "forbidden");
    for unknown in ["other.example.org", "evil.org/site-ada.localhost", "site-ada.localhost:80", ""] {
        let status = authorize(&ada, unknown, "/").await.status;
        assert!([400, 404].contains(&status), "{unknown}: {status}");
    }
    for next in ["", "x", "//evil.org", "/\\evil.org", "/a\\b", "https://evil.org", "/a\nb", "/a\tb"] {
        let refused = authorize(&ada, host, next).await;
        let field = &refused.expect_error(400, "bad_request")["details"]["fields"][0];
        assert_eq!(field["path"], "next");
        assert_eq!(field["message"], "must be a path: one leading slash, no backslash and no control characters");
    }
    let redirect = authorize(&ada, "Site-Ada.Localhost.", "/a?b=c&d=e#f").await.expect(200)["redirect"].clone();
    let url: url::Url = redirect.as_str().unwrap().parse().unwrap();
    assert_eq!((url.scheme(), url.host_str(), url.path()), ("http", Some(host), "/__svc/access/callback"));
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    assert_eq!((pairs.len(), pairs[1].clone()), (2, ("next".to_owned(), "/a?b=c&d=e#f".to_owned())));
}
