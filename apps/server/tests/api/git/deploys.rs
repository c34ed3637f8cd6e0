//! Pushes that are deployed.

use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::reserved_port;

use super::kit::{Clone, GitNode, HeldGit, token, wrapped_git};
use super::{Kit, REPO, REPOS};
use crate::convergence::node_process::program;
use crate::paused_commit::pause_inserts;
use crate::process::Process;
use crate::support::{client, eventually};

const PAUSE: &str = "INSERT INTO public.paused VALUES (true)";
const RELEASE: &str = "DELETE FROM public.paused";
const PAUSED: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";

/// Commits a site of one page. Returns the commit.
fn commit_site(work: &Clone, page: &str) -> String {
    std::fs::write(work.path().join("svc.json"), "{}").unwrap();
    work.commit("assets/index.html", page.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn push_is_deployed_as_the_pusher_with_its_commit() {
    let kit = Kit::start().await;
    let work = kit.deploying().await;
    assert_eq!(kit.ada.get(REPO).await.expect(200)["deployBranch"], "main");
    for (file, content) in [
        ("README.md", "not packed"),
        (".svcignore", "*.map\n!keep.map\n"),
        ("assets/app.map", "ignored"),
        ("assets/keep.map", "kept"),
        ("assets/drafts/.svcignore", "*\n"),
        ("assets/drafts/a", "ignored"),
        ("worker/index.js", "export default {}"),
    ] {
        work.commit(file, content.as_bytes());
    }
    let commit = commit_site(&work, "one");
    let printed = work.push();
    assert!(printed.contains("remote: deployed version 1 at http"), "{printed}");
    let pushed = kit.deployments().await.remove(0);
    let expected = json!({ "commit": commit, "message": "Change assets/index.html", "branch": "main", "dirty": false });
    assert_eq!(pushed["git"], expected);
    assert_eq!((&pushed["live"], &pushed["createdBy"]["userId"]), (&json!(true), &json!(*kit.ada.user_id)));
    assert_eq!(kit.app.db_audit("ada").await.iter().filter(|event| *event == "deployment.create").count(), 1);
    let update = kit.ref_updates(1).await.remove(0);
    assert_eq!(update["deploy"], json!({ "status": "deployed", "version": 1, "message": null }));

    // `svc deploy` creates the same bundle from the same files.
    let mut svc = Command::new(program("svc"));
    svc.env_clear().env("HOME", work.path()).env("SVC_CLI_TOKEN", kit.ada.token.as_ref().unwrap());
    svc.args(["deploy", "--no-wait", "--api", &kit.app.base, "--org", "ada", "--project", "site"]).arg(work.path());
    let output = svc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(kit.deployments().await[1]["digest"], pushed["digest"]);

    // A push over SSH is deployed with the permissions of the user.
    kit.register_key(&kit.ada, &["-t", "ed25519"]).await;
    work.git(&["remote", "set-url", "origin", &kit.ssh_url("app")]);
    commit_site(&work, "two");
    let printed = work.push();
    assert!(printed.contains("remote: deployed version 3 at http"), "{printed}");

    // A push to another branch, and the deletion of the deploy branch, deploy nothing.
    work.git(&["push", "--quiet", "origin", "main:other"]);
    kit.ada.patch(REPO, json!({ "defaultBranch": "other" })).await.expect(204);
    let deleted = work.try_git(&["push", "origin", ":main"]);
    assert!(deleted.status.success() && !String::from_utf8_lossy(&deleted.stderr).contains("deployed"));
    kit.ada.patch(REPO, json!({ "deployBranch": null })).await.expect(204);
    assert_eq!(kit.ada.get(REPO).await.expect(200)["deployBranch"], Value::Null);
    assert!(!work.push().contains("deployed"));
    assert_eq!(kit.deployments().await.len(), 3);
    kit.ada.patch(REPO, json!({ "deployBranch": "a..b" })).await.expect(400);
    kit.ada.post(REPOS, json!({ "name": "b", "deployBranch": "-b" })).await.expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn push_above_the_daily_limit_of_deployments_is_rejected() {
    let kit = Kit::with(|config| config.abuse_limits.deployments_per_project = 1, &[]).await;
    let work = kit.deploying().await;
    commit_site(&work, "one");
    let printed = work.push();
    assert!(printed.contains("remote: deployed version 1 at"), "{printed}");
    commit_site(&work, "two");
    let printed = work.push();
    assert!(printed.contains("remote: not deployed: the limit of 1 deployments of a project in 24 hours"), "{printed}");
    assert_eq!(kit.deployments().await.len(), 1);
    let updates = kit.ref_updates(2).await;
    assert_eq!(updates.iter().filter(|update| update["deploy"]["status"] == "rejected").count(), 1, "{updates:?}");
}

/// The push succeeds, and its client sees the reason.
#[tokio::test(flavor = "multi_thread")]
async fn push_that_cannot_be_deployed_names_the_reason() {
    const MAX_ENTRIES: u64 = 20;
    let kit = Kit::with(|config| config.limits.free.bundle.entries = MAX_ENTRIES, &[]).await;
    let work = kit.deploying().await;
    let deploying = work.git(&["remote", "get-url", "origin"]);
    work.commit("a", b"a");
    let printed = work.push();
    assert!(printed.contains("remote: not deployed: the commit has no file svc.json at its root"), "{printed}");
    commit_site(&work, "page");
    let reset = |change: &dyn Fn()| {
        work.git(&["checkout", "--quiet", "-B", "main", "base"]);
        change();
        work.git(&["add", "--all"]);
        work.git(&["commit", "--quiet", "-m", "Change"]);
        let output = work.try_git(&["push", "--force", "origin", "main"]);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{printed}");
        printed
    };
    work.git(&["tag", "base"]);
    let write = |file: &str, content: &str| std::fs::write(work.path().join(file), content).unwrap();
    let link = reset(&|| symlink("index.html", work.path().join("assets/link")).unwrap());
    assert!(link.contains("remote: not deployed: assets/link: The entry is a symbolic link."), "{link}");
    let head = work.git(&["rev-parse", "HEAD"]);
    let submodule = reset(&|| {
        work.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{head},assets/module")]);
        std::fs::create_dir_all(work.path().join("assets/module")).unwrap();
    });
    assert!(submodule.contains("remote: not deployed: assets/module: The entry is a submodule."), "{submodule}");
    let manifest = reset(&|| write("svc.json", "[]"));
    assert!(manifest.contains("remote: not deployed: the bundle was rejected: svc.json"), "{manifest}");
    let ignored = reset(&|| write(".svcignore", "*.a\n[z-a]\n"));
    assert!(ignored.contains("remote: not deployed: .svcignore: line 2"), "{ignored}");
    let entries = reset(&|| {
        for number in 0..MAX_ENTRIES {
            write(&format!("assets/{number}"), "");
        }
    });
    assert!(entries.contains("remote: not deployed: The bundle exceeds the limit of"), "{entries}");

    // A push and its deploy need different scopes.
    work.git(&["remote", "set-url", "origin", &kit.url(&kit.token, "app")]);
    let scope = reset(&|| write("assets/b", "b"));
    assert!(scope.contains("remote: not deployed: the token lacks the scope deploy"), "{scope}");
    assert!(kit.deployments().await.is_empty());
    let updates = kit.ref_updates(7).await;
    assert!(updates.iter().all(|update| update["deploy"]["status"] == "rejected"), "{updates:?}");

    // A later push is deployed, with a hint about the resource that the project lacks.
    work.git(&["remote", "set-url", "origin", &deploying]);
    let deployed = reset(&|| write("svc.json", "{ \"storage\": true }"));
    assert!(deployed.contains("remote: deployed version 1 at"), "{deployed}");
    assert!(deployed.contains("remote: svc.json declares storage"), "{deployed}");
    eventually("the deploys are counted", async || {
        let metrics = kit.metrics().await;
        let counts = [("rejected", 7), ("deployed", 1)];
        let lines = counts.map(|(outcome, count)| format!("svc_git_deploys_total{{outcome=\"{outcome}\"}} {count}"));
        lines.iter().all(|line| metrics.contains(line)).then_some(())
    })
    .await;
}

/// The git process that reads the first commit waits, so that further pushes wait for their deploys.
#[tokio::test(flavor = "multi_thread")]
async fn push_above_the_limit_of_waiting_pushes_is_rejected() {
    let git = HeldGit::new("*\"cat-file --batch\"");
    let kit = Kit::start_with(&[("PATH", git.path())]).await;
    let work = kit.deploying().await;
    commit_site(&work, "one");
    git.hold();
    let first = work.command(&["push", "origin", "main"]).stderr(Stdio::piped()).spawn().unwrap();
    git.wait_until_held().await;
    let copy = "INSERT INTO git.deploys (repository_id, number, branch, commit_oid, pusher_id, credential, status) \
                SELECT repository_id, number + generate_series(1000, 1998), branch, commit_oid, pusher_id, credential, \
                    status FROM git.deploys";
    kit.app.database.run(copy).await;
    commit_site(&work, "two");
    let printed = work.push();
    assert!(printed.contains("remote: not deployed: 1000 of your pushes already wait for their deploys"), "{printed}");
    kit.app.database.run("DELETE FROM git.deploys WHERE number > 1000").await;
    git.release();
    let output = first.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && printed.contains("remote: deployed version 1 at http"), "{printed}");
    commit_site(&work, "three");
    let printed = work.push();
    assert!(printed.contains("remote: deployed version 2 at http"), "{printed}");
    let updates = kit.ref_updates(3).await;
    let statuses: Vec<&Value> = updates.iter().map(|update| &update["deploy"]["status"]).collect();
    assert_eq!(statuses, ["deployed", "rejected", "deployed"]);
}

/// Clients push at the same time. The versions have the order of the updates, and the last one is live.
#[tokio::test(flavor = "multi_thread")]
async fn rapid_pushes_are_deployed_in_order() {
    const PUSHES: usize = 6;
    let kit = Kit::start().await;
    let work = kit.deploying().await;
    let commits: Vec<String> = (0..PUSHES).map(|number| commit_site(&work, &number.to_string())).collect();
    let pushes: Vec<_> = commits
        .iter()
        .map(|commit| {
            let mut push = work.command(&["push", "--force", "origin", &format!("{commit}:refs/heads/main")]);
            push.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let accepted = pushes.into_iter().map(|mut push| push.wait().unwrap().success()).filter(|success| *success).count();
    assert!(accepted > 0);
    let updates = eventually("all pushes are deployed", async || {
        let updates = kit.ref_updates(accepted).await;
        updates.iter().all(|update| update["deploy"]["status"] == "deployed").then_some(updates)
    })
    .await;
    let deployments = kit.deployments().await;
    let pushed: Vec<&Value> = updates.iter().map(|update| &update["new"]).collect();
    assert_eq!(deployments.iter().map(|it| &it["git"]["commit"]).collect::<Vec<_>>(), pushed);
    assert_eq!(deployments.last().unwrap()["live"], true);
}

/// Kills the node before the update of a push is delivered, and before the deploy of a push ends. The push is deployed
/// once in each case.
#[tokio::test(flavor = "multi_thread")]
async fn killed_node_deploys_each_push_once() {
    for table in ["git.ref_updates", "projects.deployments"] {
        let mut kit = Kit::start().await;
        let work = kit.deploying().await;
        kit.app.database.run(&pause_inserts(table)).await;
        kit.app.database.run(PAUSE).await;
        let commit = commit_site(&work, "page");
        let mut push = work.command(&["push", "origin", "main"]).stderr(Stdio::null()).spawn().unwrap();
        eventually("a paused transaction", async || (kit.app.database.number(PAUSED).await > 0).then_some(())).await;
        kit.node.kill();
        push.wait().unwrap();
        kit.app.database.run(RELEASE).await;
        kit.node.restart().await;
        let update = eventually("the push is deployed", async || {
            let update = kit.ref_updates(1).await.remove(0);
            (update["deploy"]["status"] == "deployed").then_some(update)
        })
        .await;
        assert_eq!((&update["new"], &update["deploy"]["version"]), (&json!(commit), &json!(1)), "{table}");
        // A later push is the next version.
        commit_site(&work, "later");
        let printed = work.push();
        assert!(printed.contains("remote: deployed version 2 at"), "{table}: {printed}");
        assert_eq!(kit.deployments().await.len(), 2, "{table}");
    }
}

/// A signal ends the git process that reads the commit. The deploy is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn killed_git_process_does_not_reject_the_deploy() {
    let folder = tempfile::tempdir().unwrap();
    let killed = folder.path().join("killed");
    let kill = format!("if [ ! -e '{0}' ]; then : > '{0}'; kill -KILL $$; fi", killed.display());
    let path = wrapped_git(folder.path(), &format!("case \"$*\" in\n*\"cat-file --batch\") {kill} ;;\nesac"));
    let kit = Kit::start_with(&[("PATH", path)]).await;
    let work = kit.deploying().await;
    let commit = commit_site(&work, "page");
    work.push();
    assert!(killed.exists());
    let update = eventually("the push is deployed", async || {
        let update = kit.ref_updates(1).await.remove(0);
        (update["deploy"]["status"] != "pending").then_some(update)
    })
    .await;
    assert_eq!(update["deploy"], json!({ "status": "deployed", "version": 1, "message": null }));
    assert_eq!(kit.deployments().await[0]["git"]["commit"], commit);
}

/// A user pushes to two organizations, and another user to a third one. The git processes that read the commits wait.
#[tokio::test(flavor = "multi_thread")]
async fn deploys_of_a_user_do_not_delay_other_users() {
    let folder = tempfile::tempdir().unwrap();
    let [hold, log] = ["hold", "log"].map(|name| folder.path().join(name));
    let wait =
        format!("echo \"$*\" >> '{}'; while [ -e '{}' ]; do /bin/sleep 0.05; done", log.display(), hold.display());
    let path = wrapped_git(folder.path(), &format!("case \"$*\" in\n*\"cat-file --batch\") {wait} ;;\nesac"));
    let kit = Kit::start_with(&[("PATH", path)]).await;
    let mia = kit.app.sign_in("mia").await;
    kit.ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201);
    std::fs::write(&hold, "").unwrap();
    let (mut pushes, mut last) = (Vec::new(), String::new());
    for (user, org) in [(&kit.ada, "ada"), (&kit.ada, "acme"), (&mia, "mia")] {
        let project = format!("/v1/orgs/{org}/projects/web");
        user.post(&format!("/v1/orgs/{org}/projects"), json!({ "name": "web" })).await.expect(201);
        let repo = user.post(&format!("{project}/repos"), json!({ "name": "app", "deployBranch": "main" })).await;
        last = repo.expect(201)["id"].as_str().unwrap().to_owned();
        let password = token(user, &["git:write", "deploy"]).await;
        let url = format!("http://git:{password}@127.0.0.1:{}/{org}/web/app.git", kit.node.http);
        let work = kit.init(org);
        work.git(&["remote", "set-url", "origin", &url]);
        commit_site(&work, org);
        pushes.push(work.command(&["push", "origin", "main"]).stderr(Stdio::piped()).spawn().unwrap());
        eventually("the push waits for its deploy", async || {
            let updates = user.get(&format!("{project}/repos/app/ref-updates")).await;
            (updates.expect(200)["items"][0]["deploy"]["status"] == "pending").then_some(())
        })
        .await;
    }
    eventually("git reads one commit of each user", async || {
        let read = std::fs::read_to_string(&log).unwrap_or_default();
        (read.lines().count() == 2 && read.contains(&last)).then_some(())
    })
    .await;
    std::fs::remove_file(&hold).unwrap();
    for push in pushes {
        let output = push.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && printed.contains("remote: deployed version 1 at http"), "{printed}");
    }
}

/// The control plane is killed while the deployment commits, so that the node receives no response.
#[tokio::test(flavor = "multi_thread")]
async fn killed_control_plane_deploys_each_push_once() {
    let mut server = Process::start().await;
    let (http, ssh) = (reserved_port(), reserved_port());
    let _node = GitNode::at(&server.database.url(), &server.internal, http, ssh, &[]).await;
    let session = server.sign_in().await;
    let project = "/v1/orgs/ada/projects/site";
    server.json(&session, "POST", "/v1/orgs/ada/projects", Some(json!({ "name": "site" }))).await;
    let repo = json!({ "name": "app", "deployBranch": "main" });
    server.json(&session, "POST", &format!("{project}/repos"), Some(repo)).await;
    let new = json!({ "name": "git", "scopes": ["git:write", "deploy"] });
    let token = server.json(&session, "POST", "/v1/me/tokens", Some(new)).await;
    let folder = tempfile::tempdir().unwrap();
    let work = Clone::at(folder.path(), "work");
    std::fs::create_dir_all(work.path()).unwrap();
    work.git(&["init", "--quiet", "--initial-branch=main"]);
    let url = format!("http://git:{}@127.0.0.1:{http}/ada/site/app.git", token["token"].as_str().unwrap());
    work.git(&["remote", "add", "origin", &url]);
    server.database.run(&pause_inserts("projects.deployments")).await;
    for (version, is_committed) in [(1, false), (2, true)] {
        server.database.run(PAUSE).await;
        let commit = commit_site(&work, &version.to_string());
        let push = work.command(&["push", "origin", "main"]).stderr(Stdio::piped()).spawn().unwrap();
        eventually("a paused transaction", async || (server.database.number(PAUSED).await > 0).then_some(())).await;
        server.kill();
        if !is_committed {
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                       WHERE wait_event = 'PgSleep' AND datname = current_database()";
            server.database.rows(end).await;
        }
        server.database.run(RELEASE).await;
        let output = push.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && printed.contains("remote: not deployed yet"), "{printed}");
        server.restart().await;
        let live = eventually("the push is deployed", async || {
            let listed = server.json(&session, "GET", &format!("{project}/deployments"), None).await;
            listed["items"].as_array().unwrap().iter().find(|it| it["git"]["commit"] == commit).cloned()
        })
        .await;
        assert_eq!((&live["version"], &live["live"]), (&json!(version), &json!(true)));
    }
    // The repeated upload of the second push changed nothing.
    let updates = eventually("all deploys end", async || {
        let path = format!("{}{project}/repos/app/ref-updates", server.base);
        let listed: Value = client().get(path).bearer_auth(&session).send().await.unwrap().json().await.unwrap();
        let updates = listed["items"].as_array().unwrap().clone();
        updates.iter().all(|update| update["deploy"]["status"] == "deployed").then_some(updates)
    })
    .await;
    assert_eq!(updates[0]["deploy"]["version"], 2);
    let listed = server.json(&session, "GET", &format!("{project}/deployments"), None).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
}

