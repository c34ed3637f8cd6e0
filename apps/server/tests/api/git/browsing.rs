//! Browsing: refs, directories, files and commits over the API.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::json;

use super::{Kit, REPO};

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
