//! The bundle store: atomic and deduplicated.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use futures_util::future::join_all;
use kernel::{ApiError as _, BundleLimits, ClockRng, Digest, Limits, Plan};
use projects::{Bundles, ProjectError};

use crate::kit::{Files, admit, body, bundle, incompressible, site};

fn limits() -> BundleLimits {
    Limits::default().for_plan(Plan::Free).bundle
}

/// Returns the announced length and the stored bytes of a bundle.
async fn stored(bundles: &Bundles, digest: Digest) -> (u64, Vec<u8>) {
    let (length, bytes) = bundles.open(digest).await.unwrap();
    let chunks: Vec<Bytes> = bytes.try_collect().await.unwrap();
    (length, chunks.concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_bundle_equals_the_upload() {
    let files = Files::new();
    let bundles = files.bundles();
    // This upload is longer than one part.
    let large = bundle(&[("svc.json", b"{}"), ("assets/noise", &incompressible(6 << 20)), ("assets/b", b"b")]);
    for (upload, chunk, assets) in [(site("one"), 1, 1), (site("two"), 7, 1), (large, 100_000, 2)] {
        let digest = Digest::of(&upload);
        let received = bundles.receive("upload", limits(), body(&upload, chunk), admit).await.unwrap();
        assert_eq!((received.digest, received.size_bytes), (digest, upload.len() as u64));
        assert_eq!((received.contents.asset_count, received.contents.has_worker), (assets, false));
        assert_eq!(stored(&bundles, digest).await, (upload.len() as u64, upload));
    }
    assert!(files.list().iter().all(|file| file.starts_with("bundles/")), "{:?}", files.list());
    let unknown = bundles.open(Digest::of(b"unknown")).await.map(drop).unwrap_err();
    assert!(matches!(unknown, ProjectError::BundleNotFound));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_uploads_of_one_bundle_are_one_object() {
    let files = Files::new();
    let bundles = files.bundles();
    let upload = site("same");
    let names: Vec<String> = (0..20).map(|n| format!("upload-{n}")).collect();
    let received = join_all(names.iter().map(|name| bundles.receive(name, limits(), body(&upload, 50), admit))).await;
    let digest = Digest::of(&upload);
    assert!(received.iter().all(|received| received.as_ref().is_ok_and(|received| received.digest == digest)));
    assert_eq!(files.list(), [format!("bundles/{}", digest.hex())]);
    assert_eq!(stored(&bundles, digest).await.1, upload);
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_continues_while_the_bundle_is_uploaded_again() {
    let files = Files::new();
    let bundles = files.bundles();
    let upload = bundle(&[("svc.json", b"{}"), ("assets/noise", &incompressible(1 << 20))]);
    let digest = bundles.receive("first", limits(), body(&upload, 10_000), admit).await.unwrap().digest;
    let (_, mut reading) = bundles.open(digest).await.unwrap();
    let mut read = reading.try_next().await.unwrap().unwrap().to_vec();
    bundles.receive("second", limits(), body(&upload, 10_000), admit).await.unwrap();
    while let Some(chunk) = reading.try_next().await.unwrap() {
        read.extend_from_slice(&chunk);
    }
    assert!(read == upload);
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_store_returns_unavailable() {
    // Put a file in place of the folder for unfinished uploads, or of the folder for bundles.
    for obstacle in ["incoming", "bundles"] {
        let files = Files::new();
        std::fs::write(files.path().join(obstacle), "").unwrap();
        let failed = files.bundles().receive("upload", limits(), body(&site("one"), 50), admit).await.unwrap_err();
        assert!(matches!(failed, ProjectError::BundleStore(_)), "{obstacle}: {failed:?}");
        assert_eq!(failed.code(), &kernel::Code::UNAVAILABLE);
        assert_eq!(files.list(), [obstacle]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sweep_deletes_only_old_temporary_files() {
    let files = Files::new();
    let bundles = files.bundles();
    let hour_ago = ClockRng::system().now().plus_seconds(-3600);
    assert_eq!(bundles.sweep(hour_ago).await.unwrap(), 0);
    let digest = bundles.receive("upload", limits(), body(&site("kept"), 50), admit).await.unwrap().digest;
    let kept = format!("bundles/{}", digest.hex());
    // Unfinished files have a suffix, finished ones do not.
    for (name, seconds) in [("old#1", 3700), ("old", 3700), ("recent#1", 3500)] {
        let file = std::fs::File::create(files.path().join("incoming").join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(millis_ago(seconds))).unwrap();
    }
    let bundle = std::fs::File::options().append(true).open(files.path().join(&kept)).unwrap();
    bundle.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(bundles.sweep(hour_ago).await.unwrap(), 2);
    assert_eq!(files.list(), [kept.as_str(), "incoming/recent#1"]);
    assert_eq!(bundles.sweep(hour_ago).await.unwrap(), 0);
}

fn millis_ago(seconds: i64) -> u64 {
    ClockRng::system().now().plus_seconds(-seconds).unix_millis().try_into().unwrap()
}
