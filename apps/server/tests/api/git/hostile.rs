//! Clients that send malformed requests and packs, or disconnect.

use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use super::{Kit, REPO};
use crate::support::{client, eventually};

/// Returns the status line of the response to a request with this path, which is sent unchanged.
async fn raw_status(kit: &Kit, path: &str) -> String {
    use base64::Engine as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let password = base64::engine::general_purpose::STANDARD.encode(format!("git:{}", kit.token));
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", kit.node.http)).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Basic {password}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    String::from_utf8_lossy(&response).split(' ').nth(1).unwrap_or_default().to_owned()
}

/// Paths that cannot belong to a repository.
const PATHS: [&str; 46] = [
    "/ada/site/../site/app.git",
    "/ada/site/./app.git",
    "/ada/../ada/site/app.git",
    "/../../../../etc/passwd",
    "/ada/site/%2e%2e/site/app.git",
    "/ada/site/%2E%2E%2Fsite%2Fapp.git",
    "/ada/site/..%2fsite%2fapp.git",
    "/ada%2fsite%2fapp.git",
    "/ada/site%2fapp.git",
    "/ada/site/..%5capp.git",
    "/ada/site/..%c0%afapp.git",
    "/ada/site/%252e%252e/app.git",
    "/ada/site//app.git",
    "//ada/site/app.git",
    "/ada/site/app.git/.",
    "/ada/site/app.git/",
    "/ada/site/app.git//",
    "/ada/site/app.git%00",
    "/ada/site/app%00.git",
    "/ada/site/app.git%0a",
    "/ada/site/app%0d%0a.git",
    "/ada/site/app.git%20",
    "/ada/site/app.git%7f",
    "/ada/site/app.git/../app.git",
    "/ada/site/--upload-pack=touch",
    "/ada/site/--upload-pack=touch%20x",
    "/ada/site/--help",
    "/ada/site/-app",
    "/-ada/site/app",
    "/ada/--git-dir=x/app",
    "/ADA/site/app.git",
    "/ada/site/APP.git",
    "/ada/site/app.git.git",
    "/ada/site/app.GIT",
    "/ada/site/.git",
    "/ada/site/app.lock",
    "/ada/site/app@%7b1%7d",
    "/ada/site/app/x/y",
    "/ada/site",
    "/ada",
    "/etc/passwd",
    "/repos/ab/rep_0",
    "/ada/site/app%2egit",
    "/ada/site/a\\b",
    "/~ada/site/app.git",
    "/ada/site/%61pp.git",
];

