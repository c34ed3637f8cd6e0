//! Conditional requests, ranges and content codings.

use std::io::Read as _;

use flate2::read::GzDecoder;
use reqwest::Method;

use crate::control_plane::{ControlPlane, sha256};
use crate::running::{Dir, RunningNode};
use crate::visitor::{Visitor, VisitorResponse};

const HOST: &str = "shop.localhost";
const DIGITS: &str = "0123456789";

fn text() -> String {
    "<p>A repeated sentence compresses well.</p>\n".repeat(400)
}

/// Starts a node whose `/page.html` is compressed.
async fn shop() -> (ControlPlane, Dir, RunningNode) {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let text = text();
    let random: Vec<u8> = (0..100_u8)
        .flat_map(|number| ring::digest::digest(&ring::digest::SHA256, &[number]).as_ref().to_vec())
        .collect();
    core.deploy(
        "shop",
        &[
            ("assets/page.html", text.as_bytes()),
            ("assets/again/page.html", text.as_bytes()),
            ("assets/404.html", text.as_bytes()),
            ("assets/digits.bin", DIGITS.as_bytes()),
            ("assets/empty.bin", b""),
            ("assets/small.html", b"small"),
            ("assets/random.txt", &random),
        ],
    );
    let node = RunningNode::start(&core, &dir).await;
    node.visitor.sees(HOST, "/digits.bin", 200, DIGITS).await;
    compressed(&node).await;
    (core, dir, node)
}

