//! `xtask seal`, as an operator runs it.

#![expect(clippy::unwrap_used, reason = "tests panic on unexpected results")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use kernel::Secret;
use kernel::audit::{Actor, Event};
use kernel::seal::Keys;
use serde_json::json;
use store::{Config, Connection, Error, Outcome, Store};
use testkit::{TestClock, TestDatabase};

const OLD: &str = "old:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
const NEW: &str = "new:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

/// Enqueues outbox messages that are sealed with the first of these keys.
async fn enqueue(database: &TestDatabase, keys: &str, messages: usize) {
    let config = Config { keys: Keys::parse(keys).unwrap(), ..Config::new(Secret::new(database.url()), "test") };
    let store = Store::new(&config, TestClock::default().clock_rng()).unwrap();
    let work = async |tx: &mut Connection| {
        for number in 0..messages {
            store.enqueue(tx, "mail", &number.to_string(), &json!("hunter2")).await?;
        }
        let event = Event::of_platform("test.change", "test", json!({}));
        Ok::<_, Error>(Outcome::Changed((), event))
    };
    store.transaction(&Actor::operator("test"), work).await.unwrap();
}

fn seal(database: &TestDatabase, keys: &str, command: &str) -> Command {
    let mut seal = Command::new(env!("CARGO_BIN_EXE_xtask"));
    seal.args(["seal", command, "--database-url", &database.url()]).env("SVC_SEALING_KEYS", keys);
    seal
}

/// Runs a command. Returns whether it succeeded, stdout and stderr.
fn run(mut command: Command) -> (bool, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.success(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_rotation_is_completed_by_the_next_one() {
    let database = TestDatabase::create().await;
    enqueue(&database, OLD, 2000).await;
    let both = format!("{NEW},{OLD}");
    let (_, status, _) = run(seal(&database, &both, "status"));
    assert!(status.contains("store.outbox.payload  old  values: 2000  to be rotated\n"), "{status}");
    assert!(status.contains("store.idempotency.answer  no values\n"), "{status}");

    let mut killed = seal(&database, &both, "rotate").stdout(Stdio::piped()).spawn().unwrap();
    let first = BufReader::new(killed.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(first, "store.outbox.payload  rows read: 200  re-sealed: 200");
    let of_key = |key: &str| format!("SELECT count(*) FROM store.outbox WHERE key_id = '{key}'");
    assert!(database.number(&of_key("new")).await >= 200);

    let (succeeded, rotated, stderr) = run(seal(&database, &both, "rotate"));
    assert!(succeeded && rotated.ends_with("all values are sealed with the key new\n"), "{rotated}{stderr}");
    assert_eq!((database.number(&of_key("new")).await, database.number(&of_key("old")).await), (2000, 0));
    // The old key can be removed.
    let (_, status, _) = run(seal(&database, NEW, "status"));
    assert!(status.contains("store.outbox.payload  new  values: 2000  first key\n"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_continue_after_their_output_is_closed() {
    let database = TestDatabase::create().await;
    enqueue(&database, OLD, 2000).await;
    for command in ["status", "rotate"] {
        let mut started = seal(&database, &format!("{NEW},{OLD}"), command).stdout(Stdio::piped()).spawn().unwrap();
        drop(started.stdout.take());
        assert!(started.wait().unwrap().success(), "{command}");
    }
    assert_eq!(database.number("SELECT count(*) FROM store.outbox WHERE key_id = 'new'").await, 2000);
}

#[tokio::test(flavor = "multi_thread")]
async fn value_with_an_unknown_key_is_named_and_the_rotation_fails() {
    let database = TestDatabase::create().await;
    enqueue(&database, OLD, 1).await;
    let lost = database.rows("SELECT id FROM store.outbox").await[0]["id"].as_str().unwrap().to_owned();
    let between = "between:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
    enqueue(&database, between, 2).await;
    let keys = format!("{NEW},{between}");
    let (succeeded, rotated, stderr) = run(seal(&database, &keys, "rotate"));
    assert!(!succeeded && rotated.contains("re-sealed: 2\n"), "{rotated}{stderr}");
    let reason = format!(r#"store.outbox.payload, row {lost}: sealed with the key "old", which is not configured"#);
    assert!(stderr.contains(&reason) && stderr.contains("1 values are not sealed with the key new"), "{stderr}");
    let (_, status, _) = run(seal(&database, &keys, "status"));
    assert!(status.contains("store.outbox.payload  old  values: 1  NOT CONFIGURED\n"), "{status}");
    assert!(!(rotated + &stderr + &status).contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_and_malformed_keys_are_rejected_without_their_value() {
    let database = TestDatabase::create().await;
    let mut missing = seal(&database, "", "rotate");
    missing.env_remove("SVC_SEALING_KEYS");
    let (succeeded, _, stderr) = run(missing);
    assert!(!succeeded && stderr.contains("set SVC_SEALING_KEYS"), "{stderr}");
    let (succeeded, _, stderr) = run(seal(&database, "hunter2", "rotate"));
    assert!(!succeeded && stderr.contains("SVC_SEALING_KEYS") && !stderr.contains("hunter2"), "{stderr}");
}
