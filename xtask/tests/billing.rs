//! `xtask billing`, as an operator runs it.

#![expect(clippy::unwrap_used, reason = "tests panic on unexpected results")]

use std::process::{Command, Output};

use kernel::OrgId;
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

const UUID: &str = "00000000-0000-7000-8000-000000000001";

/// Runs a command of `billing`. Returns whether it succeeded, stdout and stderr.
fn billing(database: &TestDatabase, arguments: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("billing").args(arguments).args(["--database-url", &database.url()]);
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.success(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Creates an organization, and returns its id.
async fn create_org(database: &TestDatabase) -> String {
    let create = format!(
        "INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at) \
         VALUES ('{UUID}', 'acme', 'Acme', 'free', false, now())"
    );
    database.run(&create).await;
    OrgId::from_uuid(UUID.parse().unwrap()).to_string()
}

/// Runs `billing events` and returns its output.
fn events(database: &TestDatabase, options: &[&str]) -> String {
    let (succeeded, printed, error) = billing(database, &[&["events"], options].concat());
    assert!(succeeded, "{error}");
    printed
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_unknown_organizations_are_listed_newest_first() {
    let database = TestDatabase::create().await;
    assert_eq!(events(&database, &[]), "received  webhook id  event  organization\n");
    assert_eq!(events(&database, &["--json"]), "");
    database.run(EVENTS).await;
    let newest = "\
        received                  webhook id  event                organization\n\
        2026-01-02T00:00:00.000Z  msg_2       subscription.active  acme\\u{1b}[2J\n";
    assert_eq!(events(&database, &["--limit", "1"]), format!("{newest}… there may be more\n"));
    let all = format!("{newest}2026-01-01T00:00:00.000Z  msg_1       order.paid           -\n");
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

/// Runs `billing adjust`. Returns whether it succeeded, stdout and stderr.
fn adjust(database: &TestDatabase, org: &str, micro_cents: &str, reason: &[&str]) -> (bool, String, String) {
    billing(database, &[&["adjust", org, micro_cents], reason].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn credit_is_corrected_with_a_reason() {
    let database = TestDatabase::create().await;
    let org = create_org(&database).await;
    let unknown = OrgId::from_uuid("00000000-0000-7000-8000-000000000002".parse().unwrap()).to_string();
    let reason = &["--reason", "refund of order 7"][..];
    for (org, micro_cents, reason, message) in [
        (unknown.as_str(), "5", reason, "no organization"),
        (org.as_str(), "0", reason, "must not be 0"),
        (org.as_str(), "1.5", reason, "invalid value"),
        ("umbrella", "5", reason, "no organization has the slug umbrella"),
        (org.as_str(), "5", &["--reason", ""][..], "1 to 500 characters"),
        (org.as_str(), "5", &["--reason", "a\nb"][..], "control characters"),
        (org.as_str(), "5", &[][..], "--reason"),
    ] {
        let (succeeded, printed, error) = adjust(&database, org, micro_cents, reason);
        assert!(!succeeded && printed.is_empty() && error.contains(message), "{org} {micro_cents}: {printed}{error}");
    }
    assert_eq!(database.number("SELECT count(*) FROM billing.ledger").await, 0);

    for (name, micro_cents, balance) in [(org.as_str(), "2000000", 2_000_000), ("acme", "-5000000", -3_000_000)] {
        let printed = format!("the balance of {org} is {balance} microcents\n");
        assert_eq!(adjust(&database, name, micro_cents, reason), (true, printed, String::new()));
    }
    let audit = |org: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(["audit", "--org", org, "--database-url", &database.url()]);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert_eq!(audit("acme").lines().count(), 2);
    assert_eq!(audit(&org), audit("acme"));
    assert_eq!(audit(&unknown), "");
    let ledger =
        "SELECT ledger_id, kind, amount_micro_cents, balance_micro_cents FROM billing.ledger ORDER BY ledger_id";
    let row = |id: i64, amount: i64, balance: i64| json!({ "ledger_id": id, "kind": "adjust", "amount_micro_cents": amount, "balance_micro_cents": balance });
    assert_eq!(database.rows(ledger).await, [row(1, 2_000_000, 2_000_000), row(2, -5_000_000, -3_000_000)]);
    let audited = database.rows("SELECT event, org_id, actor_id, data FROM store.audit ORDER BY id").await;
    let event = |amount: i64| {
        let data = json!({ "amountMicroCents": amount, "reason": "refund of order 7" });
        json!({ "event": "billing.adjust", "org_id": UUID, "actor_id": null, "data": data })
    };
    assert_eq!(audited, [event(2_000_000), event(-5_000_000)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn charged_topup_is_listed_and_ended() {
    let database = TestDatabase::create().await;
    let org = create_org(&database).await;
    let reason = ["--reason", "the event was lost"];
    let none = "id  organization  microcents  order  created\n";
    for (number, command, outcome, state, balance) in [
        (1, "void-topup", "without credit", "canceled", 0),
        (2, "credit-topup", "with credit", "credited", 500_000_000),
    ] {
        assert_eq!(billing(&database, &["topups"]), (true, none.to_owned(), String::new()));
        let id = format!("00000000-0000-7000-8000-00000000001{number}");
        let (order, created) = (format!("order_{number}"), format!("2026-01-0{number}T00:00:00.000Z"));
        let charge = format!(
            "INSERT INTO billing.topup_orders (id, org_id, amount_micro_cents, order_id, state, created_at) \
             VALUES ('{id}', '{UUID}', 500000000, '{order}', 'charged', '{created}')"
        );
        database.run(&charge).await;
        let (_, listed, _) = billing(&database, &["topups"]);
        let row: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, [id.as_str(), &org, "500000000", &order, &created], "{listed}");

        let (succeeded, _, error) = billing(&database, &[command, &id]);
        assert!(!succeeded && error.contains("--reason"), "{error}");
        let end = || billing(&database, &[&[command, id.as_str()], &reason[..]].concat());
        assert_eq!(end(), (true, format!("ended the top-up {id} {outcome}\n"), String::new()));
        let (succeeded, printed, error) = end();
        assert!(!succeeded && printed.is_empty() && error.contains("not a top-up that was charged"), "{error}");
        let states = database.rows(&format!("SELECT state FROM billing.topup_orders WHERE id = '{id}'")).await;
        assert_eq!(states, [json!({ "state": state })]);
        let credit = "SELECT coalesce(sum(balance_micro_cents), 0)::bigint FROM billing.accounts";
        assert_eq!(database.number(credit).await, balance);
    }
    let audited = database.rows("SELECT event, org_id, data->>'order' AS data FROM store.audit ORDER BY id").await;
    let event = |name: &str, order: &str| json!({ "event": name, "org_id": UUID, "data": order });
    assert_eq!(audited, [event("billing.topup.void", "order_1"), event("billing.topup.credit", "order_2")]);
}