/// While the git process that reads the commit waits, another member registers the SSH key of the push.
#[tokio::test(flavor = "multi_thread")]
async fn push_is_not_deployed_as_another_user_of_its_key() {
    let git = HeldGit::new("*\"cat-file --batch\"");
    let kit = Kit::start_with(&[("PATH", git.path())]).await;
    let work = kit.deploying().await;
    let mia = kit.app.add_member(&kit.ada, "ada", "mia", "member").await;
    let key = kit.register_key(&mia, &["-t", "ed25519"]).await;
    work.git(&["remote", "set-url", "origin", &kit.ssh_url("app")]);
    commit_site(&work, "page");
    git.hold();
    let push = work.command(&["push", "origin", "main"]).stderr(Stdio::piped()).spawn().unwrap();
    git.wait_until_held().await;
    mia.delete(&format!("/v1/me/ssh-keys/{key}")).await.expect(204);
    let public = std::fs::read_to_string(kit.key().with_extension("pub")).unwrap();
    kit.ada.post("/v1/me/ssh-keys", json!({ "title": "laptop", "key": public.trim() })).await.expect(201);
    git.release();
    let output = push.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("remote: not deployed: the credential of the push is not valid any more"), "{printed}");
    assert!(kit.deployments().await.is_empty());
}

