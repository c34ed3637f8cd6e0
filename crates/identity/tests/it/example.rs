use serde_json::json;

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn the_example_ends_a_session() {
    let kit = Kit::start().await;
    let user = kit.login("ada").await.unwrap().user_id;
    let session = kit.audited().await[0].target.clone();

    let said = kit.database.example("end_session", &[&user.to_string(), &session]);
    assert_eq!(said, format!("{session} has ended\n"));
    assert_eq!(kit.db_counts().await, [1, 0, 1, 1, 2]);
    let told = "SELECT event, target, credential FROM store.audit WHERE event = 'session.end'";
    let expected = json!({ "event": "session.end", "target": session, "credential": "operator" });
    assert_eq!(kit.db_rows(told).await, [expected]);
}
