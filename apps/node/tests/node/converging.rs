//! The reconcile loop: deploys, restarts, outages and bad bundles.

use std::fs;
use std::time::Duration;

use actix_web::web::Bytes;
use node::Node;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::control_plane::{ControlPlane, archive, sha256};
use crate::running::{Dir, RunningNode, config, until};

const HOST: &str = "shop.localhost";

async fn started() -> (ControlPlane, Dir, RunningNode) {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    core.deploy("shop", &[("assets/index.html", b"first")]);
    core.deploy("blog", &[("assets/index.html", b"posts")]);
    let node = RunningNode::start(&core, &dir).await;
    node.visitor.sees(HOST, "/", 200, "first").await;
    node.visitor.sees("blog.localhost", "/", 200, "posts").await;
    (core, dir, node)
}

/// Returns a content that is larger than the socket buffers between node and client.
fn large() -> Vec<u8> {
    (0..32_u32 << 20).map(|number| (number % 251) as u8).collect()
}

/// Requests the large asset and reads the first bytes.
async fn begin_large(node: &RunningNode) -> (TcpStream, Vec<u8>) {
    let request = format!("GET /large HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    let mut reader = node.visitor.raw(&request).await;
    let mut answer = vec![0; 1000];
    reader.read_exact(&mut answer).await.unwrap();
    (reader, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn new_version_replaces_the_old_and_removed_site_is_unknown() {
    let (core, _dir, node) = started().await;
    core.deploy("shop", &[("assets/index.html", b"second"), ("assets/new.txt", b"new")]);
    node.visitor.sees(HOST, "/", 200, "second").await;
    node.visitor.sees(HOST, "/new.txt", 200, "new").await;
    core.remove("shop");
    node.visitor.sees(HOST, "/", 404, "unknown_hostname").await;
    assert_eq!(node.visitor.get("blog.localhost", "/").await.status, 200);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_part_is_ignored() {
    let (core, _dir, node) = started().await;
    core.set_part("shop", "future-kind", json!({ "a": 1 }));
    core.set_part("prj_with_unknown_parts_only", "future-kind", json!({ "a": 1 }));
    core.deploy("shop", &[("assets/index.html", b"second")]);
    node.visitor.sees(HOST, "/", 200, "second").await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_or_unavailable_part_keeps_its_last_state() {
    let malformed = || json!({ "hostnames": "not a list" });
    let (core, dir, node) = started().await;
    core.set_part("shop", "site", malformed());
    core.set_part("shop", "secrets", json!("malformed"));
    core.deploy("blog", &[("assets/index.html", b"more posts")]);
    node.visitor.sees("blog.localhost", "/", 200, "more posts").await;
    assert_eq!(node.visitor.get(HOST, "/").await.body, "first");
    node.stop().await;

    // The full state contains a malformed site, an unavailable one and a new one.
    core.remove("shop");
    core.set_part("shop", "site", malformed());
    core.make_unavailable("blog", "site");
    core.deploy("new", &[("assets/index.html", b"new")]);
    let node = RunningNode::start(&core, &dir).await;
    node.visitor.sees("new.localhost", "/", 200, "new").await;
    assert_eq!(node.visitor.get(HOST, "/").await.body, "first");
    assert_eq!(node.visitor.get("blog.localhost", "/").await.body, "more posts");
    core.set_part("shop", "site", Value::Null);
    core.make_available();
    core.deploy("blog", &[("assets/index.html", b"last posts")]);
    node.visitor.sees(HOST, "/", 404, "unknown_hostname").await;
    node.visitor.sees("blog.localhost", "/", 200, "last posts").await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_that_cannot_be_saved_is_retried_and_does_not_affect_others() {
    let (core, dir, node) = started().await;
    let file = |project: &str| dir.path().join("environments").join(sha256(project.as_bytes()));
    // The save fails, because a file cannot replace a directory.
    fs::create_dir(file("blocked")).unwrap();
    core.deploy("blocked", &[("assets/index.html", b"served")]);
    node.visitor.sees("blocked.localhost", "/", 200, "served").await;
    core.deploy("other", &[("assets/index.html", b"other")]);
    until("the save of the placements", || {
        let placements = fs::read_to_string(dir.path().join("desired.json")).unwrap();
        placements.contains("blocked.localhost") && placements.contains("other.localhost")
    })
    .await;
    until("the save of the other environment", || file("other").is_file()).await;
    fs::remove_dir(file("blocked")).unwrap();
    until("the retry", || file("blocked").is_file()).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_in_flight_finishes_on_its_version() {
    let (core, _dir, node) = started().await;
    let large = large();
    core.deploy("shop", &[("assets/large", &large)]);
    node.visitor.sees(HOST, "/", 404, "no page").await;
    let (mut reader, mut answer) = begin_large(&node).await;

    core.deploy("shop", &[("assets/index.html", b"second")]);
    node.visitor.sees(HOST, "/", 200, "second").await;
    node.visitor.sees(HOST, "/large", 404, "").await;

    reader.read_to_end(&mut answer).await.unwrap();
    assert!(answer.ends_with(&large), "{} bytes", answer.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_waits_for_requests_in_flight() {
    let (core, _dir, node) = started().await;
    let large = large();
    core.deploy("shop", &[("assets/large", &large)]);
    node.visitor.sees(HOST, "/", 404, "no page").await;
    let (mut reader, mut answer) = begin_large(&node).await;
    let stopped = tokio::spawn(node.stop());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!stopped.is_finished());
    reader.read_to_end(&mut answer).await.unwrap();
    assert!(answer.ends_with(&large), "{} bytes", answer.len());
    stopped.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn corrupt_bundle_is_rejected_and_the_previous_version_is_served() {
    let (core, _dir, node) = started().await;
    let good = archive(&[("assets/index.html", b"second")]);
    let tampered = archive(&[("assets/index.html", b"tamper")]);
    let bundle = core.set_desired("shop", &[HOST], &good);
    for bad in [tampered, good.slice(..good.len() - 1), Bytes::from([&good[..], b"more"].concat())] {
        let tried = core.fetches_of(&bundle);
        core.put(&bundle, bad);
        while core.fetches_of(&bundle) < tried + 2 {
            assert_eq!(node.visitor.get(HOST, "/").await.body, "first");
        }
    }
    core.deploy("blog", &[("assets/index.html", b"more posts")]);
    node.visitor.sees("blog.localhost", "/", 200, "more posts").await;
    assert_eq!(node.visitor.get(HOST, "/").await.body, "first");
    core.put(&bundle, good);
    node.visitor.sees(HOST, "/", 200, "second").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_with_matching_digest_that_is_not_an_archive_is_rejected() {
    let (core, _dir, node) = started().await;
    let invalid = Bytes::from_static(b"not gzip");
    let bundle = core.set_desired("shop", &[HOST], &invalid);
    core.put(&bundle, invalid);
    while core.fetches_of(&bundle) < 2 {
        assert_eq!(node.visitor.get(HOST, "/").await.body, "first");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostnames_change_immediately_while_the_bundle_is_unavailable() {
    let (core, _dir, node) = started().await;
    core.set_desired("shop", &["moved.localhost"], &archive(&[("assets/index.html", b"second")]));
    node.visitor.sees("moved.localhost", "/", 200, "first").await;
    node.visitor.sees(HOST, "/", 404, "unknown_hostname").await;
    core.set_desired("new", &["new.localhost"], &archive(&[("assets/index.html", b"third")]));
    node.visitor.sees("new.localhost", "/", 503, "being deployed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_serves_while_the_control_plane_is_down() {
    let (mut core, _dir, node) = started().await;
    core.stop().await;
    assert_eq!(node.visitor.get(HOST, "/").await.body, "first");
    core.deploy("shop", &[("assets/index.html", b"second")]);
    core.remove("blog");
    core.restart().await;
    node.visitor.sees(HOST, "/", 200, "second").await;
    node.visitor.sees("blog.localhost", "/", 404, "unknown_hostname").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_state_of_several_pages_is_applied_as_a_whole() {
    let (core, dir, node) = started().await;
    core.deploy("docs", &[("assets/index.html", b"pages")]);
    node.visitor.sees("docs.localhost", "/", 200, "pages").await;
    node.stop().await;
    core.remove("blog");
    core.set_page_size(1);
    core.fail_later_pages(true);
    let node = RunningNode::start(&core, &dir).await;
    until("two relists have failed", || core.failed_pages() > 1).await;
    for host in [HOST, "docs.localhost", "blog.localhost"] {
        assert_eq!(node.visitor.get(host, "/").await.status, 200, "{host}");
    }
    core.fail_later_pages(false);
    node.visitor.sees("blog.localhost", "/", 404, "unknown_hostname").await;
    for (host, page) in [(HOST, "first"), ("docs.localhost", "pages")] {
        assert_eq!(node.visitor.get(host, "/").await.body, page);
    }
    // Changes have pages, too.
    core.deploy("blog", &[("assets/index.html", b"again")]);
    core.deploy("shop", &[("assets/index.html", b"second")]);
    node.visitor.sees("blog.localhost", "/", 200, "again").await;
    node.visitor.sees(HOST, "/", 200, "second").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_node_serves_during_an_outage_and_fetches_no_bundle_again() {
    let (mut core, dir, node) = started().await;
    // An unavailable bundle must not replace the previous version.
    core.set_desired("blog", &["blog.localhost"], &archive(&[("assets/index.html", b"absent")]));
    core.set_desired("gone", &["gone.localhost"], &archive(&[("assets/index.html", b"absent")]));
    node.visitor.sees("gone.localhost", "/", 503, "being deployed").await;
    node.stop().await;
    core.stop().await;

    let node = RunningNode::start(&core, &dir).await;
    assert_eq!(node.visitor.get(HOST, "/").await.body, "first");
    assert_eq!(node.visitor.get("blog.localhost", "/").await.body, "posts");
    assert_eq!(node.visitor.get("gone.localhost", "/").await.status, 503);

    core.restart().await;
    let second = core.deploy("shop", &[("assets/index.html", b"second")]);
    node.visitor.sees(HOST, "/", 200, "second").await;
    let first = core.deploy("shop", &[("assets/index.html", b"first")]);
    node.visitor.sees(HOST, "/", 200, "first").await;
    assert_eq!((core.fetches_of(&first), core.fetches_of(&second)), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn restore_of_the_control_plane_from_a_backup_is_applied() {
    let (core, _dir, node) = started().await;
    core.deploy("shop", &[("assets/index.html", b"second")]);
    node.visitor.sees(HOST, "/", 200, "second").await;
    core.restore_backup();
    node.visitor.sees("blog.localhost", "/", 404, "unknown_hostname").await;
    core.deploy("shop", &[("assets/index.html", b"restored")]);
    node.visitor.sees(HOST, "/", 200, "restored").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_is_locked_and_damaged_files_are_recovered() {
    let (core, dir, node) = started().await;
    let bundle = core.deploy("shop", &[("assets/index.html", b"second")]);
    node.visitor.sees(HOST, "/", 200, "second").await;
    let index = dir.path().join(format!("sites/{}.json", bundle.strip_prefix("sha256:").unwrap()));
    let blob = sha256(b"second");
    assert_eq!(std::fs::read(dir.path().join("blobs").join(&blob[..2]).join(&blob)).unwrap(), b"second");
    let error = Node::start(&config(&core, &dir)).err().unwrap();
    assert!(format!("{error:#}").ends_with("another node uses it"), "{error:#}");
    node.stop().await;

    until("removal of temporary files", || std::fs::read_dir(dir.path().join("tmp")).unwrap().next().is_none()).await;
    std::fs::write(index, "{").unwrap();
    std::fs::write(dir.path().join("desired.json"), "{").unwrap();
    let node = RunningNode::start(&core, &dir).await;
    node.visitor.sees(HOST, "/", 200, "second").await;
    assert_eq!(core.fetches_of(&bundle), 2);
}