async fn compressed(node: &RunningNode) {
    while node.visitor.get_with(HOST, "/page.html", &[("accept-encoding", "br")]).await.header("content-encoding")
        != "br"
    {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

fn decoded(seen: &VisitorResponse) -> String {
    let mut text = String::new();
    match seen.header("content-encoding") {
        "gzip" => drop(GzDecoder::new(&seen.bytes[..]).read_to_string(&mut text).unwrap()),
        "br" => drop(brotli::Decompressor::new(&seen.bytes[..], 4096).read_to_string(&mut text).unwrap()),
        other => {
            assert_eq!(other, "");
            text.clone_from(&seen.body);
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_coding_with_the_highest_quality_is_served() {
    let (_core, _dir, node) = shop().await;
    let tag = sha256(text().as_bytes());
    for path in ["/page.html", "/again/page.html", "/missing"] {
        let exists = path != "/missing";
        for (accepted, coding) in [
            ("", ""),
            ("gzip", "gzip"),
            ("gzip, deflate, br, zstd", "br"),
            ("br;q=0.5, gzip;q=0.8", "gzip"),
            ("*", "br"),
            ("gzip;q=0, br;q=0", ""),
            ("identity;q=0, gzip;q=0.001", "gzip"),
            ("identity, gzip;q=0.5", ""),
        ] {
            let seen = node.visitor.get_with(HOST, path, &[("accept-encoding", accepted)]).await;
            assert_eq!((seen.status, seen.header("content-encoding")), (if exists { 200 } else { 404 }, coding));
            assert_eq!(decoded(&seen), text(), "{path} in {accepted}");
            assert_eq!(seen.header("vary"), "Accept-Encoding");
            assert_eq!(seen.header("content-type"), "text/html; charset=utf-8");
            assert_eq!(seen.header("content-length"), seen.bytes.len().to_string());
            let suffix = if coding.is_empty() { String::new() } else { format!("-{coding}") };
            let etag = if exists { format!("\"{tag}{suffix}\"") } else { String::new() };
            assert_eq!(seen.header("etag"), etag, "{path} in {accepted}");
            let head = node.visitor.request(Method::HEAD, HOST, path).header("accept-encoding", accepted);
            let head = Visitor::send(head).await;
            assert_eq!((head.status, head.bytes.len()), (seen.status, 0));
            for name in ["etag", "content-type", "content-length", "content-encoding", "vary", "accept-ranges"] {
                assert_eq!(head.header(name), seen.header(name), "{name} of {path} in {accepted}");
            }
        }
        let refused = node.visitor.get_with(HOST, path, &[("accept-encoding", "*;q=0")]).await;
        assert_eq!((refused.status, refused.header("vary")), (406, "Accept-Encoding"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn incompressible_contents_are_served_uncompressed() {
    let (_core, dir, node) = shop().await;
    for (path, vary) in [("/digits.bin", ""), ("/small.html", "Accept-Encoding"), ("/random.txt", "Accept-Encoding")] {
        let seen = node.visitor.get_with(HOST, path, &[("accept-encoding", "gzip, br")]).await;
        assert_eq!((seen.status, seen.header("content-encoding"), seen.header("vary")), (200, "", vary), "{path}");
    }
    let name = sha256(text().as_bytes());
    let folder = dir.path().join("blobs").join(&name[..2]);
    let names = [name.clone(), format!("{name}.br"), format!("{name}.gz")];
    assert!(names.iter().all(|name| folder.join(name).is_file()));
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_and_if_range_follow_rfc_9110() {
    let (_core, _dir, node) = shop().await;
    let etag = format!("\"{}\"", sha256(DIGITS.as_bytes()));
    let weak = format!("W/{etag}");
    for (headers, status, range, body) in [
        (&[("range", "bytes=0-3")][..], 206, "bytes 0-3/10", "0123"),
        (&[("range", "bytes=4-")], 206, "bytes 4-9/10", "456789"),
        (&[("range", "bytes=-2")], 206, "bytes 8-9/10", "89"),
        (&[("range", "bytes=8-100")], 206, "bytes 8-9/10", "89"),
        (&[("range", "bytes=10-")], 416, "bytes */10", ""),
        (&[("range", "bytes=-0")], 416, "bytes */10", ""),
        (&[("range", "bytes=0-1,4-5")], 200, "", DIGITS),
        (&[("range", "bytes=5-4")], 200, "", DIGITS),
        (&[("range", "lines=1-2")], 200, "", DIGITS),
        (&[("range", "bytes=0-3"), ("if-range", &etag)], 206, "bytes 0-3/10", "0123"),
        (&[("range", "bytes=0-3"), ("if-range", &weak)], 200, "", DIGITS),
        (&[("range", "bytes=0-3"), ("if-range", "\"x\"")], 200, "", DIGITS),
        (&[("range", "bytes=0-3"), ("if-range", "Sat, 29 Oct 1994 19:43:31 GMT")], 200, "", DIGITS),
        (&[("range", "bytes=99-"), ("if-range", "\"x\"")], 200, "", DIGITS),
        (&[("range", "bytes=0-3"), ("if-none-match", &etag)], 304, "", ""),
        (&[("range", "bytes=99-"), ("if-match", "\"x\"")], 412, "", ""),
    ] {
        let seen = node.visitor.get_with(HOST, "/digits.bin", headers).await;
        assert_eq!(
            (seen.status, seen.header("content-range"), seen.body.as_str()),
            (status, range, body),
            "{headers:?}"
        );
        let has_tag = matches!(status, 200 | 206 | 304);
        assert_eq!(seen.header("etag"), if has_tag { etag.as_str() } else { "" }, "{headers:?}");
    }
    let head = node.visitor.request(Method::HEAD, HOST, "/digits.bin").header("range", "bytes=0-3");
    let head = Visitor::send(head).await;
    assert_eq!((head.status, head.header("content-length"), head.header("accept-ranges")), (200, "10", "bytes"));
    assert_eq!(node.visitor.get_with(HOST, "/empty.bin", &[("range", "bytes=0-")]).await.status, 200);
    assert_eq!(node.visitor.get_with(HOST, "/missing", &[("range", "bytes=0-3")]).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn range_applies_to_the_encoded_bytes() {
    let (_core, _dir, node) = shop().await;
    let whole = node.visitor.get_with(HOST, "/page.html", &[("accept-encoding", "gzip")]).await;
    let size = whole.bytes.len();
    let (etag, plain) = (whole.header("etag"), node.visitor.get(HOST, "/page.html").await);
    let headers = [("accept-encoding", "gzip"), ("range", "bytes=10-"), ("if-range", etag)];
    let rest = node.visitor.get_with(HOST, "/page.html", &headers).await;
    assert_eq!((rest.status, rest.header("content-encoding")), (206, "gzip"));
    assert_eq!(rest.header("content-range"), format!("bytes 10-{}/{size}", size - 1));
    assert_eq!(rest.bytes, whole.bytes.slice(10..));
    // Each coding has its own tag.
    let headers = [("accept-encoding", "gzip"), ("range", "bytes=10-"), ("if-range", plain.header("etag"))];
    assert_eq!(node.visitor.get_with(HOST, "/page.html", &headers).await.status, 200);
    let headers = [("accept-encoding", "gzip"), ("if-none-match", plain.header("etag"))];
    assert_eq!(node.visitor.get_with(HOST, "/page.html", &headers).await.status, 200);
    let headers = [("accept-encoding", "gzip"), ("if-none-match", etag)];
    let known = node.visitor.get_with(HOST, "/page.html", &headers).await;
    assert_eq!((known.status, known.header("etag"), known.header("vary")), (304, etag, "Accept-Encoding"));
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_large_files_are_served() {
    let (core, _dir, node) = shop().await;
    let large: Vec<u8> = (0..1_u32 << 20).map(|number| (number % 251) as u8).collect();
    core.deploy("large", &[("assets/a.bin", &large)]);
    node.visitor.sees("large.localhost", "/a.bin", 200, "").await;
    for (range, expected) in [("bytes=300000-699999", 300_000..700_000), ("bytes=-7", large.len() - 7..large.len())] {
        let seen = node.visitor.get_with("large.localhost", "/a.bin", &[("range", range)]).await;
        assert_eq!((seen.status, seen.header("content-length")), (206, expected.len().to_string().as_str()));
        assert!(seen.bytes[..] == large[expected], "{range}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uncompressed_bundle_of_an_older_release_is_compressed_after_a_restart() {
    let (core, dir, node) = shop().await;
    node.stop().await;
    for folder in std::fs::read_dir(dir.path().join("blobs")).unwrap() {
        for blob in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let blob = blob.unwrap().path();
            if blob.extension().is_some() {
                std::fs::remove_file(blob).unwrap();
            }
        }
    }
    // This is the index format of an older release.
    for index in std::fs::read_dir(dir.path().join("sites")).unwrap() {
        let index = index.unwrap().path();
        let mut document: serde_json::Value = serde_json::from_slice(&std::fs::read(&index).unwrap()).unwrap();
        document.as_object_mut().unwrap().remove("compressed");
        for asset in document["assets"].as_object_mut().unwrap().values_mut() {
            asset.as_object_mut().unwrap().retain(|key, _| key == "content" || key == "size");
        }
        std::fs::write(index, document.to_string()).unwrap();
    }
    let node = RunningNode::start(&core, &dir).await;
    node.visitor.sees(HOST, "/page.html", 200, &text()).await;
    compressed(&node).await;
}
