//! Restores and deletions.

use serde_json::{Value, json};

use super::kit::{Kit, abort_path, announce, operation_path, status};
use super::{AUTH, CONNECT, DATABASE, DELETE, EXPORT, RESTORE, TOKENS};

#[tokio::test(flavor = "multi_thread")]
async fn restore_shows_every_phase_and_raises_the_epoch() {
    let kit = Kit::enabled().await;
    let connect = kit.ada.get(CONNECT).await.expect(200).clone();
    kit.ada.post(TOKENS, json!({})).await.expect(201);
    let tokens = kit.ada.get(TOKENS).await.expect(200).clone();
    let (older, newer) = (kit.back_up().await, kit.back_up().await);
    let id = kit.restore(&older).await;
    let started = kit.operation(&id).await;
    let expected = json!({
        "id": id, "projectId": kit.project, "kind": "restore_generation", "phase": "draining", "terminalCode": null,
        "createdAt": started["createdAt"], "updatedAt": started["createdAt"],
    });
    assert_eq!(started, expected);
    let part = kit.part().await;
    let chosen = json!({ "key": older["offsiteKey"], "sizeBytes": older["sizeBytes"], "sha256": older["sha256"] });
    let operation = json!({ "id": id, "kind": "restore_generation", "phase": "draining", "generation": chosen });
    assert_eq!(part["operation"], operation);
    let phases = kit.execute(&id).await;
    assert_eq!(phases, ["draining", "sealing", "committing", "reactivating", "done"]);
    let ended = kit.operation(&id).await;
    assert_eq!(ended["terminalCode"], Value::Null);
    assert!(ended["updatedAt"].as_str() >= started["updatedAt"].as_str());
    assert_eq!(kit.placement().await, ("active".to_owned(), 2));
    let part = kit.part().await;
    assert_eq!((&part["operation"], &part["epoch"], &part["source"]), (&Value::Null, &json!(2), &chosen));
    // There is exactly one generation from before the restore, with the old epoch.
    let generations = kit.generations().await;
    let kinds: Vec<_> =
        generations.iter().map(|item| (item["kind"].as_str().unwrap(), item["epoch"].clone())).collect();
    assert_eq!(kinds, [("pre_restore", json!(1)), ("scheduled", json!(1)), ("scheduled", json!(1))]);
    assert_eq!(generations[1..], [newer, older]);
    assert_eq!(kit.back_up().await["epoch"], 2);
    // The connection and the tokens do not change.
    assert_eq!(kit.ada.get(CONNECT).await.expect(200), &connect);
    assert_eq!(kit.ada.get(TOKENS).await.expect(200), &tokens);
    assert_eq!(kit.audit().await, ["database.grant", "database.token.create", "database.restore"]);
    assert_eq!(kit.notifications().await, ["restore.completed"]);
    kit.ada.post(&abort_path(&id), json!({})).await.expect_error(409, "not_abortable");
}

