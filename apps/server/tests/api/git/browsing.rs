//! Browsing: refs, directories, files and commits over the API.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{Kit, REPO, REPOS};
use crate::support::{client, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn contents_are_browsed() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let browse = async |path: &str| kit.ada.get(&format!("{REPO}/{path}")).await;
    let empty = browse("refs").await;
    assert_eq!(empty.expect(200), &json!({ "defaultBranch": "main", "branches": [], "tags": [] }));
    for path in ["tree", "blob?path=a", "commits"] {
        browse(path).await.expect_error(404, "no_ref");
    }
    let work = kit.init("work");
    let first = work.commit("src/main.rs", b"fn main() {}\n");
    std::os::unix::fs::symlink("src/main.rs", work.path().join("link")).unwrap();
    std::fs::write(work.path().join(OsStr::from_bytes(b"caf\xe9")), "latin1").unwrap();
    std::fs::write(work.path().join("binary"), b"a\0b").unwrap();
    std::fs::write(work.path().join("large"), vec![b'x'; (1 << 20) + 1]).unwrap();
    let second = work.commit("README.md", "# App \u{e9}\n".as_bytes());
    work.git(&["tag", "-a", "v1", "-m", "Version 1", &first]);
    work.git(&["push", "--quiet", "origin", "main", "v1"]);

    let refs = browse("refs").await;
    assert_eq!(refs.expect(200)["branches"], json!([{ "name": "main", "commit": second }]));
    assert_eq!(refs.expect(200)["tags"], json!([{ "name": "v1", "commit": first }]));

    let tree = browse("tree").await;
    let tree = tree.expect(200);
    assert_eq!((&tree["commit"], &tree["path"], &tree["truncated"]), (&json!(second), &json!(""), &json!(false)));
    let entries: Vec<_> = tree["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| json!([it["name"], it["type"], it["mode"], it["size"]]))
        .collect();
    assert_eq!(
        entries,
        [
            json!(["README.md", "blob", "100644", 9]),
            json!(["binary", "blob", "100644", 3]),
            json!(["caf\\xe9", "blob", "100644", 6]),
            json!(["large", "blob", "100644", 1_048_577]),
            json!(["link", "symlink", "120000", null]),
            json!(["src", "tree", "040000", null]),
        ]
    );
    for reference in ["v1", &first, &first[..7], "main"] {
        let tree = browse(&format!("tree?ref={reference}&path=src")).await;
        assert_eq!(tree.expect(200)["entries"][0]["name"], "main.rs", "{reference}");
    }
    let blob = async |path: &str| browse(&format!("blob?path={path}")).await.expect(200).clone();
    assert_eq!(blob("README.md").await["contents"], "# App \u{e9}\n");
    assert_eq!(blob("link").await["contents"], "src/main.rs");
    assert_eq!(blob("caf%5Cxe9").await["contents"], "latin1");
    let flags = |blob: &serde_json::Value| json!([blob["size"], blob["tooLarge"], blob["binary"], blob["contents"]]);
    assert_eq!(flags(&blob("binary").await), json!([3, false, true, null]));
    assert_eq!(flags(&blob("large").await), json!([1_048_577, true, false, null]));

    for (path, code) in [
        ("tree?path=a/../..", "no_path"),
        ("tree?path=README.md", "no_path"),
        ("blob?path=src", "no_path"),
        ("blob?path=missing", "no_path"),
        ("tree?ref=missing", "no_ref"),
        ("tree?ref=abcdef0", "no_ref"),
    ] {
        browse(path).await.expect_error(404, code);
    }
    for path in ["tree?ref=main~1", "tree?ref=main%5E", "tree?ref=a..b", "commits?limit=0"] {
        browse(path).await.expect_error(400, "bad_request");
    }
    let commits = browse("commits").await;
    let oids: Vec<_> = commits.expect(200)["items"].as_array().unwrap().iter().map(|it| it["oid"].clone()).collect();
    assert_eq!(oids, [json!(second), json!(first)]);
    let commit = &commits.expect(200)["items"][0];
    assert_eq!((&commit["message"], &commit["parents"]), (&json!("Change README.md\n"), &json!([first])));
    assert_eq!((&commit["author"]["name"], &commit["author"]["email"]), (&json!("Ada"), &json!("ada@example.org")));
    let of_path = browse("commits?path=src&limit=5").await;
    assert_eq!(of_path.expect(200)["items"][0]["oid"], first);
}

#[tokio::test(flavor = "multi_thread")]
async fn history_of_a_deleted_or_renamed_path_is_listed() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let raw = [&b"caf\xe9"[..], b"a\\x2db/caf\xe9", b"\xff"].map(|name| work.path().join(OsStr::from_bytes(name)));
    std::fs::create_dir(work.path().join("a\\x2db")).unwrap();
    for file in &raw {
        std::fs::write(file, "").unwrap();
    }
    let first = work.commit("gone", b"1");
    work.commit("lib/old.rs", b"1");
    let literal = work.commit("\\xff", b"1");
    for file in &raw {
        std::fs::remove_file(file).unwrap();
    }
    work.git(&["rm", "--quiet", "gone", "\\xff"]);
    work.git(&["mv", "lib", "src"]);
    // The folder is a file now.
    let last = work.commit("lib", b"1");
    work.commit("README.md", b"1");
    work.git(&["push", "--quiet", "origin", "main"]);

    let browse = async |query: &str| kit.ada.get(&format!("{REPO}/commits?{query}")).await;
    let log = |path: &str| work.git(&["log", "--format=%H", "--", path]);
    for (path, expected) in [
        ("gone", log("gone")),
        ("lib/old.rs", log("lib/old.rs")),
        ("caf%5Cxe9", format!("{last}\n{first}")),
        ("a%5Cx2db/caf%5Cxe9", format!("{last}\n{first}")),
        // The literal name precedes the escaped one.
        ("%5Cxff", format!("{last}\n{literal}")),
    ] {
        let (mut listed, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = browse(&format!("path={path}&limit=1{cursor}")).await.expect(200).clone();
            listed.push(page["items"][0]["oid"].as_str().unwrap().to_owned());
            let Some(next) = page["nextCursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(listed.join("\n"), expected, "{path}");
        assert_eq!(listed.len(), 2, "{path}");
    }
    for path in ["missing", "gone/1", "src/old.rs/1", "gone/../.."] {
        browse(&format!("path={path}")).await.expect_error(404, "no_path");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_of_tags_are_followed_up_to_a_limit() {
    const TAGS: usize = 100;
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let commit = work.commit("a", b"a");
    let (mut tags, mut target) = (String::new(), commit.clone());
    for number in 1..=TAGS + 1 {
        let tagger = "tagger Ada <ada@example.org> 1704110400 +0000";
        write!(tags, "tag t{number}\nmark :{number}\nfrom {target}\n{tagger}\ndata 1\nx\n").unwrap();
        target = format!(":{number}");
    }
    work.feed(&["fast-import", "--quiet"], &tags);
    let (last, further) = (format!("t{TAGS}"), format!("t{}", TAGS + 1));
    work.git(&["push", "--quiet", "origin", "main", &last, &further]);
    let refs = kit.ada.get(&format!("{REPO}/refs")).await;
    assert_eq!(refs.expect(200)["tags"], json!([{ "name": last, "commit": commit }]));
    kit.ada.get(&format!("{REPO}/tree?ref={last}")).await.expect(200);
    kit.ada.get(&format!("{REPO}/tree?ref={further}")).await.expect_error(404, "no_ref");
}

/// Directories, a file and a history at their limits, and a branch with a long name.
#[tokio::test(flavor = "multi_thread")]
async fn contents_are_limited_and_commits_are_paged() {
    const COMMITS: usize = 230;
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let mut files = String::new();
    let mut add = |path: &str, text: &str| write!(files, "M 644 inline {path}\ndata {}\n{text}\n", text.len()).unwrap();
    for number in 0..1001 {
        add(&format!("over/{number:04}"), "");
        // In JSON, each of these names has more than 9,000 bytes, so 1,000 of them exceed the limit of a response.
        add(&format!("wide/{number:04}{}", "\u{1}".repeat(1500)), "");
    }
    for number in 0..1000 {
        add(&format!("full/{number:04}"), "");
    }
    add("exact", &"x".repeat(1 << 20));
    let mut history = String::new();
    for number in 0..COMMITS {
        let time = 1_704_110_400 + number;
        write!(history, "commit refs/heads/main\ncommitter Ada <ada@example.org> {time} +0000\ndata 1\nx\n").unwrap();
        history.push_str(if number == 0 { &files } else { "" });
        // Every second commit changes this file.
        write!(history, "M 644 inline log\ndata 4\n{:04}\n", number / 2).unwrap();
    }
    work.feed(&["fast-import", "--quiet"], &history);
    let long = ["x"; 4].map(|part| part.repeat(200)).join("/");
    work.git(&["push", "--quiet", "origin", "main", &format!("main:{long}")]);
    eventually("the control plane has the updates", async || {
        let updates = kit.ada.get(&format!("{REPO}/ref-updates")).await;
        (updates.expect(200)["items"].as_array().unwrap().len() == 2).then_some(())
    })
    .await;

    let browse = async |path: &str| kit.ada.get(&format!("{REPO}/{path}")).await.expect(200).clone();
    let tree = async |path: &str| {
        let tree = browse(&format!("tree?path={path}")).await;
        (tree["entries"].as_array().unwrap().len(), tree["truncated"].as_bool().unwrap())
    };
    assert_eq!((tree("full").await, tree("over").await), ((1000, false), (1000, true)));
    let (entries, truncated) = tree("wide").await;
    assert!(truncated && (500..1000).contains(&entries), "{entries}");
    let exact = browse("blob?path=exact").await;
    assert_eq!((&exact["tooLarge"], exact["contents"].as_str().unwrap().len()), (&json!(false), 1 << 20));
    assert_eq!(browse("refs").await["branches"][1]["name"], long);
    assert_eq!(browse(&format!("tree?ref={long}&path=full")).await["truncated"], false);

    for path in ["commits", "commits?limit=201", "commits?limit=999999999999"] {
        let page = browse(path).await;
        assert_eq!(page["items"].as_array().unwrap().len(), 200, "{path}");
        assert!(page["nextCursor"].is_string(), "{path}");
    }
    let oids = |revisions: &[&str]| -> Vec<String> {
        work.git(&[&["rev-list", "origin/main"], revisions].concat()).lines().map(str::to_owned).collect()
    };
    for (query, expected) in [("limit=100", oids(&[])), ("limit=50&path=log", oids(&["--", "log"]))] {
        let (mut listed, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = browse(&format!("commits?ref={long}&{query}{cursor}")).await;
            listed.extend(page["items"].as_array().unwrap().iter().map(|it| it["oid"].as_str().unwrap().to_owned()));
            let Some(next) = page["nextCursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
            // The pages continue the same history after a push.
            let commit = work.git(&["commit-tree", "-m", "New", "-p", "origin/main", "origin/main^{tree}"]);
            work.git(&["push", "--quiet", "--force", "origin", &format!("{commit}:refs/heads/{long}")]);
        }
        assert_eq!(listed, expected, "{query}");
        work.git(&["push", "--quiet", "--force", "origin", &format!("origin/main:refs/heads/{long}")]);
    }
    assert_eq!(browse("commits?limit=200&path=exact").await["nextCursor"], Value::Null);
    // Positions behind the end of the history are valid.
    let end = json!({ "start": oids(&[])[0], "skip": u32::MAX }).to_string();
    let end = URL_SAFE_NO_PAD.encode(end);
    for query in ["", "&path=log"] {
        let page = browse(&format!("commits?cursor={end}{query}")).await;
        assert_eq!(page, json!({ "items": [], "nextCursor": null }), "{query}");
    }
    // The second cursor names a branch as the start of the history.
    for cursor in ["x", "eyJzdGFydCI6Im1haW4iLCJza2lwIjowfQ"] {
        kit.ada.get(&format!("{REPO}/commits?cursor={cursor}")).await.expect_error(400, "bad_request");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_commits_are_cut_between_characters() {
    const PARENTS: usize = 1000;
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let (name, email) = (format!("x{}", "\u{e9}".repeat(512)), "\u{e9}".repeat(513));
    let message = format!("x{}", "\u{e9}".repeat(40_000));
    // In ISO-2022-JP, this character has two bytes, and in UTF-8 three.
    let japanese = format!("\x1b$B{}", "$\"".repeat(6000));
    let mut history = String::new();
    for mark in 1..=PARENTS + 1 {
        let time = 1_704_110_400 + mark;
        write!(history, "commit refs/heads/main\nmark :{mark}\n").unwrap();
        write!(history, "committer Ada <ada@example.org> {time} +0000\ndata 1\nx\n").unwrap();
    }
    write!(history, "commit refs/heads/main\ncommitter {name} <{email}> 1704120000 +0000\n").unwrap();
    write!(history, "data {}\n{message}\n", message.len()).unwrap();
    for mark in 1..=PARENTS {
        writeln!(history, "merge :{mark}").unwrap();
    }
    write!(history, "commit refs/heads/main\ncommitter Ada <ada@example.org> 1704120001 +0000\n").unwrap();
    write!(history, "encoding ISO-2022-JP\ndata {}\n{japanese}\n", japanese.len()).unwrap();
    work.feed(&["fast-import", "--quiet"], &history);
    work.git(&["push", "--quiet", "origin", "main"]);

    let page = kit.ada.get(&format!("{REPO}/commits?limit=2")).await.expect(200).clone();
    assert_eq!(page["items"][0]["message"], "\u{3042}".repeat(5461));
    let long = &page["items"][1];
    assert_eq!(long["message"], format!("x{}", "\u{e9}".repeat(8191)));
    for person in ["author", "committer"] {
        let expected = (format!("x{}", "\u{e9}".repeat(511)), "\u{e9}".repeat(512));
        assert_eq!((&long[person]["name"], &long[person]["email"]), (&json!(expected.0), &json!(expected.1)));
    }
    assert_eq!(long["parents"].as_array().unwrap().len(), PARENTS);
}

/// Each read waits for a node that does not respond, until the test closes its connections.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_reads_of_a_user_are_limited() {
    const MAX_READS: usize = 8;
    let mut kit = Kit::start().await;
    kit.ada.post(REPOS, json!({ "name": "app" })).await.expect(201);
    kit.node.kill();
    let node = TcpListener::bind("127.0.0.1:0").unwrap();
    node.set_nonblocking(true).unwrap();
    let address = node.local_addr().unwrap();
    kit.app.db_execute(&format!("UPDATE git.nodes SET url = 'http://{address}'")).await.unwrap();
    let tree = format!("{REPO}/tree");
    let read = |_| {
        let (ada, tree) = (kit.ada.clone(), tree.clone());
        tokio::spawn(async move { ada.get(&tree).await })
    };
    let (reads, mut connections) = ((0..MAX_READS).map(read).collect::<Vec<_>>(), Vec::new());
    eventually("the reads wait for the node", async || {
        connections.extend(std::iter::from_fn(|| node.accept().ok()));
        (connections.len() == MAX_READS).then_some(())
    })
    .await;
    let refused = kit.ada.get(&tree).await;
    assert_eq!(refused.expect_error(429, "rate_limited")["details"], json!({ "limit": MAX_READS, "of": "user" }));
    assert_eq!(refused.header("retry-after"), "5");
    kit.ada.get(REPO).await.expect(200);
    drop((node, connections));
    for read in reads {
        read.await.unwrap().expect_error(503, "git_unreachable");
    }
    kit.ada.get(&tree).await.expect_error(503, "git_unreachable");
}

/// The server keeps a response in memory until its client has read it.
#[tokio::test(flavor = "multi_thread")]
async fn read_counts_until_its_response_is_sent() {
    let kit = Kit::start().await;
    kit.ada.post(REPOS, json!({ "name": "app", "visibility": "public" })).await.expect(201);
    let work = kit.init("work");
    let commit = work.commit("a", b"a");
    work.git(&["push", "--quiet", "origin", "main"]);
    // A list of 8 MiB is larger than the buffers of a connection.
    let name = ["x"; 5].map(|part| part.repeat(200)).join("/");
    let mut packed = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
    for number in 0..8000 {
        writeln!(packed, "{commit} refs/heads/{number:04}/{name}").unwrap();
    }
    std::fs::write(kit.bare().await.join("packed-refs"), packed).unwrap();
    let (refs, tree) = (format!("{REPO}/refs"), format!("{REPO}/tree"));
    let (client, mut unread) = (client(), Vec::new());
    // `refs` counts as two reads, and a user can have eight.
    for _ in 0..4 {
        let request = client.get(format!("{}{refs}", kit.app.base)).bearer_auth(kit.ada.token.as_ref().unwrap());
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        unread.push(response);
    }
    kit.ada.get(&tree).await.expect_error(429, "rate_limited");
    kit.app.sign_in("eve").await.get(&tree).await.expect(200);
    drop(unread);
    let read = eventually("the server notices that the connections are closed", async || {
        Some(kit.ada.get(&refs).await).filter(|response| response.status == 200)
    })
    .await;
    assert!(read.bytes.len() > 8_000_000, "{}", read.bytes.len());
    assert!(read.body["branches"].is_array() && read.header("transfer-encoding") == "chunked");
}

/// The error shows whether the node is down or does not exist.
#[tokio::test(flavor = "multi_thread")]
async fn missing_node_is_named() {
    let mut kit = Kit::start().await;
    kit.create("app").await;
    kit.node.kill();
    for path in ["refs", "tree", "blob?path=a", "commits"] {
        kit.ada.get(&format!("{REPO}/{path}")).await.expect_error(503, "git_unreachable");
    }
    kit.ada.get(REPO).await.expect(200);
    kit.app.db_execute("DELETE FROM git.nodes").await.unwrap();
    kit.ada.get(&format!("{REPO}/refs")).await.expect_error(503, "git_unavailable");
}
