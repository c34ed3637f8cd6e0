//! `xtask billing`, as an operator runs it.

#![expect(clippy::unwrap_used, reason = "tests panic on unexpected results")]

use std::process::{Command, Output};

use serde_json::{Value, json};
use testkit::TestDatabase;

/// Two events of unknown organizations, and one that was applied.
const EVENTS: &str = "\
    INSERT INTO billing.webhooks (id, event, received_at) VALUES \
        ('msg_1', 'order.paid', '2026-01-01T00:00:00Z'), \
        ('msg_2', 'subscription.active', '2026-01-02T00:00:00Z'), \
        ('msg_3', 'subscription.updated', '2026-01-03T00:00:00Z'); \
    INSERT INTO billing.unassigned_events (webhook_id, event, organization, body, received_at) VALUES \
        ('msg_1', 'order.paid', NULL, '{\"type\": \"order.paid\"}', '2026-01-01T00:00:00Z'), \
        ('msg_2', 'subscription.active', E'acme\\x1b[2J', '{\"type\":  \"subscription.active\"}', '2026-01-02T00:00:00Z')";

/// Runs `billing events` and returns its output.
fn events(database: &TestDatabase, options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["billing", "events", "--database-url", &database.url()]).args(options);
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_unknown_organizations_are_listed_newest_first() {
    let database = TestDatabase::create().await;
    assert_eq!(events(&database, &[]), "");
    database.run(EVENTS).await;
    let newest = "2026-01-02T00:00:00.000Z  msg_2  subscription.active  acme\\u{1b}[2J\n";
    assert_eq!(events(&database, &["--limit", "1"]), newest);
    let all = format!("{newest}2026-01-01T00:00:00.000Z  msg_1  order.paid  -\n");
    assert_eq!(events(&database, &[]), all);

    let documents: Vec<Value> =
        events(&database, &["--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let newest = json!({
        "webhookId": "msg_2", "event": "subscription.active", "organization": "acme\u{1b}[2J",
        "receivedAt": "2026-01-02T00:00:00.000Z", "body": "{\"type\":  \"subscription.active\"}",
    });
    let oldest = json!({
        "webhookId": "msg_1", "event": "order.paid", "organization": null,
        "receivedAt": "2026-01-01T00:00:00.000Z", "body": "{\"type\": \"order.paid\"}",
    });
    assert_eq!(documents, [newest, oldest]);
}