/// Before the deploy, the credential is revoked, or the user loses the role.
#[tokio::test(flavor = "multi_thread")]
async fn authority_is_checked_when_the_deployment_commits() {
    let kit = Kit::start().await;
    let work = kit.deploying().await;
    let member = kit.app.add_member(&kit.ada, "ada", "mia", "member").await;
    let password = token(&member, &["git:write", "deploy"]).await;
    work.git(&["remote", "set-url", "origin", &kit.url(&password, "app")]);
    kit.app.database.run(&pause_inserts("projects.deployments")).await;
    // The pause holds the lock of the project's row, so that a second transaction waits for it.
    kit.app.database.run(PAUSE).await;
    let upload = crate::support::site("page");
    let deployments = "/v1/orgs/ada/projects/site/deployments";
    let ada = kit.ada.clone();
    let first = tokio::spawn(async move { ada.upload(deployments, upload).await });
    eventually("a paused transaction", async || (kit.app.database.number(PAUSED).await > 0).then_some(())).await;
    commit_site(&work, "page");
    let push = work.command(&["push", "origin", "main"]).stderr(Stdio::piped()).spawn().unwrap();
    // A part of the statement with which a deployment locks the project's row.
    kit.app.wait_for_lock(r#"SET "last_version" = "#).await;
    kit.ada.delete(&format!("/v1/orgs/ada/members/{}", member.user_id)).await.expect(204);
    kit.app.database.run(RELEASE).await;
    first.await.unwrap().expect(201);
    let output = push.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("remote: not deployed: you are not a member of this organization"), "{printed}");
    assert_eq!(kit.deployments().await.len(), 1);
}
