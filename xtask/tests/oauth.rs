//! `xtask oauth-client`, `oauth-key` and `audit`, as an operator runs them.

#![expect(clippy::unwrap_used, reason = "tests panic on unexpected results")]

use std::process::{Command, Output};

use kernel::{OrgId, UserId};
use serde_json::{Value, json};
use testkit::TestDatabase;

/// Runs a command. Returns whether it succeeded, its stdout and its stderr.
fn run(database: &TestDatabase, arguments: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(arguments).args(["--database-url", &database.url()]).env("RUST_BACKTRACE", "0");
    command.env("SVC_SEALING_KEYS", "test:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.success(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn succeeds(database: &TestDatabase, arguments: &[&str]) -> String {
    let (succeeded, out, error) = run(database, arguments);
    assert!(succeeded, "{arguments:?}: {error}");
    out
}

/// Returns the message of a command that fails.
fn fails(database: &TestDatabase, arguments: &[&str]) -> String {
    let (succeeded, out, error) = run(database, arguments);
    assert!(!succeeded && out.is_empty(), "{arguments:?}: {out}");
    error
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn apps_are_registered_listed_and_removed() {
    let database = TestDatabase::create().await;
    assert_eq!(succeeds(&database, &["oauth-client", "list"]), "");
    let add = ["oauth-client", "add", "--name", "Example", "--redirect-uri", "https://app.example/callback"];
    let created = json_of(&succeeds(
        &database,
        &[&add[..], &["--confidential", "--scope", "account:read", "--scope", "deploy", "--json"]].concat(),
    ));
    let (id, secret) = (created["clientId"].as_str().unwrap(), created["clientSecret"].as_str().unwrap());
    assert!(id.starts_with("app_") && secret.starts_with("svc_ocs_"), "{id}");
    let more = ["https://app.example/other", "--redirect-uri", "https://app.example/third"];
    let scopes = ["--scope", "org:read", "project:read deploy", "--scope", "account:read", "--device"];
    let public = succeeds(&database, &[&add[..], &more, &scopes].concat());
    assert!(public.contains("client secret  none: the app is public\n"), "{public}");

    let listed = succeeds(&database, &["oauth-client", "list"]);
    assert!(listed.contains(id) && listed.contains("    https://app.example/callback\n"), "{listed}");
    let all = json_of(&succeeds(&database, &["oauth-client", "list", "--json"]));
    assert_eq!(all.as_array().unwrap().len(), 2);
    assert_eq!((&all[0]["confidential"], &all[0]["scopes"]), (&json!(true), &json!(["account:read", "deploy"])));
    assert_eq!((&all[1]["confidential"], &all[1]["device"]), (&json!(false), &json!(true)));
    assert_eq!(
        all[1]["redirectUris"],
        json!(["callback", "other", "third"].map(|path| format!("https://app.example/{path}")))
    );
    assert_eq!(all[1]["scopes"], json!(["account:read", "org:read", "project:read", "deploy"]));
    // The secret is shown only once. The database stores only its hash.
    let stored = database.rows("SELECT to_jsonb(c)::text AS client FROM oauth.clients c").await;
    let audit = succeeds(&database, &["audit", "--json"]);
    for text in [listed, all.to_string(), format!("{stored:?}"), audit] {
        assert!(!text.contains(secret), "{text}");
    }

    for (arguments, expected) in [
        (&["--name", "x", "--redirect-uri", "http://app.example/"][..], "redirect"),
        (&["--name", "x", "--redirect-uri", "https://app.example/#x"], "redirect"),
        (&["--name", "x", "--scope", "everything"], "everything"),
        (&["--name", "x"], "redirect"),
        (&[], "--name"),
    ] {
        let error = fails(&database, &[&["oauth-client", "add"], arguments].concat());
        assert!(error.to_lowercase().contains(expected), "{arguments:?}: {error}");
    }
    assert_eq!(succeeds(&database, &["oauth-client", "remove", id]), "removed; ended grants: 0\n");
    assert!(fails(&database, &["oauth-client", "remove", id]).contains("there is no app"));
    assert!(fails(&database, &["oauth-client", "remove", "usr_1"]).contains("usr_1"));
    let events = database.rows("SELECT event, credential FROM store.audit ORDER BY id").await;
    let event = |name: &str| json!({ "event": name, "credential": "operator" });
    assert_eq!(events, ["oauth.client.add", "oauth.client.add", "oauth.client.remove"].map(event));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_rotated_and_retired() {
    let database = TestDatabase::create().await;
    let list = || json_of(&succeeds(&database, &["oauth-key", "list", "--json"]));
    assert_eq!(list(), json!([]));
    succeeds(&database, &["oauth-key", "rotate"]);
    // The first key signs immediately.
    assert_eq!(list()[0]["state"], "signing");
    let first = list()[0]["kid"].as_str().unwrap().to_owned();
    let rotated = succeeds(&database, &["oauth-key", "rotate"]);
    assert!(rotated.contains("published") && rotated.contains(&first), "{rotated}");
    let states: Vec<Value> = list().as_array().unwrap().iter().map(|key| key["state"].clone()).collect();
    assert_eq!(states, ["published", "signing"]);
    // Another rotation would replace the published key, which no cache contains yet.
    assert!(fails(&database, &["oauth-key", "rotate"]).contains("rotation"));
    succeeds(&database, &["oauth-key", "retire", &first]);
    let left = list();
    assert!(left.as_array().unwrap().iter().all(|key| key["kid"] != first.as_str()), "{left}");
    // A new key signs immediately, so that apps can refresh.
    assert!(left.as_array().unwrap().iter().any(|key| key["state"] == "signing"), "{left}");
    assert!(fails(&database, &["oauth-key", "retire", &first]).contains("key"));
    let private = database.rows("SELECT encode(private_key, 'base64') AS key FROM oauth.signing_keys").await;
    let audit = succeeds(&database, &["audit", "--json"]);
    assert!(private.iter().all(|row| !audit.contains(row["key"].as_str().unwrap())));
}

/// The command reads the log in steps of 10,000 events.
#[tokio::test(flavor = "multi_thread")]
async fn rare_audit_events_are_found_in_a_long_log() {
    const RARE: &str = "n IN (1, 2, 10001, 10002, 20001)";
    const UUID: &str = "00000000-0000-7000-8000-000000000001";
    let database = TestDatabase::create().await;
    let fill = format!(
        "INSERT INTO store.audit (id, event, org_id, actor_id, account_id, credential, target, data, request_id, created_at) \
         SELECT ('01a00000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, \
             CASE WHEN {RARE} THEN 'rare' ELSE 'often' END, '{UUID}', \
             CASE WHEN {RARE} AND n > 2 THEN '{UUID}'::uuid END, CASE WHEN {RARE} AND n < 3 THEN '{UUID}'::uuid END, \
             'operator', n::text, '{{}}', 'req', now() FROM generate_series(1, 20001) n"
    );
    database.run(&fill).await;
    let (user, org) = (UserId::from_uuid(UUID.parse().unwrap()), OrgId::from_uuid(UUID.parse().unwrap()));
    let (user, org) = (user.to_string(), org.to_string());
    let targets = |arguments: &[&str]| -> Vec<String> {
        let printed = succeeds(&database, &[&["audit", "--json"], arguments].concat());
        printed.lines().map(|line| json_of(line)["target"].as_str().unwrap().to_owned()).collect()
    };
    let rare = ["20001", "10002", "10001", "2", "1"];
    for filter in [&["--event", "rare"][..], &["--user", user.as_str()]] {
        assert_eq!(targets(filter), rare);
        assert_eq!(targets(&[filter, &["--org", org.as_str()]].concat()), rare);
        assert_eq!(targets(&[filter, &["--limit", "3"]].concat()), rare[..3]);
    }
    let all: Vec<String> = (1..=20001).rev().map(|n| n.to_string()).collect();
    assert_eq!(targets(&["--limit", "100000"]), all);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_events_are_filtered_and_limited() {
    let database = TestDatabase::create().await;
    assert_eq!(succeeds(&database, &["audit"]), "");
    for name in ["one", "two", "three"] {
        let add = ["oauth-client", "add", "--name", name, "--redirect-uri", "https://app.example/"];
        succeeds(&database, &add);
    }
    succeeds(&database, &["oauth-key", "rotate"]);
    let lines = |arguments: &[&str]| -> Vec<Value> {
        succeeds(&database, &[&["audit", "--json"], arguments].concat()).lines().map(json_of).collect()
    };
    let all = lines(&[]);
    let events: Vec<&str> = all.iter().map(|record| record["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["oauth.key.rotate", "oauth.client.add", "oauth.client.add", "oauth.client.add"]);
    assert_eq!(lines(&["--limit", "2"]), all[..2]);
    assert_eq!(lines(&["--event", "oauth.key.rotate"]), all[..1]);
    let since = all[1]["createdAt"].as_str().unwrap();
    assert_eq!(lines(&["--since", since, "--event", "oauth.client.add"]), all[1..2]);
    assert_eq!(lines(&["--since", "2999-01-01T00:00:00Z"]), Vec::<Value>::new());
    assert_eq!(lines(&["--user", "usr_01h455vb4pex5vsknk084sn02q"]), Vec::<Value>::new());
    let text = succeeds(&database, &["audit", "--limit", "1"]);
    assert!(text.contains("  oauth.key.rotate  -  operator  "), "{text}");
    for arguments in [&["--limit", "0"][..], &["--since", "yesterday"], &["--user", "acme"]] {
        fails(&database, &[&["audit"], arguments].concat());
    }
}
