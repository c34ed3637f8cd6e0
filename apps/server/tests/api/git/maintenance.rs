//! The maintenance of repositories by the node.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::Kit;
use super::kit::{token, wrapped_git};
use crate::support::eventually;

/// A repository with more packs than this is repacked.
const MAX_PACKS: usize = 20;
/// The number of updates in `ref-updates`. Their objects stay reachable.
const MAX_LISTED: usize = 200;

/// Returns the first git in these folders.
fn git_in(folders: &str) -> Option<PathBuf> {
    std::env::split_paths(folders).map(|folder| folder.join("git")).find(|program| program.is_file())
}

/// Returns the files below a folder. git can remove files and folders at any time.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => files.extend(self::files(&path)),
            path => files.push(path),
        }
    }
    files
}

/// Runs with the git of the tests, and with that of the system's package if it is another one, because `git gc` depends
/// on the version.
#[tokio::test(flavor = "multi_thread")]
async fn repository_with_many_pushes_is_repacked() {
    let path = std::env::var_os("PATH").unwrap().into_string().unwrap();
    let system = "/usr/bin:/bin";
    let mut paths = vec![path.as_str()];
    if git_in(system).is_some_and(|program| Some(program) != git_in(&path)) {
        paths.push(system);
    }
    for path in paths {
        is_repacked(path).await;
    }
}

