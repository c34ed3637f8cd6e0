//! The bundle cache: eviction, crash recovery and damaged files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix_web::web::Bytes;
use futures_util::{StreamExt as _, stream};
use reqwest::{Body, Method};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

use crate::control_plane::{ControlPlane, archive, sha256};
use crate::running::{Dir, RunningNode, until};
use crate::workers::{with_workers, workerd};

const HOST: &str = "shop.localhost";
const SIZE: usize = 1000;
/// The space that a small file takes on disk.
const BLOCK: u64 = 4096;

/// Returns content that identifies its version.
fn version(number: usize) -> Vec<u8> {
    format!("version {number} ").into_bytes().into_iter().cycle().take(SIZE).collect()
}

async fn deploy(core: &ControlPlane, node: &RunningNode, number: usize) -> String {
    let content = version(number);
    let bundle = core.deploy("shop", &[("assets/index.html", b"home"), ("assets/a.bin", &content)]);
    node.visitor.sees(HOST, "/a.bin", 200, &String::from_utf8(content).unwrap()).await;
    bundle
}

/// Deploys an archive that ends within its second file. The first file is `version(2)`.
fn deploy_truncated(core: &ControlPlane, project: &str) -> String {
    let noise: Vec<u8> = (0..200_u8).flat_map(|number| sha256(&[number]).into_bytes()).collect();
    let whole = archive(&[("assets/first.bin", &version(2)), ("assets/second.bin", &noise)]);
    let truncated: Bytes = whole.slice(..whole.len() * 3 / 4);
    let bundle = core.set_desired(project, &[&format!("{project}.localhost")], &truncated);
    core.put(&bundle, truncated);
    bundle
}

fn blob(dir: &Dir, content: &[u8]) -> PathBuf {
    let name = sha256(content);
    dir.path().join("blobs").join(&name[..2]).join(name)
}

/// Writes a blob that belongs to no bundle.
fn leave(orphan: &Path) {
    fs::create_dir_all(orphan.parent().unwrap()).unwrap();
    fs::write(orphan, "left").unwrap();
}

