//! Repeats the test cases of git's own tests for HTTP servers (t5541, t5551) against this platform: each kind of fetch
//! and push in each version of the protocol, and the ways in which clients send their requests.

use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Kit;
use super::kit::Clone;
use crate::support::client;

const VERSIONS: [&str; 3] = ["0", "1", "2"];

/// Returns a repository with 20 commits, one per day.
async fn history(kit: &Kit) -> Clone {
    kit.create("app").await;
    let work = kit.init("work");
    let noon = 1_704_110_400; // 2024-01-01T12:00:00Z
    let mut commits = String::new();
    for day in 1..=20 {
        let (time, message) = (noon + (day - 1) * 86_400, format!("Day {day}\n"));
        write!(commits, "commit refs/heads/main\ncommitter Ada <ada@example.org> {time} +0000\n").unwrap();
        write!(commits, "data {}\n{message}\n", message.len()).unwrap();
        for (file, text) in
            [("day".to_owned(), day.to_string()), (format!("file{day}"), format!("{day}\n").repeat(100))]
        {
            write!(commits, "M 100644 inline {file}\ndata {}\n{text}\n", text.len()).unwrap();
        }
    }
    work.feed(&["fast-import", "--quiet"], &commits);
    work.git(&["reset", "--quiet", "--hard"]);
    work.git(&["push", "--quiet", "origin", "main"]);
    work
}

/// Runs git with a trace of its requests. It must succeed. Returns the output.
fn traced(clone: &Clone, arguments: &[&str]) -> String {
    let output = clone.command(arguments).env("GIT_TRACE_CURL", "1").env("GIT_TRACE_CURL_NO_DATA", "1").output();
    let output = output.unwrap();
    let trace = String::from_utf8_lossy(&output.stderr).to_lowercase();
    assert!(output.status.success(), "git {}: {trace}", arguments.join(" "));
    trace
}

#[tokio::test(flavor = "multi_thread")]
async fn each_protocol_version_fetches_pushes_and_deletes() {
    let kit = Kit::start().await;
    let work = history(&kit).await;
    kit.register_key(&kit.ada, &["-t", "ed25519"]).await;
    for url in [kit.url(&kit.token, "app"), kit.ssh_url("app")] {
        let transport = &url[..3];
        for version in VERSIONS {
            let name = format!("{transport}{version}");
            let clone = kit.clone(&url, &name, &["-c", &format!("protocol.version={version}")]);
            clone.git(&["config", "protocol.version", version]);
            let commit = clone.commit("by", name.as_bytes());
            clone.git(&["push", "--quiet", "origin", &format!("main:{name}")]);
            work.git(&["fetch", "--quiet", "origin"]);
            assert_eq!(work.git(&["rev-parse", &format!("origin/{name}")]), commit);
            // git also fetches an annotated tag of a fetched commit.
            work.git(&["reset", "--quiet", "--hard", "origin/main"]);
            let (tagged, tag) = (work.commit("tagged", name.as_bytes()), format!("tag-{name}"));
            work.git(&["tag", "-a", "-m", "Followed", &tag]);
            work.git(&["push", "--quiet", "origin", "main", &tag]);
            clone.git(&["fetch", "--quiet", "origin"]);
            assert_eq!(clone.git(&["rev-parse", "origin/main"]), tagged);
            assert_eq!(clone.git(&["tag", "--list"]).lines().last(), Some(tag.as_str()));
            // This fetch finds no new commits.
            clone.git(&["fetch", "--quiet", "origin", "main"]);
            // Any object of the repository can be fetched by its id.
            let blob = work.git(&["rev-parse", "main~1:day"]);
            clone.git(&["fetch", "--quiet", "origin", &blob]);
            clone.git(&["push", "--quiet", "origin", "--delete", &name]);
            assert!(clone.fails(&["push", "origin", "--delete", &name]).contains("remote ref does not exist"));
            clone.git(&["fetch", "--quiet", "--prune", "origin"]);
            assert_eq!(clone.git(&["branch", "--remotes", "--list", &format!("origin/{name}")]), "");
            clone.git(&["fsck", "--full"]);
        }
    }
    let only = work.git(&["ls-remote", "origin", "refs/heads/*"]);
    assert_eq!(only.lines().count(), 1, "{only}");
    // After the first push, each version of the protocol pushed a branch, its deletion, `main` and a tag.
    assert_eq!(kit.ref_updates(25).await.len(), 25);
}