#[tokio::test(flavor = "multi_thread")]
async fn paths_reach_only_their_repository() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let query = "info/refs?service=git-upload-pack";
    assert_eq!(raw_status(&kit, &format!("/ada/site/app.git/{query}")).await, "200");
    for path in PATHS {
        let status = raw_status(&kit, &format!("{path}/{query}")).await;
        assert!(["400", "404"].contains(&status.as_str()), "{path}: {status}");
    }
    for path in ["HEAD", "config", "objects/info/packs", "info/refs", "git-upload-pack", "hooks/pre-receive"] {
        let status = raw_status(&kit, &format!("/ada/site/app.git/{path}")).await;
        assert!(["403", "404", "405"].contains(&status.as_str()), "{path}: {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_objects_and_refs_are_refused() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    work.commit("a", b"1");
    work.git(&["push", "--quiet", "origin", "main"]);
    // The tree has an entry `.git`, which a checkout would write.
    let blob = work.git(&["rev-parse", "HEAD:a"]);
    let bytes: Vec<u8> =
        (0..blob.len()).step_by(2).map(|at| u8::from_str_radix(&blob[at..at + 2], 16).unwrap()).collect();
    std::fs::write(work.path().join("t"), [b"100644 .git\0".as_slice(), &bytes].concat()).unwrap();
    let tree = work.git(&["hash-object", "-t", "tree", "--literally", "-w", "t"]);
    let commit = work.git(&["commit-tree", &tree, "-m", "bad"]);
    let refused = work.fails(&["push", "origin", &format!("{commit}:refs/heads/bad")]);
    assert!(refused.contains("hasDotgit"), "{refused}");
    assert!(work.fails(&["push", "origin", "main:refs/svc/kept/x"]).contains("hidden ref"));
    assert!(work.fails(&["push", "origin", &format!("main:refs/heads/{}", "n".repeat(1100))]).contains("longer than"));
    // A push may not update this many refs. None of them is created.
    let refs: Vec<String> = (0..2001).map(|number| format!("HEAD:refs/tags/t{number}")).collect();
    let refs: Vec<&str> = ["push", "origin"].into_iter().chain(refs.iter().map(String::as_str)).collect();
    assert!(work.fails(&refs).contains("A push can update 2000 refs"));
    // A push may update 300 refs. The 200 most recent updates are listed.
    work.git(&refs[..302]);
    assert_eq!(kit.ref_updates(200).await.len(), 200);
    let tags = work.git(&["ls-remote", "--tags", "origin"]);
    assert_eq!(tags.lines().count(), 300);
    work.git(
        &[
            &["push", "--quiet", "origin", "--delete"],
            &tags.lines().map(|line| line.split('\t').nth(1).unwrap()).collect::<Vec<_>>()[..],
        ]
        .concat(),
    );
    assert_eq!(work.git(&["ls-remote", "origin"]).lines().count(), 2);
}

/// If git cannot read the old object that a command names, git itself deletes the ref without a check, and reports no
/// old object.
#[tokio::test(flavor = "multi_thread")]
async fn deletion_without_the_old_object_is_refused() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let head = work.commit("a", b"1");
    work.git(&["push", "--quiet", "origin", "main", "main:x"]);
    let url = format!("http://127.0.0.1:{}/ada/site/app.git/git-receive-pack", kit.node.http);
    for old in ["1".repeat(40), "0".repeat(40)] {
        let command = format!("{old} {} refs/heads/x\0report-status delete-refs", "0".repeat(40));
        let body = format!("{:04x}{command}0000", command.len() + 4);
        let request = client().post(&url).basic_auth("git", Some(&kit.token)).body(body);
        let response = request.header("content-type", "application/x-git-receive-pack-request").send().await.unwrap();
        let report = response.text().await.unwrap();
        assert!(report.contains("refs/heads/x changed") && !report.contains("ok refs/heads/x"), "{report}");
    }
    assert!(work.git(&["ls-remote", "origin", "x"]).starts_with(&head));
    work.git(&["push", "--quiet", "origin", ":x"]);
    let updates = kit.ref_updates(3).await;
    assert_eq!((updates.len(), &updates[2]["old"], &updates[2]["new"]), (3, &json!(head), &json!(null)));
}

/// A client that is killed during a push leaves no process and no lock behind.
#[tokio::test(flavor = "multi_thread")]
async fn disconnected_client_leaves_nothing() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let data: Vec<u8> = (0..20_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    work.commit("large", &data);
    for wait in [50, 150, 300] {
        let mut push = work.command(&["push", "--quiet", "origin", "main"]);
        let mut push = push.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let group = rustix::process::Pid::from_raw(i32::try_from(push.id()).unwrap()).unwrap();
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        push.wait().unwrap();
    }
    let bare = kit.bare().await;
    let bare = bare.to_str().unwrap();
    eventually("the programs of git end", async || {
        let running = std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).contains(bare)
        });
        (!running).then_some(())
    })
    .await;
    // The node may only now begin with a request that it had received completely.
    eventually("a push succeeds", async || {
        work.try_git(&["push", "--quiet", "origin", "main"]).status.success().then_some(())
    })
    .await;
    assert_eq!(kit.ref_updates(1).await.len(), 1);
    work.git(&["--git-dir", bare, "fsck", "--full"]);
}

