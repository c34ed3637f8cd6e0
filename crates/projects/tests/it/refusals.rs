//! Uploads that are refused or break off: what is said, how much is still read, and that nothing is left.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use kernel::{BundleLimits, Code, Failure as _};
use projects::ProjectError;
use serde_json::json;

use crate::kit::{Files, body, bundle, noise, site};

const LIMITS: BundleLimits = BundleLimits { compressed: 100_000, unpacked: 200_000, entries: 4 };

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_bundle_is_refused_by_name() {
    let files = Files::new();
    let bundles = files.bundles();
    let whole = site("page");
    for (upload, reason, entry) in [
        (Vec::new(), "truncated", None),
        (b"hello, world".to_vec(), "not_gzip", None),
        (whole[..whole.len() / 2].to_vec(), "truncated", None),
        ([whole.as_slice(), b"more"].concat(), "trailing_bytes", None),
        (bundle(&[("assets/a", b"a")]), "manifest_missing", None),
        (bundle(&[("svc.json", b"[]"), ("assets/a", b"a")]), "manifest_not_object", Some("svc.json")),
        (bundle(&[("svc.json", b"{}")]), "nothing_to_deploy", None),
        (bundle(&[("svc.json", b"{}"), ("etc/passwd", b"x")]), "unexpected_path", Some("etc/passwd")),
    ] {
        let refused = bundles.receive("upload", LIMITS, body(&upload, 20)).await.unwrap_err();
        assert_eq!(refused.code(), &ProjectError::INVALID_BUNDLE, "{reason}");
        let details = refused.details().unwrap();
        assert_eq!(details["reason"], json!(reason));
        assert!(entry.is_none_or(|entry| details["entry"] == json!(entry)), "{details}");
        assert_eq!(files.list(), [""; 0], "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_told_the_limit() {
    let files = Files::new();
    let bundles = files.bundles();
    let many: Vec<String> = (0..4).map(|n| format!("assets/{n}")).collect();
    let mut crowd: Vec<(&str, &[u8])> = vec![("svc.json", b"{}")];
    crowd.extend(many.iter().map(|path| (path.as_str(), b"x".as_slice())));
    let page = |content: &[u8]| bundle(&[("svc.json", b"{}"), ("assets/a", content)]);
    for (upload, limit, most) in [
        (page(&noise(150_000)), "compressed", 100_000),
        (page(&[0; 250_000]), "unpacked", 200_000),
        (bundle(&crowd), "entries", 4),
    ] {
        let refused = bundles.receive("upload", LIMITS, body(&upload, 1000)).await.unwrap_err();
        assert_eq!(refused.code(), &kernel::Code::PAYLOAD_TOO_LARGE, "{limit}");
        assert_eq!(refused.details(), Some(json!({ "limit": most, "of": limit })));
        assert_eq!(files.list(), [""; 0], "{limit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_breaks_off_is_told_from_one_that_ends() {
    let files = Files::new();
    let bundles = files.bundles();
    let whole = bundle(&[("svc.json", b"{}"), ("assets/noise", &noise(50_000))]);
    for sent in [0, 1, whole.len() / 2, whole.len()] {
        let failure = stream::iter([Err(io::Error::other("the line went dead"))]);
        let broken = body(&whole[..sent], 1000).chain(failure);
        let refused = bundles.receive("upload", LIMITS, broken).await.unwrap_err();
        assert!(matches!(refused, ProjectError::UploadBroken(_)), "after {sent}: {refused:?}");
        assert_eq!(refused.code(), &Code::BAD_REQUEST);
        assert_eq!(files.list(), [""; 0], "after {sent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_nobody_waits_for_any_more_leaves_nothing() {
    let files = Files::new();
    let bundles = files.bundles();
    let whole = bundle(&[("svc.json", b"{}"), ("assets/noise", &noise(50_000))]);
    // Half of it comes, and then nothing more.
    let stalled = body(&whole[..whole.len() / 2], 1000).chain(stream::pending());
    {
        let mut upload = pin!(bundles.receive("upload", LIMITS, stalled));
        while files.list().is_empty() {
            let pause = tokio::time::sleep(Duration::from_millis(10));
            tokio::select! {
                outcome = &mut upload => panic!("it ended: {outcome:?}"),
                () = pause => {}
            }
        }
    }
    let gone = async {
        while !files.list().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap();
    bundles.receive("upload", LIMITS, body(&whole, 1000)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_refusal_the_body_is_read_on_for_a_while() {
    let files = Files::new();
    let bundles = files.bundles();
    // A client that sends first and reads then sees the answer only when all it sends is taken.
    for (chunks, most) in [(50, 51), (100_000, 120)] {
        let polled = AtomicUsize::new(0);
        let endless = stream::iter(0..chunks).map(|_| {
            polled.fetch_add(1, Ordering::SeqCst);
            Ok::<_, io::Error>(Bytes::from_static(&[b'x'; 1000]))
        });
        let refused = bundles.receive("upload", LIMITS, endless).await.unwrap_err();
        assert_eq!(refused.code(), &ProjectError::INVALID_BUNDLE);
        let polled = polled.into_inner();
        assert!(polled >= chunks.min(100) && polled <= most, "{polled} chunks of {chunks}");
    }
}
