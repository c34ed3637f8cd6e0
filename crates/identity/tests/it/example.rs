use std::process::Command;

use serde_json::json;

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn the_example_ends_a_session() {
    let kit = Kit::start().await;
    let user = kit.login("ada").await.unwrap().user_id;
    let session = kit.audited().await[0].target.clone();

    // Cargo puts examples beside the folder that holds the tests.
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).unwrap().join("examples/end_session");
    let output = Command::new(&example)
        .args([&user.to_string(), &session])
        .env("SVC_DATABASE_URL", kit.database.url())
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}; `cargo test` without `--test` builds it", example.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{session} has ended\n"));
    assert_eq!(kit.db_counts().await, [1, 0, 1, 1, 2]);
    let told = "SELECT event, target, credential FROM store.audit WHERE event = 'session.end'";
    let expected = json!({ "event": "session.end", "target": session, "credential": "operator" });
    assert_eq!(kit.db_rows(told).await, [expected]);
}
