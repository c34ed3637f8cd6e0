//! How a node comes to serve what it is to serve, whatever happens meanwhile.

use std::time::Duration;

use actix_web::web::Bytes;
use node::Node;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::control_plane::{ControlPlane, archive, sha256};
use crate::running::{Dir, Running, config, until};

const HOST: &str = "shop.localhost";

async fn started() -> (ControlPlane, Dir, Running) {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    core.deploy("shop", &[("assets/index.html", b"first")]);
    core.deploy("blog", &[("assets/index.html", b"posts")]);
    let node = Running::start(&core, &dir).await;
    node.visitor.sees(HOST, "/", 200, "first").await;
    node.visitor.sees("blog.localhost", "/", 200, "posts").await;
    (core, dir, node)
}

/// More than the sockets between the two ends hold.
fn large() -> Vec<u8> {
    (0..32_u32 << 20).map(|number| (number % 251) as u8).collect()
}

/// Asks for the large asset and reads the first of it.
async fn begin_large(node: &Running) -> (TcpStream, Vec<u8>) {
    let request = format!("GET /large HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    let mut reader = node.visitor.raw(&request).await;
    let mut answer = vec![0; 1000];
    reader.read_exact(&mut answer).await.unwrap();
    (reader, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_replaces_the_old_and_a_removed_site_is_unknown() {
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
async fn a_part_that_the_node_does_not_know_is_ignored() {
    let (core, _dir, node) = started().await;
    core.want_unknown_part("shop");
    core.want_unknown_part("prj_of_nothing_else");
    core.deploy("shop", &[("assets/index.html", b"second")]);
    node.visitor.sees(HOST, "/", 200, "second").await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_flight_finishes_on_the_version_it_began_on() {
    let (core, _dir, node) = started().await;
    let large = large();
    core.deploy("shop", &[("assets/large", &large)]);
    node.visitor.sees(HOST, "/", 404, "nothing").await;
    let (mut reader, mut answer) = begin_large(&node).await;

    core.deploy("shop", &[("assets/index.html", b"second")]);
    node.visitor.sees(HOST, "/", 200, "second").await;
    node.visitor.sees(HOST, "/large", 404, "").await;

    reader.read_to_end(&mut answer).await.unwrap();
    assert!(answer.ends_with(&large), "{} bytes", answer.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_the_requests_in_flight() {
    let (core, _dir, node) = started().await;
    let large = large();
    core.deploy("shop", &[("assets/large", &large)]);
    node.visitor.sees(HOST, "/", 404, "nothing").await;
    let (mut reader, mut answer) = begin_large(&node).await;
    let stopped = tokio::spawn(node.stop());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!stopped.is_finished());
    reader.read_to_end(&mut answer).await.unwrap();
    assert!(answer.ends_with(&large), "{} bytes", answer.len());
    stopped.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_bundle_leaves_everything_as_it_was_until_it_is_good() {
    let (core, _dir, node) = started().await;
    let good = archive(&[("assets/index.html", b"second")]);
    let tampered = archive(&[("assets/index.html", b"tamper")]);
    let bundle = core.want("shop", &[HOST], &good);
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
async fn a_bundle_that_is_none_is_refused_although_its_digest_is_right() {
    let (core, _dir, node) = started().await;
    let none = Bytes::from_static(b"not gzip");
    let bundle = core.want("shop", &[HOST], &none);
    core.put(&bundle, none);
    while core.fetches_of(&bundle) < 2 {
        assert_eq!(node.visitor.get(HOST, "/").await.body, "first");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn host_names_change_at_once_also_while_the_bundle_is_not_to_be_had() {
    let (core, _dir, node) = started().await;
    core.want("shop", &["moved.localhost"], &archive(&[("assets/index.html", b"second")]));
    node.visitor.sees("moved.localhost", "/", 200, "first").await;
    node.visitor.sees(HOST, "/", 404, "unknown_hostname").await;
    core.want("new", &["new.localhost"], &archive(&[("assets/index.html", b"third")]));
    node.visitor.sees("new.localhost", "/", 503, "on its way").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn serving_goes_on_while_the_control_plane_is_away() {
    let (mut core, _dir, node) = started().await;
    core.go_away().await;
    assert_eq!(node.visitor.get(HOST, "/").await.body, "first");
    core.deploy("shop", &[("assets/index.html", b"second")]);
    core.remove("blog");
    core.come_back().await;
    node.visitor.sees(HOST, "/", 200, "second").await;
    node.visitor.sees("blog.localhost", "/", 404, "unknown_hostname").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_serves_before_the_control_plane_is_back_and_fetches_nothing_again() {
    let (mut core, dir, node) = started().await;
    // A bundle that is not to be had must not take the version before it away.
    core.want("blog", &["blog.localhost"], &archive(&[("assets/index.html", b"absent")]));
    core.want("gone", &["gone.localhost"], &archive(&[("assets/index.html", b"absent")]));
    node.visitor.sees("gone.localhost", "/", 503, "on its way").await;
    node.stop().await;
    core.go_away().await;

    let node = Running::start(&core, &dir).await;
    assert_eq!(node.visitor.get(HOST, "/").await.body, "first");
    assert_eq!(node.visitor.get("blog.localhost", "/").await.body, "posts");
    assert_eq!(node.visitor.get("gone.localhost", "/").await.status, 503);

    core.come_back().await;
    let second = core.deploy("shop", &[("assets/index.html", b"second")]);
    node.visitor.sees(HOST, "/", 200, "second").await;
    let first = core.deploy("shop", &[("assets/index.html", b"first")]);
    node.visitor.sees(HOST, "/", 200, "first").await;
    assert_eq!((core.fetches_of(&first), core.fetches_of(&second)), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_was_set_back_is_believed() {
    let (core, _dir, node) = started().await;
    core.deploy("shop", &[("assets/index.html", b"second")]);
    node.visitor.sees(HOST, "/", 200, "second").await;
    core.set_back();
    node.visitor.sees("blog.localhost", "/", 404, "unknown_hostname").await;
    core.deploy("shop", &[("assets/index.html", b"restored")]);
    node.visitor.sees(HOST, "/", 200, "restored").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_has_one_node_and_damage_in_it_heals() {
    let (core, dir, node) = started().await;
    let bundle = core.deploy("shop", &[("assets/index.html", b"second")]);
    node.visitor.sees(HOST, "/", 200, "second").await;
    let index = dir.path().join(format!("sites/{}.json", bundle.strip_prefix("sha256:").unwrap()));
    let blob = sha256(b"second");
    assert_eq!(std::fs::read(dir.path().join("blobs").join(&blob[..2]).join(&blob)).unwrap(), b"second");
    let refusal = Node::start(&config(&core, &dir)).err().unwrap();
    assert!(format!("{refusal:#}").ends_with("another node uses it"), "{refusal:#}");
    node.stop().await;

    until("nothing temporary is left", || std::fs::read_dir(dir.path().join("tmp")).unwrap().next().is_none()).await;
    std::fs::write(index, "{").unwrap();
    std::fs::write(dir.path().join("desired.json"), "{").unwrap();
    let node = Running::start(&core, &dir).await;
    node.visitor.sees(HOST, "/", 200, "second").await;
    assert_eq!(core.fetches_of(&bundle), 2);
}
