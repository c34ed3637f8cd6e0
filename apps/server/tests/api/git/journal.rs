//! The journal of ref updates: each accepted update is listed once, in order.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::kit::{token, wrapped_git};
use super::{Kit, REPO, REPOS};
use crate::support::eventually;

/// In each round, 20 clients push a commit on top of the same commit.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_pushes_are_listed_once_in_order() {
    const CLIENTS: usize = 20;
    const ROUNDS: usize = 3;
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let mut head = work.commit("a", b"0");
    work.git(&["push", "--quiet", "origin", "main"]);
    let mut expected = vec![head.clone()];
    for round in 0..ROUNDS {
        let commits: Vec<String> = (0..CLIENTS)
            .map(|client| {
                work.git(&["reset", "--quiet", "--hard", &head]);
                work.commit("a", format!("{round} {client}").as_bytes())
            })
            .collect();
        let pushes: Vec<_> = commits
            .iter()
            .map(|commit| {
                let mut push = work.command(&["push", "--quiet", "origin", &format!("{commit}:refs/heads/main")]);
                push.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
            })
            .collect();
        let pushed: Vec<bool> = pushes.into_iter().map(|mut push| push.wait().unwrap().success()).collect();
        let winners: Vec<&String> =
            commits.iter().zip(&pushed).filter_map(|(commit, won)| won.then_some(commit)).collect();
        let [winner] = winners[..] else { panic!("{} pushes won", winners.len()) };
        head.clone_from(winner);
        expected.push(head.clone());
    }
    let updates = kit.ref_updates(expected.len()).await;
    let new: Vec<&str> = updates.iter().map(|update| update["new"].as_str().unwrap()).collect();
    assert_eq!(new, expected);
}

/// The node is killed while a client pushes repeatedly. No acknowledged push is lost, and each one is listed once.
#[tokio::test(flavor = "multi_thread")]
async fn killed_node_loses_no_acknowledged_update() {
    const ROUNDS: u64 = 12;
    let mut kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let mut acknowledged = Vec::new();
    let mut number = 0;
    for round in 0..ROUNDS {
        let (stop, pushed) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let pusher = scope.spawn(|| {
                let mut commits = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    number += 1;
                    let commit = work.commit("a", format!("{number}").as_bytes());
                    if work.try_git(&["push", "--porcelain", "origin", "main"]).status.success() {
                        commits.push(commit);
                        pushed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                commits
            });
            while pushed.load(Ordering::Relaxed) == 0 && !pusher.is_finished() {
                std::thread::sleep(Duration::from_millis(5));
            }
            // Each round kills the node at another moment of the next push.
            std::thread::sleep(Duration::from_millis(23 * round % 200));
            kit.node.kill();
            stop.store(true, Ordering::Relaxed);
            acknowledged.extend(pusher.join().unwrap());
        });
        kit.node.restart().await;
    }
    work.commit("a", b"last");
    work.git(&["push", "--quiet", "origin", "main"]);
    let last = work.git(&["rev-parse", "HEAD"]);
    let updates = eventually("the last update is delivered", async || {
        let updates = kit.ref_updates(1).await;
        (updates.last().unwrap()["new"] == last.as_str()).then_some(updates)
    })
    .await;
    // The old commit of each update is the new commit of the previous update.
    let mut before = Value::Null;
    for update in &updates {
        assert_eq!(update["old"], before, "{update}");
        before = update["new"].clone();
    }
    let listed: Vec<&str> = updates.iter().map(|update| update["new"].as_str().unwrap()).collect();
    for commit in &acknowledged {
        assert_eq!(listed.iter().filter(|new| *new == commit).count(), 1, "{commit}");
    }
    assert!(acknowledged.len() >= usize::try_from(ROUNDS).unwrap());
    let bare = kit.bare().await;
    work.git(&["--git-dir", bare.to_str().unwrap(), "fsck", "--full"]);
}

/// While git compares the commits of one repository for a long time, the updates of another one are listed.
#[tokio::test(flavor = "multi_thread")]
async fn slow_repository_does_not_delay_others() {
    let folder = tempfile::tempdir().unwrap();
    let slow = folder.path().join("slow");
    let comparisons = folder.path().join("comparisons");
    std::fs::write(&slow, "no repository").unwrap();
    let script = format!(
        "case \"$*\" in\n*\"$(/bin/cat '{}')\"*merge-base*) echo >> '{}'; exec /bin/sleep 20 ;;\nesac",
        slow.display(),
        comparisons.display()
    );
    let path = wrapped_git(folder.path(), &script);
    let kit = Kit::start_with(&[("PATH", path)]).await;
    kit.create("app").await;
    kit.create("other").await;
    let work = kit.init("work");
    work.commit("a", b"1");
    let other = kit.url(&kit.token, "other");
    work.git(&["push", "--quiet", "origin", "main", "main:second"]);
    work.git(&["push", "--quiet", &other, "main"]);
    std::fs::write(&slow, kit.bare().await.to_str().unwrap()).unwrap();
    work.commit("a", b"2");
    work.git(&["push", "--quiet", "origin", "main", "main:second"]);
    work.git(&["push", "--quiet", &other, "main"]);
    let path = format!("{REPOS}/other/ref-updates");
    let listed = async |path: &str| kit.ada.get(path).await.expect(200)["items"].as_array().unwrap().clone();
    eventually("the updates of the other repository are listed", async || {
        (listed(&path).await.len() == 2).then_some(())
    })
    .await;
    assert_eq!(listed(&format!("{REPO}/ref-updates")).await.len(), 2);
    // The first comparison ends at the deadline. Both updates are then recorded as forced.
    let updates = kit.ref_updates(4).await;
    assert!(updates[2..].iter().all(|update| update["forced"] == true), "{updates:?}");
    assert_eq!(std::fs::read_to_string(&comparisons).unwrap(), "\n");
}

