//! Client libraries, unmodified: dulwich and paramiko from PyPI, isomorphic-git from npm. `cargo xtask test` installs
//! them.

use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;

use super::Kit;
use super::kit::token;
use crate::support::{Folder, external_program};

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api/git/libraries");

/// Runs a script, which must succeed. Returns its output.
async fn run(mut command: Command, input: &Value) -> String {
    let output = command.arg(input.to_string()).env("NO_PROXY", "*").kill_on_drop(true).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Lets a script clone, push and fetch, and checks which updates are listed.
async fn exchange_with(command: Command) {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    work.commit("README.md", b"# App\n");
    let large: Vec<u8> = (0..1_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let head = work.commit("large.bin", &large);
    work.git(&["push", "--quiet", "origin", "main"]);
    let (folder, read) = (Folder::new("git-clients"), token(&kit.ada, &["git:read"]).await);
    let input = json!({
        "url": kit.url(&kit.token, "app"),
        "plainUrl": kit.url("", "app"),
        "token": kit.token,
        "readable": kit.url(&read, "app"),
        "readToken": read,
        "folder": folder.path,
        "head": head,
    });
    let [pushed, forced]: [String; 2] = serde_json::from_str(&run(command, &input).await).unwrap();
    let listed: Vec<Value> = kit.ref_updates(5).await[1..]
        .iter()
        .map(|update| json!([update["ref"], update["old"], update["new"], update["forced"]]))
        .collect();
    assert_eq!(
        listed,
        [
            json!(["refs/heads/main", head, pushed, false]),
            json!(["refs/heads/other", null, pushed, false]),
            json!(["refs/heads/main", pushed, forced, true]),
            json!(["refs/heads/other", pushed, null, false]),
        ]
    );
    work.git(&["--git-dir", kit.bare().await.to_str().unwrap(), "fsck", "--full"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dulwich_clones_pushes_and_fetches() {
    let Some(python) = external_program("SVC_TEST_GIT_CLIENTS") else { return };
    let mut command = Command::new(python);
    command.arg(Path::new(SCRIPTS).join("dulwich_client.py"));
    exchange_with(command).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn isomorphic_git_clones_pushes_and_fetches() {
    let Some(packages) = external_program("SVC_TEST_ISOMORPHIC_GIT") else { return };
    // Node finds packages in the folder `node_modules` next to a script.
    let folder = Folder::new("isomorphic-git");
    let script = "isomorphic-git.mjs";
    folder.write(script, std::fs::read(Path::new(SCRIPTS).join(script)).unwrap());
    std::os::unix::fs::symlink(packages, folder.path.join("node_modules")).unwrap();
    let mut command = Command::new("node");
    command.arg(folder.path.join(script));
    exchange_with(command).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paramiko_runs_only_commands_of_git() {
    let Some(python) = external_program("SVC_TEST_GIT_CLIENTS") else { return };
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let head = work.commit("a", b"a");
    work.git(&["push", "--quiet", "origin", "main"]);
    kit.register_key(&kit.ada, &["-t", "ed25519"]).await;
    let mut command = Command::new(python);
    command.arg(Path::new(SCRIPTS).join("paramiko_client.py"));
    let input = json!({
        "host": "127.0.0.1",
        "port": kit.node.ssh,
        "path": "/ada/site/app.git",
        "key": kit.key(),
        "token": kit.token,
        "head": head,
    });
    assert_eq!(run(command, &input).await, "done\n");
}
