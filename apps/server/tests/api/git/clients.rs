//! Clones, fetches and pushes of the system's git.

use serde_json::json;

use super::kit::{HeldGit, wrapped_git};
use super::{Kit, REPO};
use crate::support::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn repository_is_pushed_and_cloned_over_http() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    // An empty repository can be cloned.
    let empty = kit.clone(&kit.url(&kit.token, "app"), "empty", &[]);
    assert_eq!(empty.git(&["symbolic-ref", "HEAD"]), "refs/heads/main");

    let first = work.commit("README.md", b"# App\n");
    work.git(&["push", "--quiet", "origin", "main"]);
    // The file is larger than a chunk of the client's requests.
    let large: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let second = work.commit("large.bin", &large);
    work.git(&["tag", "-a", "v1", "-m", "Version 1"]);
    work.git(&["push", "--quiet", "--follow-tags", "origin", "main"]);

    for version in ["0", "1", "2"] {
        let protocol = format!("protocol.version={version}");
        let clone = kit.clone(&kit.url(&kit.token, "app"), &format!("v{version}"), &["-c", &protocol]);
        assert_eq!(clone.git(&["rev-parse", "HEAD"]), second);
        assert_eq!(std::fs::read(clone.path().join("large.bin")).unwrap(), large);
        assert_eq!(clone.git(&["rev-parse", "v1^{commit}"]), second);
        clone.git(&["fsck", "--full"]);
    }
    let shallow = kit.clone(&kit.url(&kit.token, "app"), "shallow", &["--depth=1"]);
    assert_eq!(shallow.git(&["rev-list", "--count", "HEAD"]), "1");
    shallow.git(&["fetch", "--quiet", "--unshallow"]);
    assert_eq!(shallow.git(&["rev-list", "--count", "HEAD"]), "2");
    let partial = kit.clone(&kit.url(&kit.token, "app"), "partial", &["--filter=blob:none", "--no-checkout"]);
    assert!(partial.git(&["rev-list", "--objects", "--missing=print", "HEAD"]).contains('?'));
    assert_eq!(partial.git(&["show", "HEAD:README.md"]), "# App");

    let updates = kit.ref_updates(3).await;
    let shown: Vec<_> = updates.iter().map(|update| json!([update["ref"], update["old"], update["forced"]])).collect();
    assert_eq!(shown[0], json!(["refs/heads/main", null, false]));
    assert_eq!(updates[0]["new"], first);
    assert!(updates.iter().all(|update| update["pusher"] == *kit.ada.user_id));
    let tag = work.git(&["rev-parse", "v1"]);
    assert!(updates.iter().any(|update| update["ref"] == "refs/tags/v1" && update["new"] == tag));
}

