//! Announcements and reports of nodes about databases, and the part that a node fetches.

use serde_json::{Value, json};

use super::DATABASE;
use super::kit::{Kit, announce, node_info, status};
use crate::support::{App, ManualNode, client};

#[tokio::test(flavor = "multi_thread")]
async fn announcement_is_checked_and_replaces_the_previous_one() {
    let kit = Kit::enabled().await;
    for (change, path) in [
        (json!({ "host": "" }), "database.host"),
        (json!({ "host": "x".repeat(254) }), "database.host"),
        (json!({ "port": 0 }), "database.port"),
        (json!({ "port": 65_536 }), "database.port"),
        (json!({ "sslmode": "prefer" }), "database.sslmode"),
        (json!({ "backupIntervalSeconds": 0 }), "database.backupIntervalSeconds"),
        (json!({ "password": "hunter2" }), "database.password"),
    ] {
        let mut info = node_info();
        info["database"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let refused = announce(&kit.node, &info).await;
        let body = refused.expect_error(400, "bad_request");
        assert!(body.to_string().contains(path) && !body.to_string().contains("hunter2"), "{path}: {body}");
    }
    announce(&kit.node, &json!({})).await.expect_error(400, "bad_request");
    let moved = json!({ "host": "2001:db8::1", "port": 6543, "sslmode": "require", "backupIntervalSeconds": 60 });
    announce(&kit.node, &json!({ "database": moved })).await.expect(204);
    let endpoint = kit.ada.get(&format!("{DATABASE}/endpoint")).await.expect(200).clone();
    let name = &endpoint["database"];
    assert_eq!(endpoint, json!({ "host": "2001:db8::1", "port": 6543, "sslmode": "require", "database": name }));
    let url = kit.ada.get(&format!("{DATABASE}/connect")).await.expect(200)["url"].as_str().unwrap().to_owned();
    assert!(url.contains("@[2001:db8::1]:6543/"), "the address in the URL");
    // The node announces that it has no Postgres.
    announce(&kit.node, &json!({ "database": null })).await.expect(204);
    kit.ada.get(&format!("{DATABASE}/connect")).await.expect_error(503, "no_node_admin");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_node_announces_itself() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    for token in ["svc_nod_x", ada.token.as_deref().unwrap()] {
        let request = client().put(format!("{}/internal/v1/node", app.internal)).bearer_auth(token);
        assert_eq!(request.json(&node_info()).send().await.unwrap().status(), 401);
    }
    // The public listener has no such route.
    ada.put("/internal/v1/node", node_info()).await.expect_error(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn part_describes_the_database_without_values_in_the_stored_state() {
    let kit = Kit::start().await;
    assert_eq!(kit.part().await, Value::Null);
    let connect = kit.ada.post(DATABASE, json!({})).await.expect(200).clone();
    let part = kit.part().await;
    let unique = connect["database"].as_str().unwrap().strip_prefix("db_").unwrap();
    let expected = json!({
        "revision": part["revision"], "id": format!("dbs_{unique}"), "verifier": part["verifier"], "tokens": [],
        "sizeBytes": 1_073_741_824_u64, "backupDays": 7, "epoch": 1, "source": null, "operation": null,
        "exports": [], "suspended": false,
    });
    assert_eq!(part, expected);
    assert!(part["verifier"].as_str().unwrap().starts_with("SCRAM-SHA-256$4096:"));
    let stored = kit.app.db_rows("SELECT desired FROM convergence.parts WHERE part = 'database'").await;
    assert_eq!(stored, [json!({ "desired": {} })]);
    // A new database is created from the newest generation if it is lost.
    kit.apply().await;
    let generation = kit.back_up().await;
    let source = json!({ "key": generation["offsiteKey"], "sizeBytes": generation["sizeBytes"], "sha256": generation["sha256"] });
    assert_eq!(kit.part().await["source"], source);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_report_is_refused_with_its_field() {
    let kit = Kit::enabled().await;
    let part = kit.part().await;
    let generation = kit.generation("scheduled").await;
    let changed = |report: &Value, field: &str, value: Value| {
        let mut report = report.clone();
        report[field] = value;
        report
    };
    let observed = status(&part, json!({}));
    let export = json!({ "id": "exp_01h455vb4pex5vsknk084sn02q", "error": "x" });
    for (kind, report) in [
        ("database", json!({})),
        ("database", changed(&observed, "revision", json!("1"))),
        ("database", changed(&observed, "database", json!("db_x"))),
        ("database", changed(&observed, "operation", json!({ "id": "opn_x" }))),
        ("database", changed(&observed, "backupError", json!("x".repeat(1001)))),
        ("database", changed(&observed, "unknown", json!(1))),
        ("generation", json!({})),
        ("generation", changed(&generation, "kind", json!("manual"))),
        ("generation", changed(&generation, "sha256", json!("0F"))),
        ("generation", changed(&generation, "sizeBytes", json!(-1))),
        ("export", json!({})),
        ("export", changed(&export, "id", json!("exp_x"))),
        ("export", changed(&export, "error", json!("a\u{0}b"))),
    ] {
        kit.report(kind, report.clone()).await.expect_error(400, "bad_request");
    }
    // Repeating the report would not correct a time or a key, so the node receives no error. With the key of another
    // project, a restore would read an object of that project.
    let outside = format!("{}/../x.dump", kit.project.as_str().unwrap());
    for (kind, report) in [
        ("database", changed(&observed, "freshAt", json!("yesterday"))),
        ("generation", changed(&generation, "createdAt", json!(""))),
        ("generation", changed(&generation, "key", json!("prj_01h455vb4pex5vsknk084sn02q/x.dump"))),
        ("generation", changed(&generation, "key", json!(outside))),
    ] {
        kit.report(kind, report.clone()).await.expect(200);
    }
    assert_eq!(kit.generations().await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_of_another_node_or_about_an_earlier_database_change_nothing() {
    let kit = Kit::enabled().await;
    let (part, late) = (kit.part().await, kit.generation("scheduled").await);
    // The project is not placed on this other node.
    let other = ManualNode::named(&kit.app, "other").await;
    other.report(&kit.project, &[("generation", late.clone())]).await.expect(200);
    assert_eq!(kit.generations().await, Vec::<Value>::new());
    let id = kit.delete().await;
    kit.execute(&id).await;
    kit.ada.post(DATABASE, json!({})).await.expect(200);
    kit.apply().await;
    let observed = status(&part, json!({ "readOnly": true, "backupError": "pg_dump failed" }));
    kit.report("database", observed).await.expect(200);
    assert_eq!(kit.notifications().await, ["database.deleted"]);
}