/// git compares the commits of each update for a long time.
#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_shared_among_users_and_repositories() {
    const REPOSITORIES: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("comparisons");
    std::fs::write(&log, "").unwrap();
    let log_and_wait = format!("echo \"$*\" >> '{}'; exec /bin/sleep 20", log.display());
    let path = wrapped_git(folder.path(), &format!("case \"$*\" in\n*merge-base*) {log_and_wait} ;;\nesac"));
    let kit = Kit::start_with(&[("PATH", path)]).await;
    // The new commits of the updates that git began to compare.
    let compared = || -> Vec<String> {
        let lines = std::fs::read_to_string(&log).unwrap();
        lines.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
    };
    let work = kit.init("work");
    work.commit("a", b"first");
    let mut urls = Vec::new();
    for number in 0..REPOSITORIES {
        let name = format!("r{number}");
        kit.create(&name).await;
        let url = kit.url(&kit.token, &name);
        work.git(&["push", "--quiet", &url, "main"]);
        urls.push(url);
    }
    kit.create("other").await;
    let mia = kit.app.add_member(&kit.ada, "ada", "mia", "member").await;
    let other = kit.url(&token(&mia, &["git:write"]).await, "other");

    let commits: Vec<String> =
        (0..REPOSITORIES).map(|number| work.commit("a", number.to_string().as_bytes())).collect();
    let push = |(commit, url): (&String, &String)| {
        work.command(&["push", "--quiet", url, &format!("{commit}:refs/heads/main")]).spawn().unwrap()
    };
    let pushes: Vec<_> = commits.iter().zip(&urls).map(push).collect();
    for mut push in pushes {
        assert!(push.wait().unwrap().success());
    }
    work.git(&["push", "--quiet", &other, "main"]);
    let path = format!("{REPOS}/other/ref-updates");
    eventually("the update of the other user is listed", async || {
        let updates = kit.ada.get(&path).await;
        (updates.expect(200)["items"].as_array().unwrap().len() == 1).then_some(())
    })
    .await;
    assert!(compared().len() < REPOSITORIES, "a user has all deliveries");

    // Another update of a repository whose delivery is in progress is delivered after the repositories that wait.
    let delivered = eventually("git compares commits", async || compared().into_iter().next()).await;
    let url = &urls[commits.iter().position(|commit| *commit == delivered).unwrap()];
    let next = work.commit("a", b"next");
    work.git(&["push", "--quiet", url, "main"]);
    let began = eventually("other deliveries begin", async || Some(compared()).filter(|began| began.len() >= 4)).await;
    assert!(!began[..4].contains(&next), "{next} in {began:?}");
}

/// git skips a hook that it cannot execute.
#[tokio::test(flavor = "multi_thread")]
async fn push_without_its_hook_fails() {
    let mut kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let first = work.commit("a", b"1");
    let program = kit.node.folder().join("svc-git-hook");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o600)).unwrap();
    work.fails(&["push", "origin", "main"]);
    std::fs::remove_file(&program).unwrap();
    work.fails(&["push", "origin", "main"]);
    assert_eq!(work.git(&["ls-remote", "origin"]), "");
    // A restart installs the hook.
    kit.node.kill();
    kit.node.restart().await;
    work.git(&["push", "origin", "main"]);
    // git changes the refs, and the node is not notified.
    work.commit("a", b"2");
    kit.node.replace_hook("exit 0");
    work.fails(&["push", "origin", "main"]);
    assert_eq!(kit.ref_updates(1).await[0]["new"], first.as_str());
}

/// git ignores the result of the hook at the end of a transaction.
#[tokio::test(flavor = "multi_thread")]
async fn push_whose_outcome_is_not_recorded_fails() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    work.commit("a", b"1");
    kit.node.replace_hook(r#"exec "$hook" "$@""#);
    work.git(&["push", "origin", "main"]);
    let journal = kit.node.folder().join("journal");
    let remove = format!("[ \"$1\" != committed ] || rm -f '{}'/*", journal.display());
    kit.node.replace_hook(&format!("{remove}\nexec \"$hook\" \"$@\""));
    let commit = work.commit("a", b"2");
    work.fails(&["push", "origin", "main"]);
    assert!(work.git(&["ls-remote", "origin", "main"]).starts_with(&commit));
}