fn index(dir: &Dir, bundle: &str) -> PathBuf {
    dir.path().join(format!("sites/{}.json", bundle.strip_prefix("sha256:").unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn least_recently_used_bundle_is_evicted_and_fetched_again_when_desired() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    // Each version takes a block for its content and another for its index. All share the home page.
    let node = RunningNode::start_bounded(&core, &dir, (1 + 3 * 2) * BLOCK + BLOCK + BLOCK / 2).await;
    let mut bundles = Vec::new();
    for number in 0..3 {
        bundles.push(deploy(&core, &node, number).await);
    }
    // This deployment makes the oldest bundle the most recently used one.
    assert_eq!(deploy(&core, &node, 0).await, bundles[0]);
    bundles.push(deploy(&core, &node, 3).await);
    until("an eviction", || !blob(&dir, &version(1)).exists()).await;
    assert!(!index(&dir, &bundles[1]).exists());
    assert!([0, 2, 3].iter().all(|number| index(&dir, &bundles[*number]).exists()));
    assert!(blob(&dir, &version(3)).exists() && blob(&dir, b"home").exists());

    assert_eq!(deploy(&core, &node, 0).await, bundles[0]);
    assert_eq!(core.fetches_of(&bundles[0]), 1);
    assert_eq!(deploy(&core, &node, 1).await, bundles[1]);
    assert_eq!(core.fetches_of(&bundles[1]), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn served_bundles_are_kept_above_the_size_limit() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let node = RunningNode::start_bounded(&core, &dir, 10).await;
    core.deploy("blog", &[("assets/index.html", b"posts of a blog"), ("assets/shared.bin", &version(1))]);
    node.visitor.sees("blog.localhost", "/", 200, "posts").await;
    let first = deploy(&core, &node, 1).await;
    deploy(&core, &node, 2).await;
    until("an eviction", || !index(&dir, &first).exists()).await;
    // The blog still uses the file that it shares with the first version.
    for (host, path) in [("blog.localhost", "/"), ("blog.localhost", "/shared.bin"), (HOST, "/"), (HOST, "/a.bin")] {
        assert_eq!(node.visitor.get(host, path).await.status, 200, "{host}{path}");
    }
    assert!(blob(&dir, &version(1)).exists());
    node.stop().await;
    let node = RunningNode::start_bounded(&core, &dir, 10).await;
    assert_eq!(node.visitor.get("blog.localhost", "/shared.bin").await.bytes, version(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn response_in_flight_completes_after_its_bundle_is_evicted() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let node = RunningNode::start_bounded(&core, &dir, 1 << 20).await;
    let large: Vec<u8> = (0..32_u32 << 20).map(|number| (number % 251) as u8).collect();
    core.deploy("shop", &[("assets/large.bin", &large)]);
    node.visitor.sees(HOST, "/", 404, "no page").await;
    let request = format!("GET /large.bin HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    let mut reader = node.visitor.raw(&request).await;
    let mut answer = vec![0; 1000];
    reader.read_exact(&mut answer).await.unwrap();
    deploy(&core, &node, 1).await;
    deploy(&core, &node, 2).await;
    until("an eviction", || !blob(&dir, &large).exists()).await;
    reader.read_to_end(&mut answer).await.unwrap();
    assert!(answer.ends_with(&large), "{} bytes", answer.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_of_a_truncated_bundle_are_removed() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let node = RunningNode::start(&core, &dir).await;
    deploy(&core, &node, 1).await;
    let bundle = deploy_truncated(&core, "shop");
    until("two attempts", || core.fetches_of(&bundle) >= 2).await;
    until("removal of the blobs", || !blob(&dir, &version(2)).exists()).await;
    assert_eq!(node.visitor.get(HOST, "/a.bin").await.bytes, version(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn orphaned_blobs_of_a_crash_are_removed_at_startup() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let node = RunningNode::start(&core, &dir).await;
    let bundle = deploy(&core, &node, 1).await;
    node.stop().await;
    let (orphan, coded) = (blob(&dir, &version(2)), blob(&dir, &version(3)).with_extension("br"));
    leave(&orphan);
    leave(&coded);
    let node = RunningNode::start(&core, &dir).await;
    until("an eviction", || !orphan.exists() && !coded.exists()).await;
    assert_eq!(node.visitor.get(HOST, "/a.bin").await.bytes, version(1));
    assert_eq!(core.fetches_of(&bundle), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_blobs_are_not_served_and_are_fetched_again() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let text = "A repeated sentence. ".repeat(100);
    let files = [("assets/index.html", &b"home"[..]), ("assets/a.html", text.as_bytes())];
    let bundle = core.deploy("shop", &files);
    let compressed = blob(&dir, text.as_bytes()).with_extension("br");
    let is_compressed = || fs::read(&compressed).is_ok_and(|content| content != b"short");
    let mut fetches = 1;
    for damage in ["", "br"] {
        for is_gone in [true, false] {
            let node = RunningNode::start(&core, &dir).await;
            node.visitor.sees(HOST, "/", 200, "home").await;
            until("compression", is_compressed).await;
            until("its index", || fs::read_to_string(index(&dir, &bundle)).is_ok_and(|it| it.contains("brotli"))).await;
            node.stop().await;

            let damaged = blob(&dir, text.as_bytes()).with_extension(damage);
            if is_gone {
                fs::remove_file(&damaged).unwrap()
            } else {
                fs::write(&damaged, "short").unwrap()
            }
            let node = RunningNode::start(&core, &dir).await;
            let accepted = [("accept-encoding", if damage.is_empty() { "identity" } else { damage })];
            let seen = node.visitor.get_with(HOST, "/a.html", &accepted).await;
            assert_eq!((seen.status, seen.header("cache-control")), (503, "no-store"));
            assert_eq!(node.visitor.get(HOST, "/").await.body, "home");
            fetches += 1;
            until("another fetch", || core.fetches_of(&bundle) == fetches).await;
            node.visitor.sees(HOST, "/a.html", 200, &text).await;
            until("compression", is_compressed).await;
            node.stop().await;
        }
    }
    let node = RunningNode::start(&core, &dir).await;
    assert_eq!(node.visitor.get(HOST, "/a.html").await.body, text);
    assert_eq!(core.fetches_of(&bundle), fetches);
}

#[tokio::test(flavor = "multi_thread")]
async fn intact_blobs_of_a_damaged_bundle_are_served_until_it_is_fetched_again() {
    let (mut core, dir) = (ControlPlane::start().await, Dir::new());
    let node = RunningNode::start(&core, &dir).await;
    let bundle = deploy(&core, &node, 1).await;
    node.stop().await;
    fs::remove_file(blob(&dir, &version(1))).unwrap();
    core.put(&bundle, "not the bundle");

    let node = RunningNode::start(&core, &dir).await;
    let before = core.fetches_of(&bundle);
    assert_eq!(node.visitor.get(HOST, "/a.bin").await.status, 503);
    until("a failed fetch", || core.fetches_of(&bundle) > before).await;
    let orphan = blob(&dir, &version(3));
    leave(&orphan);
    deploy_truncated(&core, "broken");
    until("an eviction", || !orphan.exists()).await;
    assert_eq!(node.visitor.get(HOST, "/").await.body, "home");

    // A restart while the control plane is down begins with an eviction.
    node.stop().await;
    core.stop().await;
    leave(&orphan);
    let node = RunningNode::start(&core, &dir).await;
    until("an eviction", || !orphan.exists()).await;
    assert_eq!(node.visitor.get(HOST, "/").await.body, "home");
    core.put(&bundle, archive(&[("assets/index.html", b"home"), ("assets/a.bin", &version(1))]));
    core.restart().await;
    assert_eq!(node.visitor.get(HOST, "/a.bin").await.status, 503);
    node.visitor.sees(HOST, "/a.bin", 200, "version 1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_that_was_fetched_again_is_kept_for_its_process() {
    // The code of a POST returns its body, and then an asset.
    const CODE: &[u8] = br#"
        export default {
          async fetch({ method, body }, env) {
            if (method === "GET") return new Response("old");
            const { readable, writable } = new IdentityTransformStream();
            const respond = async () => {
              await body.pipeTo(writable, { preventClose: true });
              await (await env.assets.fetch("http://x/late.bin")).body.pipeTo(writable);
            };
            respond();
            return new Response(readable);
          },
        };
    "#;
    const NEW_CODE: &[u8] = b"export default { fetch() { return new Response('new'); } };";
    let Some(workerd) = workerd() else { return };
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let mut config = with_workers(&core, &dir, workerd);
    config.cache_bytes = 10;
    let node = RunningNode::start_as(&config).await;
    let files: [(&str, &[u8]); 3] =
        [("worker/index.js", CODE), ("assets/a.bin", b"asset"), ("assets/late.bin", b"late asset")];
    let bundle = core.deploy("shop", &files);
    node.visitor.sees(HOST, "/", 200, "old").await;
    let is_compressed = || fs::read_to_string(index(&dir, &bundle)).is_ok_and(|it| it.contains(r#""compressed":true"#));
    until("compression", is_compressed).await;
    node.stop().await;

    fs::remove_file(blob(&dir, b"asset")).unwrap();
    let node = RunningNode::start_as(&config).await;
    assert_eq!(node.visitor.get(HOST, "/a.bin").await.status, 503);
    node.visitor.sees(HOST, "/a.bin", 200, "asset").await;
    assert!(core.fetches_of(&bundle) >= 2);
    let (sender, receiver) = mpsc::channel::<io::Result<&str>>(1);
    let body =
        Body::wrap_stream(stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver))));
    sender.send(Ok("begun, ")).await.unwrap();
    let response = node.visitor.request(Method::POST, HOST, "/").body(body).send().await.unwrap();
    let mut chunks = response.bytes_stream();
    assert_eq!(chunks.next().await.unwrap().unwrap(), "begun, ");

    core.deploy("shop", &[("worker/index.js", NEW_CODE)]);
    node.visitor.sees(HOST, "/", 200, "new").await;
    // When the node serves another project, it has dropped the replaced bundle.
    core.deploy("blog", &[("assets/index.html", b"posts")]);
    node.visitor.sees("blog.localhost", "/", 200, "posts").await;
    let orphan = blob(&dir, &version(3));
    leave(&orphan);
    core.deploy("wiki", &[("assets/index.html", b"articles")]);
    until("an eviction", || !orphan.exists()).await;
    drop(sender);
    let mut rest = Vec::new();
    while let Some(chunk) = chunks.next().await {
        rest.extend(chunk.unwrap());
    }
    assert_eq!(String::from_utf8(rest).unwrap(), "late asset");
}

/// Every response succeeds and contains exactly one version, while older versions are evicted continuously.
#[tokio::test(flavor = "multi_thread")]
async fn deploys_under_load_cause_no_errors_and_no_mixed_versions() {
    const VISITORS: usize = 4;
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let node = Arc::new(RunningNode::start_bounded(&core, &dir, 10).await);
    deploy(&core, &node, 0).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let visits: Vec<_> = (0..VISITORS)
        .map(|_| {
            let (node, is_over) = (Arc::clone(&node), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut seen_versions = std::collections::HashSet::new();
                while !is_over.load(Ordering::Relaxed) {
                    let seen = node.visitor.get(HOST, "/a.bin").await;
                    assert_eq!((seen.status, seen.bytes.len()), (200, SIZE), "{seen:?}");
                    assert_eq!(seen.header("etag"), format!("\"{}\"", sha256(&seen.bytes)));
                    seen_versions.insert(seen.bytes);
                }
                seen_versions.len()
            })
        })
        .collect();
    for number in 1..30 {
        deploy(&core, &node, number).await;
    }
    is_over.store(true, Ordering::Relaxed);
    for visit in visits {
        assert!(visit.await.unwrap() > 1);
    }
}