#[tokio::test(flavor = "multi_thread")]
async fn shallow_and_partial_clones_are_completed() {
    let kit = Kit::start().await;
    let work = history(&kit).await;
    let url = kit.url(&kit.token, "app");
    for version in VERSIONS {
        let protocol = format!("protocol.version={version}");
        let count = |clone: &Clone| clone.git(&["rev-list", "--count", "HEAD"]);
        let clone = |name: &str, arguments: &[&str]| {
            let clone = kit.clone(&url, &format!("{name}{version}"), &[&["-c", &protocol], arguments].concat());
            clone.git(&["config", "protocol.version", version]);
            clone
        };
        let deep = clone("depth", &["--depth=3"]);
        assert_eq!(count(&deep), "3");
        deep.git(&["fetch", "--quiet", "--deepen=4"]);
        assert_eq!(count(&deep), "7");
        deep.git(&["fetch", "--quiet", "--shallow-since=2024-01-05T00:00:00Z"]);
        assert_eq!(count(&deep), "16");
        // A shallow clone can push.
        let pushed = deep.commit("shallow", version.as_bytes());
        deep.git(&["push", "--quiet", "origin", &format!("main:shallow{version}")]);
        assert!(work.git(&["ls-remote", "origin", &format!("shallow{version}")]).starts_with(&pushed));
        deep.git(&["fetch", "--quiet", "--unshallow"]);
        assert_eq!(count(&deep), "21");
        deep.git(&["fsck", "--full"]);
        let since = clone("since", &["--shallow-since=2024-01-11T00:00:00Z"]);
        assert_eq!(count(&since), "10");
        let single = clone("single", &["--depth=1", "--branch", "main", "--single-branch", "--no-tags"]);
        assert_eq!(count(&single), "1");
        let excluded =
            kit.clone(&url, &format!("excluded{version}"), &["-c", &protocol, "--depth=1", "--no-single-branch"]);
        assert_eq!(count(&excluded), "1");

        let missing = |clone: &Clone| {
            let objects = clone.git(&["rev-list", "--objects", "--all", "--missing=print"]);
            objects.lines().filter(|line| line.starts_with('?')).count()
        };
        let blobless = clone("blobless", &["--filter=blob:none", "--no-checkout"]);
        let before = missing(&blobless);
        assert!(before >= 40, "{before}");
        // The checkout fetches its files.
        blobless.git(&["checkout", "--quiet", "main"]);
        assert_eq!(std::fs::read_to_string(blobless.path().join("file7")).unwrap(), "7\n".repeat(100));
        assert!(missing(&blobless) < before);
        assert_eq!(blobless.git(&["show", "main~10:day"]), "10");
        let limited = clone("limited", &["--filter=blob:limit=100", "--no-checkout"]);
        // `--filter` omits the 20 larger files. The files `day` are below the limit of 100 bytes.
        assert!(missing(&limited) >= 20);
        let treeless = clone("treeless", &["--filter=tree:0", "--no-checkout"]);
        treeless.git(&["checkout", "--quiet", "main"]);
        assert_eq!(std::fs::read_to_string(treeless.path().join("day")).unwrap(), "20");
    }
    // In version 2, `--negotiate-only` asks which commits client and server have in common.
    let common =
        work.git(&["-c", "protocol.version=2", "fetch", "--negotiate-only", "--negotiation-tip=main", "origin"]);
    assert_eq!(common, work.git(&["rev-parse", "main"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_of_several_refs() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let head = work.commit("a", b"1");
    work.git(&["branch", "other"]);
    work.git(&["tag", "light"]);
    work.git(&["tag", "-a", "-m", "Annotated", "annotated"]);
    // Push all refs to an empty repository, and push again without a change.
    work.git(&["push", "--quiet", "--all", "origin"]);
    work.git(&["push", "--quiet", "--tags", "origin"]);
    assert!(work.git(&["push", "--porcelain", "--all", "origin"]).contains("[up to date]"));
    let mirror = kit.clone(&kit.url(&kit.token, "app"), "mirror", &["--mirror"]);
    let refs =
        |clone: &Clone| clone.git(&["for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags"]);
    assert_eq!(refs(&mirror), refs(&work));
    // A mirror deletes what it does not have, and creates other refs.
    mirror.git(&["update-ref", "-d", "refs/heads/other"]);
    mirror.git(&["update-ref", "refs/notes/commits", &head]);
    mirror.git(&["push", "--quiet", "--mirror", "origin"]);
    let listed = work.git(&["ls-remote", "--refs", "origin"]);
    let names: Vec<&str> = listed.lines().map(|line| line.split('\t').nth(1).unwrap()).collect();
    assert_eq!(names, ["refs/heads/main", "refs/notes/commits", "refs/tags/annotated", "refs/tags/light"]);

    // Each push has two updates, of which the server refuses one. With `--atomic`, no update takes effect. Without it,
    // the other one does.
    let next = work.commit("a", b"2");
    let refused = work.fails(&["push", "--atomic", "origin", ":main", "main:new"]);
    assert!(refused.contains("deletion of the current branch prohibited"), "{refused}");
    // By default, git also explains a setting, which the user cannot change.
    assert!(!refused.contains("receive.denyDeleteCurrent"), "{refused}");
    assert_eq!(work.git(&["ls-remote", "origin", "new"]), "");
    work.fails(&["push", "--quiet", "origin", ":main", "main:new"]);
    assert!(work.git(&["ls-remote", "origin", "new"]).starts_with(&next));
    work.git(&["push", "--quiet", "origin", "main"]);
    // A lease on an outdated value is refused by the client, and an outdated old value by the server.
    let lease = format!("--force-with-lease=main:{head}");
    assert!(work.fails(&["push", &lease, "origin", "main~1:main"]).contains("stale info"));
    work.git(&["push", "--quiet", "-o", "ci.skip", "-o", "a=b", "origin", "main:options"]);

    // Signed pushes are not offered.
    assert!(work.fails(&["push", "--signed", "origin", "main:signed"]).contains("does not support --signed push"));
    work.git(&["push", "--quiet", "--signed=if-asked", "origin", "main:signed"]);
    // A repository with SHA-256 ids cannot be pushed.
    let sha256 = kit.init("sha256");
    std::fs::remove_dir_all(sha256.path().join(".git")).unwrap();
    sha256.git(&["init", "--quiet", "--initial-branch=main", "--object-format=sha256"]);
    sha256.commit("a", b"1");
    let refused = sha256.fails(&["push", &kit.url(&kit.token, "app"), "main:sha256"]);
    assert!(refused.contains("does not support") || refused.contains("mismatched"), "{refused}");
    // Seven pushes succeeded, with ten updates: two branches, two tags, two of the mirror, and one by each of the four
    // other pushes.
    let listed = kit.ref_updates(10).await;
    assert_eq!(listed.len(), 10, "{}", json!(listed));
}

/// 20,000 refs: the advertisement has 1.4 MB, and the client's requests are long.
#[tokio::test(flavor = "multi_thread")]
async fn long_requests_are_compressed_or_chunked() {
    let kit = Kit::start().await;
    let work = history(&kit).await;
    let bare = kit.bare().await;
    let commits = work.git(&["rev-list", "main"]);
    let mut refs = String::new();
    for (number, commit) in (0..20_000).zip(commits.lines().cycle()) {
        writeln!(refs, "create refs/tags/t{number:05} {commit}").unwrap();
    }
    work.feed(&["--git-dir", bare.to_str().unwrap(), "update-ref", "--stdin"], &refs);
    work.git(&["--git-dir", bare.to_str().unwrap(), "pack-refs", "--all"]);
    let url = kit.url(&kit.token, "app");
    for version in VERSIONS {
        let protocol = format!("protocol.version={version}");
        let empty = kit.init(&format!("refs{version}"));
        let trace =
            traced(&empty, &["-c", &protocol, "fetch", "--quiet", "--no-tags", &url, "refs/tags/t00*:refs/tags/t00*"]);
        assert_eq!(empty.git(&["for-each-ref", "refs/tags"]).lines().count(), 1000);
        assert!(trace.contains("content-encoding: gzip"), "version {version}");
        assert_eq!(empty.git(&["ls-remote", &url]).lines().count(), 20_002);
    }
    // The client sends a body in chunks if it is longer than its buffer.
    let large: Vec<u8> = (0..300_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    work.commit("large", &large);
    let trace = traced(&work, &["-c", "http.postBuffer=65536", "push", "--quiet", "origin", "main"]);
    assert!(trace.contains("transfer-encoding: chunked"));
    let other = kit.clone(&url, "other", &["--no-tags"]);
    assert_eq!(std::fs::read(other.path().join("large")).unwrap(), large);
    // The older protocol is refused with a reason.
    let mut dumb = work.command(&["ls-remote", "origin"]);
    assert!(!dumb.env("GIT_SMART_HTTP", "0").output().unwrap().status.success());
}

/// A request that waits for `100 Continue` before its body, with a compressed body in chunks.
#[tokio::test(flavor = "multi_thread")]
async fn addresses_and_bodies_of_requests() {
    let kit = Kit::start().await;
    let work = history(&kit).await;
    // The URL also works without the suffix `.git`.
    let url = kit.url(&kit.token, "app");
    let short = url.strip_suffix(".git").unwrap();
    let clone = kit.clone(short, "short", &[]);
    let head = clone.commit("short", b"1");
    clone.git(&["push", "--quiet", "origin", "main"]);
    assert!(work.git(&["ls-remote", "origin", "main"]).starts_with(&head));
    assert!(work.fails(&["ls-remote", &url.replace("/site/", "/Site/")]).contains("not found"));
    let wrong = kit.url("svc_pat_wrong", "app");
    assert!(work.fails(&["ls-remote", &wrong]).contains("Authentication failed"));

    let want = format!("want {head} ofs-delta agent=test\n");
    let body = format!("{:04x}{want}00000009done\n", want.len() + 4);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(body.as_bytes()).unwrap();
    let compressed = encoder.finish().unwrap();
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", kit.node.http)).await.unwrap();
    let password = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(format!("git:{}", kit.token))
    };
    let request = format!(
        "POST /ada/site/app.git/git-upload-pack HTTP/1.1\r\nhost: x\r\nauthorization: Basic {password}\r\n\
         content-type: application/x-git-upload-pack-request\r\ncontent-encoding: gzip\r\n\
         transfer-encoding: chunked\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 100");
    for part in compressed.chunks(7) {
        stream.write_all(format!("{:x}\r\n", part.len()).as_bytes()).await.unwrap();
        stream.write_all(part).await.unwrap();
        stream.write_all(b"\r\n").await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    let text = String::from_utf8_lossy(&response);
    assert!(text.contains("HTTP/1.1 200") && text.contains("0008NAK") && text.contains("PACK"), "{text}");

    // The content type is checked, and a body that is not compressed as announced ends the exchange.
    let endpoint = format!("http://127.0.0.1:{}/ada/site/app.git/git-upload-pack", kit.node.http);
    let post = || client().post(&endpoint).basic_auth("git", Some(&kit.token));
    assert_eq!(post().body(body.clone()).send().await.unwrap().status(), 415);
    let typed = || post().header("content-type", "application/x-git-upload-pack-request");
    let malformed = typed().header("content-encoding", "gzip").body(body.clone()).send().await.unwrap();
    assert!(!malformed.bytes().await.unwrap_or_default().windows(4).any(|window| window == b"PACK"));
    let unknown = typed().header("content-encoding", "br").body(body).send().await.unwrap();
    assert_eq!(unknown.status(), 415);
    // The names of codings are case-insensitive (RFC 9110, section 8.4.1).
    let upper = typed().header("content-encoding", "GZip").body(compressed).send().await.unwrap();
    assert!(upper.bytes().await.unwrap().windows(4).any(|window| window == b"PACK"));
    let refs = endpoint.replace("git-upload-pack", "info/refs?service=git-upload-pack");
    for (method, address, allowed) in
        [("GET", &endpoint, "POST"), ("DELETE", &endpoint, "POST"), ("POST", &refs, "GET")]
    {
        let refused = client().request(method.parse().unwrap(), address).send().await.unwrap();
        assert_eq!(refused.status(), 405, "{method} {address}");
        assert_eq!(refused.headers()["allow"], allowed, "{method} {address}");
    }
}
