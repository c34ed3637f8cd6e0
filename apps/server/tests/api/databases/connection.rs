//! The database and its connection info.

use serde_json::{Value, json};
use server::config::CoreLink;

use super::kit::{Kit, announce};
use super::{CONNECT, DATABASE, DELETE, ENDPOINT, EXPORT, GENERATIONS, PROJECT, RESTORE, TOKENS};
use crate::support::{App, ManualNode, bundle};

#[tokio::test(flavor = "multi_thread")]
async fn enabling_returns_the_connection_info_that_never_changes() {
    let kit = Kit::start().await;
    assert_eq!(kit.ada.get(DATABASE).await.expect(200), &json!({ "db": false }));
    let connect = kit.ada.post(DATABASE, json!({})).await.expect(200).clone();
    let text = |name: &str| connect[name].as_str().unwrap();
    let unique = text("database").strip_prefix("db_").unwrap();
    assert_eq!(text("user"), format!("app_{unique}"));
    assert!(text("password").len() >= 32, "a short password");
    let (host, port) = ("db1.svc.example", 5432);
    let url = format!(
        "postgres://{}:{}@{host}:{port}/{}?sslmode=verify-full",
        text("user"),
        text("password"),
        text("database")
    );
    let expected = json!({
        "host": host, "port": port, "database": text("database"), "sslmode": "verify-full",
        "user": text("user"), "password": text("password"), "url": url,
    });
    assert_eq!(connect, expected);
    assert_eq!(kit.ada.get(DATABASE).await.expect(200), &json!({ "db": true }));
    let endpoint = json!({
        "host": host, "port": port, "database": text("database"), "sslmode": "verify-full",
    });
    assert_eq!(kit.ada.get(ENDPOINT).await.expect(200), &endpoint);
    // Enable the database once before and once after the node has created it. The server ignores the body.
    for _ in 0..2 {
        assert_eq!(kit.ada.get(CONNECT).await.expect(200), &connect);
        let again = kit.ada.send(reqwest::Method::POST, DATABASE, |request| request.body("anything")).await;
        assert_eq!(again.expect(200), &connect);
        kit.apply().await;
    }
    assert_eq!(kit.audit().await, ["database.grant"]);
    let response = kit.ada.get(CONNECT).await;
    assert_eq!(response.header("cache-control"), "no-store");
    // While the project has no home node, no address is shown: enabling again does not assign one.
    kit.app.db_execute("UPDATE convergence.placements SET node_id = NULL, state = 'pending'").await.unwrap();
    kit.ada.get(CONNECT).await.expect_error(503, "no_home_node");
    kit.ada.post(DATABASE, json!({})).await.expect_error(503, "no_home_node");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_enable_one_database() {
    let kit = Kit::start().await;
    let responses = futures_util::future::join_all((0..4).map(|_| kit.ada.post(DATABASE, json!({})))).await;
    let bodies: Vec<&Value> = responses.iter().map(|response| response.expect(200)).collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{} different responses", bodies.len());
    assert_eq!(kit.audit().await, ["database.grant"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_database_only_its_generations_are_found() {
    let kit = Kit::start().await;
    for path in [CONNECT, ENDPOINT, TOKENS] {
        kit.ada.get(path).await.expect_error(404, "not_found");
    }
    kit.ada.post(TOKENS, json!({})).await.expect_error(404, "not_found");
    kit.ada.delete(&format!("{TOKENS}/tok_01h455vb4pex5vsknk084sn02q")).await.expect_error(404, "not_found");
    kit.ada.post(EXPORT, json!({})).await.expect_error(404, "not_found");
    kit.ada.post(DELETE, json!({ "confirm": "site" })).await.expect_error(404, "not_found");
    let none = json!({ "items": [], "lastCheckedAt": null });
    assert_eq!(kit.ada.get(GENERATIONS).await.expect(200), &none);
    for path in ["", "/connect", "/endpoint", "/tokens", "/generations"] {
        let elsewhere = format!("/v1/orgs/ada/projects/other/database{path}");
        kit.ada.get(&elsewhere).await.expect_error(404, "not_found");
    }
    assert_eq!(kit.audit().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn enabling_needs_a_node_with_postgres() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.post(DATABASE, json!({})).await.expect_error(503, "no_home_node");
    let node = ManualNode::new(&app).await;
    announce(&node, &json!({ "database": null })).await.expect(204);
    // The home node that serves the project's deployments must also hold its database.
    ada.upload(&format!("{PROJECT}/deployments"), crate::support::site("page")).await.expect(201);
    ada.post(DATABASE, json!({})).await.expect_error(503, "no_node_admin");
    assert_eq!(ada.get(DATABASE).await.expect(200), &json!({ "db": false }));
    assert!(!app.db_audit("ada").await.contains(&"database.grant".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_need_the_link_to_the_nodes() {
    let app = App::with(|config| config.core = CoreLink::Off).await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let operation = format!("{DATABASE}/operations/opn_01h455vb4pex5vsknk084sn02q");
    for path in [DATABASE, TOKENS, EXPORT, RESTORE, DELETE, &format!("{operation}/abort")] {
        ada.post(path, json!({})).await.expect_error(503, "no_core");
    }
    ada.delete(&format!("{TOKENS}/tok_01h455vb4pex5vsknk084sn02q")).await.expect_error(503, "no_core");
    assert_eq!(ada.get(DATABASE).await.expect(200), &json!({ "db": false }));
    ada.get(GENERATIONS).await.expect(200);
    ada.get(CONNECT).await.expect_error(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_required() {
    let kit = Kit::enabled().await;
    let member = kit.app.add_member(&kit.ada, "ada", "max", "member").await;
    let viewer = kit.app.add_member(&kit.ada, "ada", "vera", "viewer").await;
    let generation = kit.back_up().await;
    let operation = kit.restore(&generation).await;
    let (operation, abort) = (super::kit::operation_path(&operation), super::kit::abort_path(&operation));
    let token = format!("{TOKENS}/tok_01h455vb4pex5vsknk084sn02q");
    for path in [DATABASE, ENDPOINT] {
        viewer.get(path).await.expect(200);
    }
    for path in [CONNECT, TOKENS, GENERATIONS, &operation] {
        viewer.get(path).await.expect_error(403, "forbidden");
        member.get(path).await.expect(200);
    }
    for path in [DATABASE, TOKENS, EXPORT] {
        viewer.post(path, json!({})).await.expect_error(403, "forbidden");
    }
    viewer.delete(&token).await.expect_error(403, "forbidden");
    member.delete(&token).await.expect_error(404, "not_found");
    member.post(DATABASE, json!({})).await.expect(200);
    for path in [RESTORE, DELETE, &abort] {
        member.post(path, json!({})).await.expect_error(403, "forbidden");
    }
    kit.ada.post(&abort, json!({})).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn project_shows_its_database() {
    let kit = Kit::start().await;
    let manifest = bundle(&[("svc.json", br#"{"database":true}"#), ("assets/index.html", b"page")]);
    kit.ada.upload(&format!("{PROJECT}/deployments"), manifest).await.expect(201);
    let shown = async || {
        let detail = kit.ada.get(PROJECT).await.expect(200).clone();
        let overview = kit.ada.get(&format!("{PROJECT}/overview")).await.expect(200).clone();
        assert_eq!(overview["resources"]["database"]["granted"], detail["resources"]["database"]);
        (overview["resources"]["database"].clone(), overview["lastBackup"].clone())
    };
    let state = |granted: bool| json!({ "declared": true, "granted": granted });
    assert_eq!(shown().await, (state(false), Value::Null));
    kit.ada.post(DATABASE, json!({})).await.expect(200);
    kit.apply().await;
    assert_eq!(shown().await, (state(true), Value::Null));
    let mut last = Value::Null;
    for _ in 0..2 {
        last = kit.back_up().await;
        assert_eq!(shown().await, (state(true), last.clone()));
    }
    // The state of the placement follows the operation.
    let operation = kit.restore(&last).await;
    assert_eq!(kit.placement().await, ("draining".to_owned(), 1));
    kit.execute(&operation).await;
    assert_eq!(kit.placement().await, ("active".to_owned(), 2));
    let operation = kit.delete().await;
    kit.execute(&operation).await;
    assert_eq!(shown().await, (state(false), Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn password_is_stored_only_sealed_and_never_logged_in_the_audit() {
    let kit = Kit::enabled().await;
    let password = kit.ada.get(CONNECT).await.expect(200)["password"].as_str().unwrap().to_owned();
    let token = kit.ada.post(TOKENS, json!({})).await.expect(201)["password"].as_str().unwrap().to_owned();
    let tables = "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables \
                  WHERE schemaname NOT IN ('pg_catalog', 'information_schema')";
    for table in kit.app.db_rows(tables).await {
        let rows = kit.app.db_rows(&format!("SELECT * FROM {}", table["name"].as_str().unwrap())).await;
        let rows = Value::from(rows).to_string();
        for secret in [&password, &token] {
            assert!(!rows.contains(secret) && !rows.contains(&kernel::hex(secret.as_bytes())), "{table}");
        }
    }
    // The node receives only verifiers.
    let part = kit.part().await.to_string();
    assert!(!part.contains(&password) && !part.contains(&token));
    assert!(part.contains("SCRAM-SHA-256$4096:"), "no verifier in the part");
    for path in [DATABASE, ENDPOINT, TOKENS, GENERATIONS, PROJECT, "/v1/orgs/ada/audit"] {
        let response = kit.ada.get(path).await;
        let text = String::from_utf8_lossy(&response.bytes).into_owned();
        assert!(!text.contains(&password) && !text.contains(&token) && !text.contains("SCRAM"), "{path}");
    }
}
