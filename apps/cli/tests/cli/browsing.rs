//! `svc repos` with a git node: reading the contents of a repository.

use std::fs::File;
use std::process::{Child, Command};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use testkit::{WITHOUT_SYSTEM_CERTIFICATES, reserved_port};

use crate::support::{CommandResult, Machine, Platform, program};

/// A git node. Its log is `git.log` in the folder of the platform.
struct GitNode {
    process: Child,
    _folder: TempDir,
}

impl GitNode {
    fn start(platform: &Platform, http: u16) -> Self {
        let added = Command::new(program("xtask"))
            .env("SVC_DATABASE_URL", platform.database.url())
            .args(["node", "add", "git", "--git"])
            .output()
            .unwrap();
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let token = String::from_utf8(added.stdout).unwrap();
        let folder = TempDir::new().unwrap();
        let process = Command::new(program("svc-git"))
            .env_clear()
            .envs([WITHOUT_SYSTEM_CERTIFICATES])
            .envs([
                ("PATH", std::env::var_os("PATH").unwrap().into_string().unwrap()),
                ("SVC_GIT_LISTEN", format!("127.0.0.1:{http}")),
                ("SVC_GIT_SSH_LISTEN", format!("127.0.0.1:{}", reserved_port())),
                ("SVC_GIT_INTERNAL_LISTEN", "127.0.0.1:0".to_owned()),
                ("SVC_GIT_CORE_URL", format!("http://{}", platform.internal)),
                ("SVC_GIT_TOKEN", token.trim().to_owned()),
                ("SVC_GIT_DIR", folder.path().display().to_string()),
            ])
            .stdout(File::create(platform.folder.path().join("git.log")).unwrap())
            .spawn()
            .unwrap();
        Self { process, _folder: folder }
    }
}

impl Drop for GitNode {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Repeats a command until the predicate holds for its result.
async fn eventually(ada: &Machine, arguments: &[&str], holds: impl Fn(&CommandResult) -> bool) -> CommandResult {
    for _ in 0..600 {
        let result = ada.svc(arguments);
        if holds(&result) {
            return result;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{arguments:?}: {:?}", ada.svc(arguments));
}

#[tokio::test(flavor = "multi_thread")]
async fn pushed_contents_are_read_without_a_clone() {
    let http = reserved_port();
    let platform = Platform::with(&[("SVC_GIT_URL", format!("http://127.0.0.1:{http}"))]).await;
    let ada = platform.ada_with_site();
    ada.svc(&["repos", "create", "app"]).succeeds();
    let _git = GitNode::start(&platform, http);
    eventually(&ada, &["repos", "refs", "app"], |result| result.code == 0).await;

    ada.git(&["init", "--quiet", "--initial-branch=main"]);
    ada.svc(&["git", "setup", "app"]).succeeds();
    ada.write("notes/todo.txt", "milk\n");
    ada.write("notes/image", [0, 1, 2]);
    let exact = [("a.yaml", "a:\n\tb\r\n"), ("unfinished", "no line break"), ("blank", "\n\n\n"), ("empty", "")];
    for (file, text) in exact {
        ada.write(file, text);
    }
    ada.git(&["add", "--all"]);
    let author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"];
    ada.git(&[&author[..], &["commit", "--quiet", "-m", "Begin\n\nThe body"]].concat());
    ada.git(&["push", "--quiet", "origin", "main"]);
    let commit = ada.git(&["rev-parse", "HEAD"]).trim().to_owned();

    let refs = ada.svc(&["repos", "refs", "app"]).succeeds().out;
    assert!(refs.lines().any(|line| line == format!("main  default branch  {commit}")), "{refs}");
    for path in [None, Some("notes")] {
        let arguments: Vec<&str> = ["repos", "log", "app"].into_iter().chain(path).collect();
        let log = ada.svc(&arguments).succeeds().out;
        let line = log.lines().nth(1).unwrap();
        assert!(line.starts_with(&commit[..12]) && line.ends_with("Ada     Begin"), "{log}");
    }
    let tree = ada.svc(&["repos", "tree", "app", "notes", "--ref", "main"]).succeeds().out;
    let rows: Vec<Vec<&str>> = tree.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows, [["100644", "blob", "3", "image"], ["100644", "blob", "5", "todo.txt"]]);
    assert_eq!(ada.svc(&["repos", "cat", "app", "notes/todo.txt"]).succeeds().out, "milk\n");
    for (file, text) in exact {
        assert_eq!(ada.svc(&["repos", "cat", "app", file]).succeeds().out, text, "{file}");
        assert_eq!(ada.json(&["repos", "cat", "app", file])["contents"], text);
    }
    ada.svc(&["repos", "cat", "app", "notes/image"]).fails(1).stderr_contains("notes/image is not text");
    ada.svc(&["repos", "cat", "app", "notes/missing"]).fails(5).stderr_contains("code no_path");
    ada.svc(&["repos", "tree", "app", "--ref", "missing"]).fails(5).stderr_contains("code no_ref");

    // The git node delivers the update after the push.
    let is_listed = |result: &CommandResult| !result.json()["items"].as_array().unwrap().is_empty();
    let updates = eventually(&ada, &["repos", "updates", "app", "--json"], is_listed).await.json();
    assert_eq!((&updates["items"][0]["new"], &updates["items"][0]["old"]), (&Value::from(commit), &Value::Null));
    let listed = ada.svc(&["repos", "updates", "app"]).succeeds().out;
    assert!(listed.contains("refs/heads/main"), "{listed}");

    ada.svc(&["repos", "deploy-branch", "app", "live"]).succeeds();
    ada.git(&["rm", "--quiet", "svc.json"]);
    ada.git(&[&author[..], &["commit", "--quiet", "-m", "Remove the manifest"]].concat());
    ada.git(&["push", "--quiet", "origin", "main:live"]);
    let is_rejected = |result: &CommandResult| result.out.contains("rejected: the commit has no file svc.json");
    eventually(&ada, &["repos", "updates", "app"], is_rejected).await;

    let missing = ada.svc(&["repos", "default-branch", "app", "ghost"]).succeeds();
    missing.stderr_contains("The branch ghost does not exist yet");
    let existing = ada.svc(&["repos", "default-branch", "app", "live"]).succeeds();
    assert!(!existing.err.contains("does not exist"), "{existing:?}");
}
