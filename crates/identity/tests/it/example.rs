use serde_json::json;

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn example_ends_a_session() {
    let kit = Kit::start().await;
    let user = kit.login("ada").await.unwrap().user_id;
    let session = kit.audited().await[0].target.clone();

    let output = kit.database.example("end_session", &[&user.to_string(), &session]);
    assert_eq!(output, format!("{session} has ended\n"));
    assert_eq!(kit.db_counts().await, [1, 0, 1, 1, 2]);
    let events = "SELECT event, target, credential FROM store.audit WHERE event = 'session.end'";
    let expected = json!({ "event": "session.end", "target": session, "credential": "operator" });
    assert_eq!(kit.db_rows(events).await, [expected]);
}