#[tokio::test(flavor = "multi_thread")]
async fn restore_checks_its_generation() {
    let kit = Kit::enabled().await;
    let generation = kit.back_up().await;
    for (epoch, seq) in [(1, 99), (2, generation["seq"].as_i64().unwrap()), (i64::MAX, i64::MAX)] {
        let unlisted = kit.ada.post(RESTORE, json!({ "epoch": epoch, "seq": seq })).await;
        unlisted.expect_error(404, "not_found");
    }
    for (body, path) in [
        (json!({ "epoch": 0, "seq": 1 }), "epoch"),
        (json!({ "epoch": 1, "seq": -1 }), "seq"),
        (json!({ "epoch": 1, "seq": "latest" }), "seq"),
        (json!({ "epoch": 1 }), "seq"),
        (json!({ "epoch": 1, "seq": 1, "latest": true }), "latest"),
    ] {
        let refused = kit.ada.post(RESTORE, body.clone()).await;
        let fields = &refused.expect_error(400, "bad_request")["details"]["fields"];
        assert_eq!(fields[0]["path"], path, "{body}");
    }
    assert_eq!(kit.part().await["operation"], Value::Null);
    assert_eq!(kit.audit().await, ["database.grant"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_leaves_a_final_generation_that_a_new_database_can_restore() {
    let kit = Kit::enabled().await;
    let connect = kit.ada.get(CONNECT).await.expect(200).clone();
    kit.ada.post(TOKENS, json!({})).await.expect(201);
    for confirm in ["", "Site", "site ", "ada/site"] {
        kit.ada.post(DELETE, json!({ "confirm": confirm })).await.expect_error(400, "confirm_mismatch");
    }
    kit.ada.post(DELETE, json!({})).await.expect_error(400, "bad_request");
    kit.ada.post(DELETE, json!({ "confirm": "site", "force": true })).await.expect_error(400, "bad_request");
    assert_eq!(kit.part().await["operation"], Value::Null);

    let id = kit.delete().await;
    assert_eq!(kit.execute(&id).await, ["draining", "sealing", "committing", "done"]);
    assert_eq!(kit.operation(&id).await["terminalCode"], Value::Null);
    assert_eq!(kit.part().await, Value::Null);
    for path in [CONNECT, TOKENS] {
        kit.ada.get(path).await.expect_error(404, "not_found");
    }
    let generations = kit.generations().await;
    assert_eq!(generations.iter().map(|item| item["kind"].as_str().unwrap()).collect::<Vec<_>>(), ["final"]);
    let pair = json!({ "epoch": generations[0]["epoch"], "seq": generations[0]["seq"] });
    kit.ada.post(RESTORE, pair).await.expect_error(409, "database_required");

    let again = kit.ada.post(DATABASE, json!({})).await.expect(200).clone();
    for field in ["database", "user", "password"] {
        assert_ne!(again[field], connect[field], "{field}");
    }
    assert_eq!(kit.ada.get(TOKENS).await.expect(200)["items"], json!([]));
    kit.apply().await;
    let restore = kit.restore(&generations[0]).await;
    kit.execute(&restore).await;
    assert_eq!(kit.operation(&restore).await["terminalCode"], Value::Null);
    // The numbers are unique for the life of the project.
    let mut pairs: Vec<_> = kit.generations().await.iter().map(|item| item["seq"].as_i64().unwrap()).collect();
    pairs.dedup();
    assert_eq!(pairs.len(), 2);
    let audited = ["database.grant", "database.token.create", "database.delete", "database.grant", "database.restore"];
    assert_eq!(kit.audit().await, audited);
    assert_eq!(kit.notifications().await, ["database.deleted", "restore.completed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_can_be_aborted_until_it_commits() {
    let kit = Kit::enabled().await;
    let generation = kit.back_up().await;
    for phases in [0, 1] {
        for is_restore in [true, false] {
            let id = if is_restore { kit.restore(&generation).await } else { kit.delete().await };
            for _ in 0..phases {
                kit.complete(None).await;
            }
            let aborted = kit.ada.post(&abort_path(&id), json!({})).await.expect(200).clone();
            assert_eq!((aborted["phase"].as_str(), aborted["terminalCode"].as_str()), (Some("done"), Some("aborted")));
            assert_eq!(kit.operation(&id).await, aborted);
            assert_eq!(kit.placement().await, ("active".to_owned(), 1));
            assert_eq!(kit.part().await["operation"], Value::Null);
            kit.ada.post(&abort_path(&id), json!({})).await.expect_error(409, "not_abortable");
        }
    }
    for is_restore in [true, false] {
        let generation = kit.back_up().await;
        let id = if is_restore { kit.restore(&generation).await } else { kit.delete().await };
        kit.complete(None).await;
        kit.complete(Some(kit.generation(if is_restore { "pre_restore" } else { "final" }).await)).await;
        assert_eq!(kit.operation(&id).await["phase"], "committing");
        kit.ada.post(&abort_path(&id), json!({})).await.expect_error(409, "not_abortable");
        if is_restore {
            kit.complete(None).await;
            kit.ada.post(&abort_path(&id), json!({})).await.expect_error(409, "not_abortable");
        }
        kit.complete(None).await;
        assert_eq!(kit.operation(&id).await["phase"], "done");
    }
    let aborts = kit.audit().await.into_iter().filter(|event| event == "database.abort").count();
    assert_eq!(aborts, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_operation_runs_at_a_time() {
    let kit = Kit::enabled().await;
    let generation = kit.back_up().await;
    let pair = json!({ "epoch": generation["epoch"], "seq": generation["seq"] });
    let restores = futures_util::future::join_all((0..4).map(|_| kit.ada.post(RESTORE, pair.clone()))).await;
    let mut statuses: Vec<u16> = restores.iter().map(|response| response.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 409, 409, 409]);
    kit.ada.post(DELETE, json!({ "confirm": "site" })).await.expect_error(409, "operation_in_progress");
    kit.ada.post(EXPORT, json!({})).await.expect_error(409, "operation_in_progress");
    assert_eq!(kit.audit().await, ["database.grant", "database.restore"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_at_the_node_ends_the_operation() {
    let kit = Kit::enabled().await;
    let generation = kit.back_up().await;
    for (is_restore, code) in [(true, "restore_failed"), (false, "delete_failed")] {
        let id = if is_restore { kit.restore(&generation).await } else { kit.delete().await };
        kit.complete(None).await;
        let part = kit.part().await;
        let failed = json!({ "id": id, "error": "the object is missing" });
        for _ in 0..2 {
            kit.report("database", status(&part, json!({ "operation": failed }))).await.expect(200);
        }
        let ended = kit.operation(&id).await;
        assert_eq!((ended["phase"].as_str(), ended["terminalCode"].as_str()), (Some("done"), Some(code)));
        assert_eq!(kit.placement().await, ("active".to_owned(), 1));
        assert_eq!(kit.part().await["operation"], Value::Null);
    }
    assert_eq!(kit.ada.get(DATABASE).await.expect(200), &json!({ "db": true }));
    let restores = kit.notifications().await.into_iter().filter(|kind| kind == "restore.failed").count();
    assert_eq!(restores, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_project_starts_no_operation() {
    let kit = Kit::enabled().await;
    let generation = kit.back_up().await;
    kit.suspend().await;
    assert_eq!((kit.placement().await.0.as_str(), &kit.part().await["suspended"]), ("suspended", &json!(true)));
    let pair = json!({ "epoch": generation["epoch"], "seq": generation["seq"] });
    kit.ada.post(RESTORE, pair).await.expect_error(409, "suspended");
    kit.ada.get(CONNECT).await.expect(200);
    assert_eq!(kit.generations().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_need_a_home_node_with_postgres() {
    let kit = Kit::enabled().await;
    let generation = kit.back_up().await;
    let pair = json!({ "epoch": generation["epoch"], "seq": generation["seq"] });
    let requests = [(RESTORE, pair), (DELETE, json!({ "confirm": "site" })), (EXPORT, json!({}))];
    announce(&kit.node, &json!({ "database": null })).await.expect(204);
    for (path, body) in &requests {
        kit.ada.post(path, body.clone()).await.expect_error(503, "no_node_admin");
    }
    kit.app.db_execute("UPDATE convergence.placements SET node_id = NULL, state = 'pending'").await.unwrap();
    for (path, body) in &requests {
        kit.ada.post(path, body.clone()).await.expect_error(503, "no_home_node");
    }
    assert_eq!(kit.audit().await, ["database.grant"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_of_another_project_is_not_found() {
    let kit = Kit::enabled().await;
    let id = kit.delete().await;
    kit.ada.post("/v1/orgs/ada/projects", json!({ "name": "blog" })).await.expect(201);
    let elsewhere = |path: String| path.replace("/site/", "/blog/");
    let foreign = kit.ada.get(&elsewhere(operation_path(&id))).await;
    let unknown = kit.ada.get(&elsewhere(operation_path(&json!("opn_01h455vb4pex5vsknk084sn02q")))).await;
    assert_eq!(foreign.expect_error(404, "not_found")["message"], unknown.expect_error(404, "not_found")["message"]);
    kit.ada.post(&elsewhere(abort_path(&id)), json!({})).await.expect_error(404, "not_found");
    for malformed in ["opn_", "nonsense", "prj_01h455vb4pex5vsknk084sn02q"] {
        kit.ada.get(&operation_path(&json!(malformed))).await.expect_error(404, "not_found");
        kit.ada.post(&abort_path(&json!(malformed)), json!({})).await.expect_error(404, "not_found");
    }
    assert_eq!(kit.operation(&id).await["phase"], "draining");
}

#[tokio::test(flavor = "multi_thread")]
async fn database_of_app_sign_in_is_not_deleted() {
    let kit = Kit::enabled().await;
    kit.ada.post(AUTH, json!({})).await.expect(200);
    kit.ada.post(DELETE, json!({ "confirm": "site" })).await.expect_error(409, "auth_enabled");
    assert_eq!(kit.part().await["operation"], Value::Null);
    kit.ada.delete(AUTH).await.expect(204);
    kit.delete().await;
    // App sign-in needs a database that is not being deleted.
    kit.ada.post(AUTH, json!({})).await.expect_error(409, "database_required");
}

#[tokio::test(flavor = "multi_thread")]
async fn restores_exports_and_deletions_are_limited_per_day() {
    let kit = Kit::with(|config| {
        let limits = &mut config.abuse_limits;
        limits.database_restores_per_project = 1;
        limits.database_exports_per_project = 0;
        // Enabling the database is the first change.
        limits.database_changes_per_project = 1;
    })
    .await;
    kit.ada.post(DATABASE, json!({})).await.expect(200);
    kit.apply().await;
    let generation = kit.back_up().await;
    let pair = json!({ "epoch": generation["epoch"], "seq": generation["seq"] });
    let id = kit.restore(&generation).await;
    // An aborted restore counts, too.
    kit.ada.post(&abort_path(&id), json!({})).await.expect(200);
    let audit = kit.audit().await;
    for (path, body, limit) in
        [(RESTORE, pair.clone(), 1), (EXPORT, json!({}), 0), (DELETE, json!({ "confirm": "site" }), 1)]
    {
        let refused = kit.ada.post(path, body).await;
        assert_eq!(refused.expect_error(429, "rate_limited")["details"], json!({ "limit": limit }), "{path}");
        let retry_after: i64 = refused.header("retry-after").parse().unwrap();
        assert!((1..=24 * 3600).contains(&retry_after), "{path}: {retry_after}");
    }
    assert_eq!(kit.audit().await, audit);
    kit.app.clock.advance(24 * 3600);
    kit.ada.post(RESTORE, pair).await.expect(202);
}

/// Executes the commands of docs/backups.md, section "A restore that cannot be completed".
#[tokio::test(flavor = "multi_thread")]
async fn operator_ends_a_restore_that_cannot_be_completed() {
    const GUIDE: &str = include_str!("../../../../../docs/backups.md");
    let (_, section) = GUIDE.split_once("### A restore that cannot be completed").unwrap();
    let (_, statement) = section.split_once("```sql").unwrap();
    let (statement, _) = statement.split_once("```").unwrap();
    let statement = statement.replace("'acme'", "'ada'").replace("'shop'", "'site'");
    let kit = Kit::enabled().await;
    let chosen = kit.back_up().await;
    let id = kit.restore(&chosen).await;
    kit.complete(None).await;
    // Before the phase `committing`, the statement changes nothing.
    kit.app.db_execute(&statement).await.unwrap();
    assert_eq!(kit.operation(&id).await["phase"], "sealing");
    let sealed = kit.generation("pre_restore").await;
    kit.complete(Some(sealed.clone())).await;
    let part = kit.part().await;
    assert_eq!(part["source"]["key"], chosen["offsiteKey"]);
    kit.app.db_execute(&statement).await.unwrap();
    kit.suspend().await;
    kit.resume().await;
    let ended = kit.operation(&id).await;
    assert_eq!((&ended["phase"], &ended["terminalCode"]), (&json!("done"), &json!("restore_failed")));
    assert_eq!(kit.placement().await, ("active".to_owned(), 1));
    let changed = kit.part().await;
    assert!(changed["revision"].as_i64() > part["revision"].as_i64(), "{changed}");
    assert_eq!((&changed["operation"], &changed["source"]["key"]), (&Value::Null, &sealed["key"]));
    kit.apply().await;
    let again = kit.restore(&chosen).await;
    assert_eq!(kit.execute(&again).await.last().unwrap(), "done");
    assert_eq!(kit.operation(&again).await["terminalCode"], Value::Null);
}