/// Pushes more packs than a repository may have, deletes the branch, and restarts the node, which then repacks the
/// repository.
async fn is_repacked(path: &str) {
    let mut kit = Kit::start_with(&[("PATH", path.to_owned())]).await;
    kit.create("app").await;
    let work = kit.init("work");
    let main = work.commit("a", b"a");
    work.git(&["push", "--quiet", "origin", "main"]);
    // Each pack contains the whole file, and `git gc` replaces the copies with deltas.
    let mut file = testkit::bundle::incompressible(50_000);
    let mut deleted = String::new();
    for number in 0..=MAX_PACKS {
        file.push(u8::try_from(number).unwrap());
        deleted = work.commit("large", &file);
        work.git(&["push", "--quiet", "origin", "HEAD:refs/heads/large"]);
    }
    work.git(&["push", "--quiet", "origin", ":large"]);
    // After these updates, the deleted branch is no longer listed.
    let tags: Vec<String> = (0..MAX_LISTED).map(|number| format!("{main}:refs/tags/t{number}")).collect();
    let arguments: Vec<&str> =
        ["push", "--quiet", "--atomic", "origin"].into_iter().chain(tags.iter().map(String::as_str)).collect();
    work.git(&arguments);
    eventually("only the tags are listed", async || {
        let updates = kit.ref_updates(MAX_LISTED).await;
        updates.iter().all(|update| update["ref"].as_str().unwrap().starts_with("refs/tags/")).then_some(())
    })
    .await;
    let objects = kit.bare().await.join("objects");
    let size = || files(&objects).iter().map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum::<u64>();
    let count = |extension: &str| {
        files(&objects).iter().filter(|file| file.extension().is_some_and(|found| found == extension)).count()
    };
    assert!(count("pack") > MAX_PACKS, "{:?}", files(&objects));
    let before = size();
    kit.node.kill();
    kit.node.restart().await;
    eventually("the repository has a commit-graph and two packs", async || {
        let is_repacked = objects.join("info/commit-graph").is_file() && count("pack") == 2;
        is_repacked.then_some(())
    })
    .await;
    // The pack of unreachable objects. No object is loose.
    assert_eq!(count("mtimes"), 1, "{:?}", files(&objects));
    let is_loose = |file: &Path| !file.starts_with(objects.join("pack")) && !file.starts_with(objects.join("info"));
    assert_eq!(files(&objects).iter().filter(|file| is_loose(file)).count(), 0);
    assert!(size() < before / 2, "{before} bytes, then {}", size());
    // The objects of the deleted branch are kept, and the repository accepts pushes.
    let bare = objects.parent().unwrap().to_str().unwrap();
    assert_eq!(work.git(&["--git-dir", bare, "cat-file", "-t", &deleted]), "commit");
    work.git(&["push", "--quiet", "origin", "HEAD:refs/heads/large"]);
    work.git(&["--git-dir", bare, "fsck", "--full"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn repository_is_repacked_only_with_free_space() {
    let mut kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    work.commit("large", &testkit::bundle::incompressible(1_100_000));
    for number in 0..=MAX_PACKS {
        work.commit("a", number.to_string().as_bytes());
        work.git(&["push", "--quiet", "origin", "main"]);
    }
    let objects = kit.bare().await.join("objects");
    let packs = || files(&objects).iter().filter(|file| file.extension().is_some_and(|found| found == "pack")).count();
    assert!(packs() > MAX_PACKS);
    kit.node.kill();
    kit.node.restart_with(&[("SVC_GIT_MIN_FREE", "1000000TiB".to_owned())]).await;
    let graph = objects.join("info/commit-graph");
    eventually("the repository has a commit-graph", async || graph.is_file().then_some(())).await;
    assert!(packs() > MAX_PACKS);
    kit.node.kill();
    kit.node.restart().await;
    eventually("the repository has one pack", async || (packs() == 1).then_some(())).await;
}

/// Ada has repositories in two organizations, and git does not finish their commit-graphs.
#[tokio::test(flavor = "multi_thread")]
async fn maintenance_of_an_owner_does_not_delay_others() {
    let folder = tempfile::tempdir().unwrap();
    let [hold, log] = ["hold", "log"].map(|name| folder.path().join(name));
    // The file `hold` contains the id of a repository that is not held.
    let wait =
        format!("while [ -e '{0}' ] && ! echo \"$*\" | /bin/grep -qf '{0}'; do /bin/sleep 0.05; done", hold.display());
    let log_and_wait = format!("echo \"$*\" >> '{}'; {wait}", log.display());
    let path = wrapped_git(folder.path(), &format!("case \"$*\" in\n*commit-graph*) {log_and_wait} ;;\nesac"));
    let mut kit = Kit::start_with(&[("PATH", path)]).await;
    let mia = kit.app.sign_in("mia").await;
    kit.ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201);
    let work = kit.init("work");
    work.commit("large", &testkit::bundle::incompressible(1_100_000));
    let mut ids = Vec::new();
    for (user, org, names) in
        [(&kit.ada, "ada", &["a", "b"][..]), (&kit.ada, "acme", &["a", "b"][..]), (&mia, "mia", &["a"][..])]
    {
        user.post(&format!("/v1/orgs/{org}/projects"), json!({ "name": "web" })).await.expect(201);
        let password = token(user, &["git:write"]).await;
        for name in names {
            let repo = user.post(&format!("/v1/orgs/{org}/projects/web/repos"), json!({ "name": name })).await;
            ids.push(repo.expect(201)["id"].as_str().unwrap().to_owned());
            let url = format!("http://git:{password}@127.0.0.1:{}/{org}/web/{name}.git", kit.node.http);
            work.git(&["push", "--quiet", &url, "main"]);
        }
    }
    let mias = ids.pop().unwrap();
    std::fs::write(&hold, &mias).unwrap();
    // The node maintains repositories after each start.
    kit.node.kill();
    kit.node.restart().await;
    let has_graph = |id: &String| kit.node.repository(id).join("objects/info/commit-graph").is_file();
    eventually("Mia's repository has a commit-graph", async || has_graph(&mias).then_some(())).await;
    let started = std::fs::read_to_string(&log).unwrap();
    assert!(started.lines().filter(|line| !line.contains(&mias)).count() <= 1, "{started}");
    std::fs::remove_file(&hold).unwrap();
    eventually("the other repositories have commit-graphs", async || ids.iter().all(has_graph).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repository_that_cannot_be_erased_does_not_keep_others() {
    let mut kit = Kit::start().await;
    // The repositories of the folder `00`, whose ids end with these characters, cannot be moved.
    std::fs::write(kit.node.folder().join("repos/00"), "").unwrap();
    let deleted = "INSERT INTO git.repositories (id, project_id, name, visibility, default_branch, created_at, \
                       updated_at, erase_at) \
                   SELECT ('00000000-0000-7000-8000-00000000000' || n)::uuid, id, 'deleted' || n, 'private', 'main', \
                       now(), now(), '2020-01-01'::timestamptz + n * interval '1 s' \
                   FROM projects.projects, generate_series(0, 1) n";
    kit.app.db_execute(deleted).await.unwrap();
    // The node erases repositories after each start.
    kit.node.kill();
    kit.node.restart().await;
    eventually("the other repository is erased", async || {
        let rows = kit.app.db_rows("SELECT name FROM git.repositories").await;
        (rows == [json!({ "name": "deleted0" })]).then_some(())
    })
    .await;
}

/// A dump from which the control plane was restored does not contain the repository.
#[tokio::test(flavor = "multi_thread")]
async fn repository_that_the_control_plane_lost_is_logged_and_kept() {
    let mut kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let commit = work.commit("a", b"a");
    work.git(&["push", "--quiet", "origin", "main"]);
    let bare = kit.bare().await;
    kit.node.kill();
    kit.app.db_execute("DELETE FROM git.repositories").await.unwrap();
    let log = kit.node.restart_with_log();
    let id = bare.file_name().unwrap().to_str().unwrap();
    eventually("the node logs the repository", async || {
        let log = std::fs::read_to_string(&log).unwrap();
        let is_logged = |line: &str| line.contains("the control plane does not have a repository") && line.contains(id);
        log.lines().any(is_logged).then_some(())
    })
    .await;
    assert_eq!(work.git(&["--git-dir", bare.to_str().unwrap(), "rev-parse", "main"]), commit);
}