#[tokio::test(flavor = "multi_thread")]
async fn repository_is_pushed_and_cloned_over_ssh() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    work.git(&["remote", "set-url", "origin", &kit.ssh_url("app")]);
    work.commit("a", b"a");
    let keys: [&[&str]; 4] = [
        &["-t", "ed25519"],
        &["-t", "ecdsa", "-b", "256"],
        &["-t", "ecdsa", "-b", "521"],
        &["-t", "rsa", "-b", "2048"],
    ];
    for (number, key) in keys.into_iter().enumerate() {
        let id = kit.register_key(&kit.ada, key).await;
        let head = work.commit("a", number.to_string().as_bytes());
        work.git(&["push", "--quiet", "origin", "main"]);
        let clone = kit.clone(&kit.ssh_url("app"), &format!("clone{number}"), &["-c", "protocol.version=2"]);
        assert_eq!(clone.git(&["rev-parse", "HEAD"]), head);
        // The URL with a slash at its end is equivalent.
        assert!(clone.git(&["ls-remote", &format!("{}/", kit.ssh_url("app")), "main"]).starts_with(&head));
        // A deleted key fails with the next command.
        kit.ada.delete(&format!("/v1/me/ssh-keys/{id}")).await.expect(204);
        assert!(clone.fails(&["fetch"]).contains("Permission denied"));
    }
    kit.register_key(&kit.ada, &["-t", "ed25519"]).await;
    let remote = format!("--remote={}", kit.ssh_url("app"));
    assert!(work.git(&["archive", &remote, "main", "a"]).contains("ustar"));
    let archive = work.git(&["archive", &remote, "--prefix", "site/", "--format", "tar", "main"]);
    assert!(archive.contains("site/a"));
    assert!(work.git(&["archive", &remote, "--list"]).lines().any(|format| format == "zip"));
    assert!(work.fails(&["ls-remote", &kit.ssh_url("other")]).contains("svc: repository not found"));
    assert_eq!(kit.ref_updates(4).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn force_pushed_commit_is_listed_and_recovered() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    work.commit("a", b"1");
    let lost = work.commit("a", b"2");
    work.git(&["push", "--quiet", "origin", "main"]);
    work.git(&["reset", "--quiet", "--hard", "HEAD^"]);
    let new = work.commit("a", b"3");
    assert!(work.fails(&["push", "origin", "main"]).contains("non-fast-forward"));
    work.git(&["push", "--quiet", "--force", "origin", "main"]);
    work.git(&["push", "--quiet", "origin", "main:gone"]);
    work.git(&["push", "--quiet", "origin", ":gone"]);
    let updates = kit.ref_updates(4).await;
    let fields = |update: &serde_json::Value| json!([update["ref"], update["old"], update["new"], update["forced"]]);
    assert_eq!(fields(&updates[1]), json!(["refs/heads/main", lost, new, true]));
    assert_eq!(fields(&updates[3]), json!(["refs/heads/gone", new, null, false]));

    let other = kit.clone(&kit.url(&kit.token, "app"), "other", &[]);
    other.git(&["fetch", "--quiet", "origin", &lost]);
    assert_eq!(other.git(&["show", "FETCH_HEAD:a"]), "2");
    let blob = kit.ada.get(&format!("{REPO}/blob?ref={lost}&path=a")).await;
    assert_eq!(blob.expect(200)["contents"], "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn atomic_pushes_and_push_options_are_accepted() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    work.commit("a", b"1");
    work.git(&["push", "--quiet", "-o", "ci.skip", "origin", "main"]);
    work.git(&["branch", "other"]);
    work.git(&["reset", "--quiet", "--hard", "HEAD"]);
    let amended = work.git(&["commit", "--quiet", "--amend", "-m", "Amended"]);
    drop(amended);
    let refused = work.fails(&["push", "--atomic", "origin", "main", "other"]);
    assert!(refused.contains("rejected"), "{refused}");
    assert_eq!(work.git(&["ls-remote", "origin", "other"]), "");
    work.git(&["push", "--quiet", "--atomic", "origin", "+main", "other"]);
    assert_eq!(kit.ref_updates(3).await.len(), 3);
    // The platform's own refs are neither visible nor writable.
    assert!(work.fails(&["push", "origin", "main:refs/svc/kept/x"]).contains("hidden ref"));
}

/// git does not finish the creation of one repository.
#[tokio::test(flavor = "multi_thread")]
async fn creation_of_a_repository_does_not_delay_others() {
    let git = HeldGit::new("*\" init --quiet\"*");
    let kit = Kit::start_with(&[("PATH", git.path())]).await;
    kit.create("app").await;
    kit.create("other").await;
    let work = kit.init("work");
    let other = kit.url(&kit.token, "other");
    work.git(&["ls-remote", &other]);
    git.hold();
    let mut creation = work.command(&["ls-remote", "origin"]).spawn().unwrap();
    git.wait_until_held().await;
    let mut read = work.command(&["ls-remote", &other]).spawn().unwrap();
    let status = eventually("the other repository is read", async || read.try_wait().unwrap()).await;
    assert!(status.success());
    git.release();
    assert!(creation.wait().unwrap().success());
}

/// This git has the defaults of git 3.0: a setting that is missing has another value.
#[tokio::test(flavor = "multi_thread")]
async fn new_repository_does_not_depend_on_the_default_formats_of_git() {
    let default =
        |setting: &str, variable: &str| format!("/bin/grep -q {setting} \"$GIT_CONFIG_GLOBAL\" || export {variable}");
    let defaults = [
        default("defaultObjectFormat", "GIT_DEFAULT_HASH=sha256"),
        default("defaultRefFormat", "GIT_DEFAULT_REF_FORMAT=reftable"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let kit = Kit::start_with(&[("PATH", wrapped_git(folder.path(), &defaults.join("\n")))]).await;
    kit.create("app").await;
    let work = kit.init("work");
    let commit = work.commit("a", b"a");
    work.git(&["push", "--quiet", "origin", "main"]);
    assert_eq!(kit.ref_updates(1).await[0]["new"], commit.as_str());
}

/// SIGTERM stops the node during a clone and a push.
#[tokio::test(flavor = "multi_thread")]
async fn stopping_node_finishes_ssh_commands() {
    let git = HeldGit::new("*upload-pack*");
    let mut kit = Kit::start_with(&[("PATH", git.path())]).await;
    kit.create("app").await;
    kit.register_key(&kit.ada, &["-t", "ed25519"]).await;
    let url = kit.ssh_url("app");
    let work = kit.init("work");
    work.git(&["remote", "set-url", "origin", &url]);
    let first = work.commit("a", b"1");
    work.git(&["push", "--quiet", "origin", "main"]);
    let second = work.commit("a", b"2");
    git.hold();
    let mut clone = work.command(&["clone", "--quiet", "--bare", &url, "clone"]).spawn().unwrap();
    git.wait_until_held().await;
    kit.node.hold_pushes(0);
    let mut push = work.command(&["push", "--quiet", "origin", "main"]).spawn().unwrap();
    kit.node.wait_for_held_push().await;

    let node = rustix::process::Pid::from_raw(kit.node.pid().try_into().unwrap()).unwrap();
    rustix::process::kill_process(node, rustix::process::Signal::TERM).unwrap();
    let ssh = kit.node.ssh;
    eventually("the node accepts no SSH connection", async || {
        tokio::net::TcpStream::connect(("127.0.0.1", ssh)).await.err()
    })
    .await;
    kit.node.release_pushes();
    git.release();
    assert!(push.wait().unwrap().success());
    assert!(clone.wait().unwrap().success());
    assert_eq!(work.git(&["--git-dir", "clone", "cat-file", "-t", &first]), "commit");
    let status = eventually("the node exits", async || kit.node.exit_status()).await;
    assert!(status.success(), "{status}");
    let updates = kit.ref_updates(2).await;
    assert_eq!(updates[1]["new"], second.as_str());
}
