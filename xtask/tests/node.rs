//! `xtask node`, as an operator runs it.

#![expect(clippy::unwrap_used, reason = "tests panic on unexpected results")]

use std::process::{Command, Output};

use testkit::TestDatabase;

/// Runs a command. Returns whether it succeeded, stdout and stderr.
fn node(database: &TestDatabase, arguments: &[&str]) -> (bool, String, String) {
    let mut node = Command::new(env!("CARGO_BIN_EXE_xtask"));
    node.arg("node").args(arguments).args(["--database-url", &database.url()]);
    let Output { status, stdout, stderr } = node.output().unwrap();
    (status.success(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_node_is_neither_renewed_nor_added() {
    let database = TestDatabase::create().await;
    let (added, credential, _) = node(&database, &["add", "edge"]);
    let (renewed, new_credential, _) = node(&database, &["renew", "edge"]);
    assert!(added && renewed && credential.starts_with("svc_nod_") && new_credential.starts_with("svc_nod_"));
    assert_ne!(credential, new_credential);
    for command in ["renew", "revoke"] {
        let (succeeded, printed, error) = node(&database, &[command, "egde"]);
        let message = "error: node egde does not exist; `xtask node list` lists the nodes\n";
        assert_eq!((succeeded, printed.as_str(), error.as_str()), (false, "", message), "{command}");
    }
    let (_, list, _) = node(&database, &["list"]);
    assert!(list.starts_with("edge  nod_") && list.lines().count() == 1, "{list}");
}
