//! Secrets of a project.

use reqwest::Method;
use serde_json::{Value, json};

use super::{CANARY, SECRETS, ada_with_project};
use crate::support::{ApiResponse, App};

/// A number that no response may contain. No id of a request contains it, because it is longer than a group of a UUID.
const SECRET_NUMBER: i64 = 471_100_000_000_000_000;

fn secret(name: &str) -> String {
    format!("{SECRETS}/{name}")
}

fn names_and_versions(page: &Value) -> Vec<(&str, i64)> {
    assert_eq!(page["nextCursor"], Value::Null);
    let items = page["items"].as_array().unwrap().iter();
    items.map(|item| (item["name"].as_str().unwrap(), item["version"].as_i64().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_set_listed_and_deleted() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    assert_eq!(ada.get(SECRETS).await.expect(200), &json!({ "items": [], "nextCursor": null }));
    for version in [1, 2] {
        let set = ada.put(&secret("API_KEY"), json!({ "value": "same" })).await.expect(200).clone();
        let expected =
            json!({ "name": "API_KEY", "version": version, "updatedAt": set["updatedAt"], "updatedBy": ada.user_id });
        assert_eq!(set, expected);
        assert_eq!(ada.get(SECRETS).await.expect(200)["items"], json!([set]));
    }
    // The placement appears at the first deployment.
    assert_eq!(ada.get("/v1/orgs/ada/projects/site").await.expect(200)["placement"], Value::Null);
    ada.put(&secret("A"), json!({ "value": "x" })).await.expect(200);
    assert_eq!(names_and_versions(ada.get(SECRETS).await.expect(200)), [("A", 1), ("API_KEY", 2)]);
    ada.delete(&secret("API_KEY")).await.expect(204);
    ada.delete(&secret("API_KEY")).await.expect_error(404, "not_found");
    assert_eq!(ada.put(&secret("API_KEY"), json!({ "value": "x" })).await.expect(200)["version"], 1);
    let audited = ["secret.set", "secret.set", "secret.set", "secret.delete", "secret.set"];
    assert_eq!(app.db_audit("ada").await[1..], audited);
    let data = app.db_rows("SELECT data FROM store.audit WHERE event LIKE 'secret.%' ORDER BY id LIMIT 1").await;
    assert_eq!(data[0]["data"], json!({ "name": "API_KEY" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_secrets_change_in_one_step() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    for name in ["OLD", "KEPT"] {
        ada.put(&secret(name), json!({ "value": "x" })).await.expect(200);
    }
    let changes = json!({ "secrets": { "OLD": null, "NEW": "x", "KEPT": "y", "UNKNOWN": null } });
    let all = ada.put(SECRETS, changes).await.expect(200).clone();
    assert_eq!(names_and_versions(&all), [("KEPT", 2), ("NEW", 1)]);
    assert_eq!(ada.get(SECRETS).await.expect(200), &all);
    assert_eq!(ada.put(SECRETS, json!({ "secrets": {} })).await.expect(200), &all);
    // If one change is invalid, nothing changes.
    for (changes, code, path) in [
        (json!({ "NEW": "y", "SVC_X": "y" }), "reserved_name", None),
        (json!({ "NEW": "y", "lower": "y" }), "bad_request", Some("secrets.lower")),
        (json!({ "NEW": "y", "OTHER": "" }), "bad_request", Some("secrets.OTHER")),
        (json!({ "NEW": "y", "OTHER": SECRET_NUMBER }), "bad_request", Some("secrets.OTHER")),
        (json!({ "NEW": "y", "OTHER": "a\u{0}" }), "bad_request", Some("secrets.OTHER")),
    ] {
        let refused = ada.put(SECRETS, json!({ "secrets": changes })).await;
        let details = refused.expect_error(400, code)["details"].clone();
        assert_eq!(details["fields"][0]["path"].as_str(), path, "{details}");
        assert!(!refused.body.to_string().contains(&SECRET_NUMBER.to_string()));
    }
    // Each invalid value is named, also those that are too large only in bytes.
    let large = "é".repeat(32_769);
    let refused =
        ada.put(SECRETS, json!({ "secrets": { "NEW": large, "KEPT": "y", "OLD": large, "lower": "y" } })).await;
    let fields = refused.expect_error(400, "bad_request")["details"]["fields"].as_array().unwrap();
    let mut paths: Vec<_> = fields.iter().map(|field| field["path"].as_str().unwrap()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["secrets.NEW", "secrets.OLD", "secrets.lower"]);
    let many: serde_json::Map<_, _> = (0..401).map(|number| (format!("KEY_{number}"), Value::Null)).collect();
    ada.put(SECRETS, json!({ "secrets": many })).await.expect_error(400, "bad_request");
    for malformed in [json!({}), json!({ "secrets": [] }), json!({ "secrets": {}, "more": 1 }), json!([])] {
        ada.put(SECRETS, malformed).await.expect_error(400, "bad_request");
    }
    assert_eq!(ada.get(SECRETS).await.expect(200), &all);
    assert_eq!(app.db_audit("ada").await[1..], ["secret.set", "secret.set", "secret.set"]);
    // The audit log shows a change without new values as a deletion.
    let rest = ada.put(SECRETS, json!({ "secrets": { "NEW": null, "UNKNOWN": null } })).await.expect(200).clone();
    assert_eq!(names_and_versions(&rest), [("KEPT", 2)]);
    let audited = app.db_rows("SELECT event, data FROM store.audit WHERE event LIKE 'secret.%' ORDER BY id").await;
    let expected = [
        json!({ "event": "secret.set", "data": { "set": ["KEPT", "NEW"], "deleted": ["OLD"] } }),
        json!({ "event": "secret.delete", "data": { "deleted": ["NEW"] } }),
    ];
    assert_eq!(audited[2..], expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_checked() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let longest = "A".repeat(128);
    for name in [longest.as_str(), "A", "DBX", "X_9"] {
        ada.put(&secret(name), json!({ "value": "x" })).await.expect(200);
    }
    for name in ["DB", "ASSETS", "SVC_", "SVC_TOKEN"] {
        ada.put(&secret(name), json!({ "value": "x" })).await.expect_error(400, "reserved_name");
        ada.delete(&secret(name)).await.expect_error(404, "not_found");
    }
    for name in ["a", "1A", "_A", "A-B", "A.B", "%C3%84", "A%20B", &format!("{longest}A")] {
        let refused = ada.put(&secret(name), json!({ "value": "x" })).await;
        let fields = &refused.expect_error(400, "bad_request")["details"]["fields"];
        assert_eq!(fields[0]["path"], "secretName", "{name}");
        ada.delete(&secret(name)).await.expect_error(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_have_1_byte_to_64_kib() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let put = async |body: String| {
        let send = |request: reqwest::RequestBuilder| request.header("content-type", "application/json").body(body);
        ada.send(Method::PUT, &secret("API_KEY"), send).await
    };
    // 64 KiB after decoding: each character takes six bytes of JSON.
    let escaped = |count: usize| format!("{{\"value\":\"{}\"}}", "\\u0001".repeat(count));
    put(escaped(65_536)).await.expect(200);
    let two_bytes = |count: usize| json!({ "value": "é".repeat(count) }).to_string();
    put(two_bytes(32_768)).await.expect(200);
    let number = SECRET_NUMBER.to_string();
    for malformed in [
        escaped(65_537),
        two_bytes(32_769),
        json!({ "value": "" }).to_string(),
        json!({ "value": "a\u{0}b" }).to_string(),
        json!({ "value": null }).to_string(),
        json!({ "value": SECRET_NUMBER }).to_string(),
        json!({ "value": [number] }).to_string(),
        json!({ "value": "x", "more": number }).to_string(),
        json!({}).to_string(),
        format!("{{\"value\":\"{number}\",\"value\":\"{number}\"}}"),
        format!("{{\"value\":\"{number}\""),
        format!("{{\"value\":\"\\ud800 {number}\"}}"),
        format!("\"{number}\""),
    ] {
        let refused = put(malformed).await;
        refused.expect_error(400, "bad_request");
        assert!(!refused.body.to_string().contains(&number), "{}", refused.body);
    }
    let padding = " ".repeat(512 * 1024);
    put(format!("{{\"value\":\"x\"}}{padding}")).await.expect_error(413, "payload_too_large");
    assert_eq!(ada.get(SECRETS).await.expect(200)["items"][0]["version"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn project_has_at_most_200_secrets() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let all: serde_json::Map<_, _> = (0..200).map(|number| (format!("KEY_{number}"), json!("x"))).collect();
    let listed = ada.put(SECRETS, json!({ "secrets": all })).await.expect(200).clone();
    let listed = listed["items"].as_array().unwrap();
    assert_eq!(listed.len(), 200);
    let (mut page, mut seen) = (format!("{SECRETS}?limit=120"), Vec::new());
    loop {
        let part = ada.get(&page).await.expect(200).clone();
        seen.extend(part["items"].as_array().unwrap().clone());
        let Some(cursor) = part["nextCursor"].as_str() else { break };
        page = format!("{SECRETS}?limit=120&cursor={cursor}");
    }
    assert_eq!(&seen, listed);
    assert!(seen.is_sorted_by_key(|secret| secret["name"].as_str().unwrap().to_owned()));
    assert_eq!(ada.get(SECRETS).await.expect(200)["items"].as_array().unwrap().len(), 50);
    let refused = ada.put(&secret("MORE"), json!({ "value": "x" })).await;
    let details = &refused.expect_error(409, "secret_limit")["details"];
    assert_eq!(*details, json!({ "limit": 200, "count": 200, "of": "secrets", "plan": "free" }));
    ada.put(SECRETS, json!({ "secrets": { "MORE": "x" } })).await.expect_error(409, "secret_limit");
    ada.put(&secret("KEY_7"), json!({ "value": "y" })).await.expect(200);
    ada.put(SECRETS, json!({ "secrets": { "KEY_7": null, "MORE": "x" } })).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn project_has_at_most_2_mib_of_secrets() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let largest = "x".repeat(65_536);
    // A body has at most 512 KiB.
    for part in 0..8 {
        let values: serde_json::Map<_, _> =
            (0..4).map(|number| (format!("KEY_{part}_{number}"), json!(largest))).collect();
        ada.put(SECRETS, json!({ "secrets": values })).await.expect(200);
    }
    let refused = ada.put(&secret("MORE"), json!({ "value": "x" })).await;
    let details = &refused.expect_error(409, "secret_limit")["details"];
    assert_eq!(*details, json!({ "limit": 2_097_152, "count": 2_097_152, "of": "bytes", "plan": "free" }));
    ada.put(&secret("KEY_0_0"), json!({ "value": "short" })).await.expect(200);
    ada.put(&secret("MORE"), json!({ "value": "x" })).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_response_and_no_row_contains_a_value() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let responses: Vec<ApiResponse> = vec![
        ada.put(&secret("API_KEY"), json!({ "value": CANARY })).await,
        ada.put(SECRETS, json!({ "secrets": { "OTHER": CANARY } })).await,
        ada.put(&secret("DB"), json!({ "value": CANARY })).await,
        ada.put(&secret("a"), json!({ "value": CANARY })).await,
        ada.put(&secret("API_KEY"), json!({ "value": format!("{CANARY}\u{0}") })).await,
        ada.put(&secret("API_KEY"), json!({ "value": [CANARY] })).await,
        ada.put(&secret("API_KEY"), json!({ "value": "x", "more": CANARY })).await,
        ada.put(SECRETS, json!({ "secrets": { "a": CANARY } })).await,
        ada.put(SECRETS, json!({ "secrets": { "OTHER": [CANARY] } })).await,
        ada.get(SECRETS).await,
        ada.delete(&secret("OTHER")).await,
        ada.get("/v1/orgs/ada/projects/site").await,
        ada.get("/v1/orgs/ada/projects/site/overview").await,
        ada.get("/v1/orgs/ada/audit").await,
    ];
    for response in responses {
        assert!(!String::from_utf8_lossy(&response.bytes).contains(CANARY), "{}", response.request);
    }
    let tables = "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables \
                  WHERE schemaname NOT IN ('pg_catalog', 'information_schema')";
    let hexadecimal = kernel::hex(CANARY.as_bytes());
    for table in app.db_rows(tables).await {
        let rows = Value::from(app.db_rows(&format!("SELECT * FROM {}", table["name"].as_str().unwrap())).await);
        let rows = rows.to_string();
        assert!(!rows.contains(CANARY) && !rows.contains(&hexadecimal), "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_members_read_and_change_secrets() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let member = app.add_member(&ada, "ada", "max", "member").await;
    let viewer = app.add_member(&ada, "ada", "vera", "viewer").await;
    member.put(&secret("API_KEY"), json!({ "value": "x" })).await.expect(200);
    assert_eq!(member.get(SECRETS).await.expect(200)["items"][0]["updatedBy"], member.user_id.as_str());
    for caller in [viewer, app.sign_in("eve").await] {
        caller.get(SECRETS).await.expect_error(403, "forbidden");
        caller.put(SECRETS, json!({ "secrets": {} })).await.expect_error(403, "forbidden");
        caller.put(&secret("API_KEY"), json!({ "value": "x" })).await.expect_error(403, "forbidden");
        caller.delete(&secret("API_KEY")).await.expect_error(403, "forbidden");
    }
    let elsewhere = "/v1/orgs/ada/projects/other/secrets";
    ada.get(elsewhere).await.expect_error(404, "not_found");
    ada.put(&format!("{elsewhere}/API_KEY"), json!({ "value": "x" })).await.expect_error(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_values_have_versions_without_gaps() {
    let app = App::with(|config| config.database.connections = 32).await;
    let ada = ada_with_project(&app).await;
    let set = async |number: i32| {
        let response = ada.put(&secret("API_KEY"), json!({ "value": number.to_string() })).await;
        response.expect(200)["version"].as_i64().unwrap()
    };
    let mut versions = futures_util::future::join_all((0..20).map(set)).await;
    versions.sort_unstable();
    assert!(versions.iter().copied().eq(1..=20), "{versions:?}");
}