/// The files of a killed git process are removed while the node runs, and do not count as stored.
#[tokio::test(flavor = "multi_thread")]
async fn killed_program_leaves_no_files() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    work.commit("a", b"1");
    work.git(&["push", "--quiet", "origin", "main", "main:packed"]);
    let bare = kit.bare().await;
    work.git(&["--git-dir", bare.to_str().unwrap(), "pack-refs", "--all"]);
    // A push whose client sends nothing.
    let url = format!("http://127.0.0.1:{}/ada/site/app.git/git-receive-pack", kit.node.http);
    let (sender, body) = tokio::sync::mpsc::channel::<Result<Vec<u8>, std::io::Error>>(1);
    let body = futures_util::stream::unfold(body, async |mut body| Some((body.recv().await?, body)));
    let request = client().post(url).basic_auth("git", Some(&kit.token)).body(reqwest::Body::wrap_stream(body));
    let push = tokio::spawn(request.header("content-type", "application/x-git-receive-pack-request").send());
    sender.send(Ok(b"00".to_vec())).await.unwrap();
    let process = eventually("git receives the push", async || {
        std::fs::read_dir("/proc").unwrap().flatten().find_map(|process| {
            let command = std::fs::read(process.path().join("cmdline")).ok()?;
            let command = String::from_utf8_lossy(&command).into_owned();
            let is_push = command.contains("receive-pack") && command.contains(bare.to_str().unwrap());
            is_push.then(|| process.file_name().to_str().unwrap().parse::<i32>().unwrap())
        })
    })
    .await;
    let lock = bare.join("refs/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    let incomplete = vec![0; 10_000_000];
    std::fs::write(bare.join("objects/pack/tmp_pack_1"), &incomplete).unwrap();
    // The files of processes that were killed while they packed refs and wrote a commit-graph.
    let graphs = bare.join("objects/info/commit-graphs");
    std::fs::create_dir(&graphs).unwrap();
    let more = ["packed-refs.new", "gc.pid", "objects/info/commit-graph.lock"].map(|name| bare.join(name));
    let more = [more.as_slice(), &[graphs.join("commit-graph-chain.lock"), graphs.join("tmp_graph_1")]].concat();
    for file in &more {
        std::fs::write(file, "1 other\n").unwrap();
    }
    work.commit("a", b"2");
    assert!(work.fails(&["push", "origin", "main"]).contains("main.lock"));
    assert!(lock.exists());
    let is_counted = async || {
        let rows = kit.app.database.rows("SELECT size_bytes FROM git.repositories").await;
        rows[0]["size_bytes"].as_u64().unwrap() >= incomplete.len() as u64
    };
    eventually("the files count", async || is_counted().await.then_some(())).await;
    let process = rustix::process::Pid::from_raw(process).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    drop(sender);
    eventually("the lock is removed", async || (!lock.exists()).then_some(())).await;
    eventually("the other files are removed", async || (!more.iter().any(|file| file.exists())).then_some(())).await;
    eventually("the files no longer count", async || (!is_counted().await).then_some(())).await;
    work.git(&["push", "--quiet", "origin", "main", ":packed"]);
    push.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn public_repository_is_read_by_everyone_and_written_by_members() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let head = work.commit("a", b"1");
    work.git(&["push", "--quiet", "origin", "main"]);
    let sam = kit.app.sign_in("sam").await;
    kit.register_key(&sam, &["-t", "ed25519"]).await;
    let (anonymous, ssh) = (kit.url("", "app"), kit.ssh_url("app"));
    assert!(work.fails(&["ls-remote", &anonymous]).contains("could not read Username"));
    assert!(work.fails(&["ls-remote", &ssh]).contains("svc: repository not found"));
    sam.get(REPO).await.expect_error(403, "forbidden");
    kit.ada.patch(REPO, json!({ "visibility": "public" })).await.expect(204);
    for url in [&anonymous, &ssh] {
        assert!(work.git(&["ls-remote", url]).starts_with(&head), "{url}");
    }
    assert_eq!(sam.get(REPO).await.expect(200)["visibility"], "public");
    assert_eq!(sam.get(&format!("{REPO}/blob?path=a")).await.expect(200)["contents"], "1");
    assert!(work.fails(&["push", &anonymous, "main:other"]).contains("could not read Username"));
    assert!(work.fails(&["push", &ssh, "main:other"]).contains("requires the role member"));
    kit.ada.patch(REPO, json!({ "visibility": "private" })).await.expect(204);
    assert!(work.fails(&["ls-remote", &ssh]).contains("svc: repository not found"));
}
