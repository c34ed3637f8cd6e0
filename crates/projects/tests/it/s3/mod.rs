//! Bundles in a bucket, on a server that speaks S3 and checks signatures.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod server;

use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kernel::{BundleLimits, Code, Digest, Failure as _, Secret, World};
use object_store::ObjectStoreExt as _;
use projects::{Bundles, ProjectError};
use testkit::bundle::{body, noise, pack as bundle, site};

use self::server::{BUCKET, Server};

const LIMITS: BundleLimits = BundleLimits { compressed: 64 << 20, unpacked: 64 << 20, entries: 10 };

async fn stored(bundles: &Bundles, digest: Digest) -> Vec<u8> {
    let (length, bytes) = bundles.open(digest).await.unwrap();
    let chunks: Vec<Bytes> = bytes.try_collect().await.unwrap();
    assert_eq!(length, chunks.iter().map(Bytes::len).sum::<usize>() as u64);
    chunks.concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_received_is_what_is_opened() {
    let server = Server::start().await;
    let bundles = server.bundles("some/prefix");
    // Longer than two parts, and shorter than one.
    let large = bundle(&[("svc.json", b"{}"), ("assets/noise", &noise(12 << 20))]);
    for upload in [large, site("one")] {
        let digest = Digest::of(&upload);
        for _ in 0..2 {
            let received = bundles.receive("upload", LIMITS, body(&upload, 100_000)).await.unwrap();
            assert_eq!((received.digest, received.size_bytes), (digest, upload.len() as u64));
            assert!(stored(&bundles, digest).await == upload);
        }
        assert!(server.list().contains(&format!("{BUCKET}/some/prefix/bundles/{}", digest.hex())));
    }
    assert_eq!(server.list().len(), 2);
    let unknown = bundles.open(Digest::of(b"unknown")).await.map(drop).unwrap_err();
    assert!(matches!(unknown, ProjectError::BundleNotFound), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_or_breaks_off_leaves_nothing() {
    let server = Server::start().await;
    let bundles = server.bundles("");
    let whole = bundle(&[("svc.json", b"{}"), ("assets/noise", &noise(12 << 20))]);
    let refused = bundles.receive("refused", LIMITS, body(&[&*whole, b"x"].concat(), 100_000)).await.unwrap_err();
    assert_eq!(refused.code(), &ProjectError::INVALID_BUNDLE);
    nothing_is_left(&server).await;

    let failure = stream::iter([Err(io::Error::other("the line went dead"))]);
    let broken = body(&whole[..11 << 20], 100_000).chain(failure);
    let refused = bundles.receive("broken", LIMITS, broken).await.unwrap_err();
    assert_eq!(refused.code(), &Code::BAD_REQUEST);
    nothing_is_left(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_nobody_waits_for_any_more_leaves_nothing() {
    let server = Server::start().await;
    let bundles = server.bundles("");
    let whole = bundle(&[("svc.json", b"{}"), ("assets/noise", &noise(12 << 20))]);
    let stalled = body(&whole[..11 << 20], 100_000).chain(stream::pending());
    {
        let mut upload = pin!(bundles.receive("upload", LIMITS, stalled));
        while server.list().is_empty() {
            let pause = tokio::time::sleep(Duration::from_millis(10));
            tokio::select! {
                outcome = &mut upload => panic!("it ended: {outcome:?}"),
                () = pause => {}
            }
        }
    }
    nothing_is_left(&server).await;
}

/// Soon: of a request that breaks off the server takes a moment to clean up.
async fn nothing_is_left(server: &Server) {
    let gone = async {
        while !server.list().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(30), gone).await;
    assert!(gone.is_ok(), "{:?}", server.list());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_process_left_is_swept() {
    let server = Server::start().await;
    let bundles = server.bundles("p");
    let digest = bundles.receive("upload", LIMITS, body(&site("kept"), 100)).await.unwrap().digest;
    server.objects().put(&"p/incoming/left".into(), "half of it".into()).await.unwrap();
    let now = World::system().now();
    assert_eq!(bundles.sweep(now.plus_seconds(-3600)).await.unwrap(), 0);
    assert_eq!(server.list().len(), 2);
    assert_eq!(bundles.sweep(now.plus_seconds(3600)).await.unwrap(), 1);
    assert_eq!(server.list(), [format!("{BUCKET}/p/bundles/{}", digest.hex())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_bundle_can_be_read() {
    let server = Server::start().await;
    let upload = site("page");
    let digest = server.bundles("").receive("upload", LIMITS, body(&upload, 100)).await.unwrap().digest;
    let location = format!("bundles/{}", digest.hex()).into();
    assert_eq!(server.objects().get_range(&location, 3..20).await.unwrap(), &upload[3..20]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_refuses_us_or_is_away_is_said_to_be_away() {
    let server = Server::start().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let wrong_secret = projects::S3 { secret_access_key: Secret::new("guess".to_owned()), ..server.s3("") };
    let away = projects::S3 { endpoint: Some(format!("https://{closed}")), ..server.s3("") };
    for s3 in [wrong_secret, away] {
        let bundles = Bundles::in_s3(&s3).unwrap();
        let failed = bundles.receive("upload", LIMITS, body(&site("page"), 100)).await.unwrap_err();
        assert_eq!(failed.code(), &Code::UNAVAILABLE, "{failed:?}");
        assert!(!format!("{failed:?}").contains("guess"));
    }
    assert_eq!(server.list(), [""; 0]);
}
