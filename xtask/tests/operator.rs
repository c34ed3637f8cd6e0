//! `xtask node`, `xtask saga`, `xtask oauth-client` and `xtask outbox`, as an operator runs them.

#![expect(clippy::unwrap_used, reason = "tests panic on unexpected results")]

use std::process::{Command, Output};

use testkit::TestDatabase;

/// Runs a command. Returns whether it succeeded, stdout and stderr.
fn xtask(database_url: &str, arguments: &[&str]) -> (bool, String, String) {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.args(arguments).args(["--database-url", database_url]);
    let Output { status, stdout, stderr } = xtask.output().unwrap();
    (status.success(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_node_is_neither_renewed_nor_added() {
    let database = TestDatabase::create().await;
    let node = |arguments: &[&str]| xtask(&database.url(), &[&["node"], arguments].concat());
    let (added, credential, _) = node(&["add", "edge"]);
    let (renewed, new_credential, _) = node(&["renew", "edge"]);
    assert!(added && renewed && credential.starts_with("svc_nod_") && new_credential.starts_with("svc_nod_"));
    assert_ne!(credential, new_credential);
    for command in ["renew", "revoke"] {
        let (succeeded, printed, error) = node(&[command, "egde"]);
        let message = "error: node egde does not exist; `xtask node list` lists the nodes\n";
        assert_eq!((succeeded, printed.as_str(), error.as_str()), (false, "", message), "{command}");
    }
    let (_, list, _) = node(&["list"]);
    assert!(list.starts_with("edge  nod_") && list.lines().count() == 1, "{list}");
}

/// A credential is shown only once.
#[tokio::test(flavor = "multi_thread")]
async fn credential_that_cannot_be_printed_is_reported() {
    let database = TestDatabase::create().await;
    let app = ["--name", "Example", "--redirect-uri", "https://app.example/callback", "--confidential"];
    for (arguments, remedy) in [
        (vec!["node", "add", "edge"], "run `xtask node renew edge`"),
        (vec!["node", "renew", "edge"], "run `xtask node renew edge`"),
        ([&["oauth-client", "add"][..], &app].concat(), "then add the app again"),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        xtask.args(&arguments).args(["--database-url", &database.url()]).stdout(writer);
        let Output { status, stderr, .. } = xtask.output().unwrap();
        let error = String::from_utf8(stderr).unwrap();
        assert!(!status.success() && error.contains(remedy), "{arguments:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_database_is_explained() {
    let database = TestDatabase::create().await;
    database.run("DROP SCHEMA convergence CASCADE").await;
    let (succeeded, _, error) = xtask(&database.url(), &["node", "list"]);
    assert!(!succeeded && error.ends_with("run `xtask migrate up`.\n"), "{error}");
    let (succeeded, _, error) = xtask("postgres://svc@127.0.0.1:1/svc", &["node", "list"]);
    assert!(!succeeded && error.matches("refused").count() == 1, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_saga_is_reported() {
    let database = TestDatabase::create().await;
    for command in ["retry", "abandon"] {
        let (succeeded, _, error) = xtask(&database.url(), &["saga", command, "00000000-0000-7000-8000-000000000001"]);
        assert!(!succeeded && error.contains("there is no saga"), "{command}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_retried_and_dropped_by_topic() {
    let database = TestDatabase::create().await;
    database
        .run(
            "INSERT INTO store.outbox (id, topic, key, payload, key_id, attempts, next_attempt_at, dead_lettered_at, created_at) \
             SELECT gen_random_uuid(), topic, 'key', '', 'test', 1, now(), died_at, now() \
             FROM unnest(ARRAY['a', 'b']) topic, unnest(ARRAY[now(), now(), NULL]) died_at",
        )
        .await;
    let outbox = |arguments: &[&str]| xtask(&database.url(), &[&["outbox"], arguments].concat());
    for (arguments, printed) in [
        (&["drop", "--topic", "a", "--dead"][..], "dropped messages: 2\n"),
        (&["drop", "--topic", "a"], "dropped messages: 1\n"),
        (&["retry", "--dead"], "messages to retry: 2\n"),
        (&["retry", "--dead"], "messages to retry: 0\n"),
    ] {
        let (succeeded, output, error) = outbox(arguments);
        assert!(succeeded && output == printed, "{arguments:?}: {output}{error}");
    }
    assert_eq!(database.number("SELECT count(*) FROM store.outbox WHERE topic = 'b'").await, 3);
    // Without a topic, only one message can be dropped.
    let id = "00000000-0000-7000-8000-000000000001";
    for arguments in [&["drop"][..], &["drop", "--dead"], &["drop", id, "--dead"], &["drop", id, "--topic", "b"]] {
        let (succeeded, _, error) = outbox(arguments);
        assert!(!succeeded && error.contains("Usage:"), "{arguments:?}: {error}");
    }
}
