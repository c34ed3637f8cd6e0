//! The store of bundles: whole or not at all, and once each.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use futures_util::future::join_all;
use kernel::{BundleLimits, Digest, Failure as _, Limits, Plan, World};
use projects::{Bundles, ProjectError};

use crate::kit::{Files, body, bundle, noise, site};

fn limits() -> BundleLimits {
    Limits::default().of(Plan::Free).bundle
}

/// The bytes of a bundle as they are stored, with the length that is announced.
async fn stored(bundles: &Bundles, digest: Digest) -> (u64, Vec<u8>) {
    let (length, bytes) = bundles.open(digest).await.unwrap();
    let chunks: Vec<Bytes> = bytes.try_collect().await.unwrap();
    (length, chunks.concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_received_is_what_is_opened() {
    let files = Files::new();
    let bundles = files.bundles();
    // Longer than one part on its way into the store.
    let large = bundle(&[("svc.json", b"{}"), ("assets/noise", &noise(6 << 20)), ("assets/b", b"b")]);
    for (upload, chunk, assets) in [(site("one"), 1, 1), (site("two"), 7, 1), (large, 100_000, 2)] {
        let digest = Digest::of(&upload);
        let received = bundles.receive("upload", limits(), body(&upload, chunk)).await.unwrap();
        assert_eq!((received.digest, received.size_bytes), (digest, upload.len() as u64));
        assert_eq!((received.contents.asset_count, received.contents.has_worker), (assets, false));
        assert_eq!(stored(&bundles, digest).await, (upload.len() as u64, upload));
    }
    assert!(files.list().iter().all(|file| file.starts_with("bundles/")), "{:?}", files.list());
    let unknown = bundles.open(Digest::of(b"unknown")).await.map(drop).unwrap_err();
    assert!(matches!(unknown, ProjectError::BundleNotFound));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bundle_uploaded_twenty_times_at_once_is_one_object() {
    let files = Files::new();
    let bundles = files.bundles();
    let upload = site("same");
    let names: Vec<String> = (0..20).map(|n| format!("upload-{n}")).collect();
    let received = join_all(names.iter().map(|name| bundles.receive(name, limits(), body(&upload, 50)))).await;
    let digest = Digest::of(&upload);
    assert!(received.iter().all(|received| received.as_ref().is_ok_and(|received| received.digest == digest)));
    assert_eq!(files.list(), [format!("bundles/{}", digest.hex())]);
    assert_eq!(stored(&bundles, digest).await.1, upload);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_a_bundle_gets_all_of_it_while_it_is_uploaded_again() {
    let files = Files::new();
    let bundles = files.bundles();
    let upload = bundle(&[("svc.json", b"{}"), ("assets/noise", &noise(1 << 20))]);
    let digest = bundles.receive("first", limits(), body(&upload, 10_000)).await.unwrap().digest;
    let (_, mut reading) = bundles.open(digest).await.unwrap();
    let mut read = reading.try_next().await.unwrap().unwrap().to_vec();
    bundles.receive("second", limits(), body(&upload, 10_000)).await.unwrap();
    while let Some(chunk) = reading.try_next().await.unwrap() {
        read.extend_from_slice(&chunk);
    }
    assert!(read == upload);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_is_said_to_be_away_and_keeps_nothing() {
    // Something that is no folder stands where uploads in progress are kept, and where finished ones are.
    for obstacle in ["incoming", "bundles"] {
        let files = Files::new();
        std::fs::write(files.path().join(obstacle), "").unwrap();
        let failed = files.bundles().receive("upload", limits(), body(&site("one"), 50)).await.unwrap_err();
        assert!(matches!(failed, ProjectError::BundleStore(_)), "{obstacle}: {failed:?}");
        assert_eq!(failed.code(), &kernel::Code::UNAVAILABLE);
        assert_eq!(files.list(), [obstacle]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_process_left_is_swept_and_what_is_written_to_is_not() {
    let files = Files::new();
    let bundles = Bundles::in_folder(files.path()).unwrap();
    let hour_ago = World::system().now().plus_seconds(-3600);
    assert_eq!(bundles.sweep(hour_ago).await.unwrap(), 0);
    let digest = bundles.receive("upload", limits(), body(&site("kept"), 50)).await.unwrap().digest;
    let kept = format!("bundles/{}", digest.hex());
    // As the store leaves a file that it was writing, and one that it had finished.
    for (name, seconds) in [("left#1", 3700), ("whole", 3700), ("running#1", 3500)] {
        let file = std::fs::File::create(files.path().join("incoming").join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(millis_ago(seconds))).unwrap();
    }
    let bundle = std::fs::File::options().append(true).open(files.path().join(&kept)).unwrap();
    bundle.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(bundles.sweep(hour_ago).await.unwrap(), 2);
    assert_eq!(files.list(), [kept.as_str(), "incoming/running#1"]);
    assert_eq!(bundles.sweep(hour_ago).await.unwrap(), 0);
}

fn millis_ago(seconds: i64) -> u64 {
    World::system().now().plus_seconds(-seconds).unix_millis().try_into().unwrap()
}
