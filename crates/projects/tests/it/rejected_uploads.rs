//! Rejected and interrupted uploads: the error, how much of the body is read, and the cleanup.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use kernel::{ApiError as _, BundleLimits, Code};
use projects::ProjectError;
use serde_json::json;

use crate::kit::{Files, admit, body, bundle, incompressible, site};

const LIMITS: BundleLimits = BundleLimits { compressed: 100_000, unpacked: 200_000, entries: 4 };

#[tokio::test(flavor = "multi_thread")]
async fn invalid_bundles_are_rejected_with_the_reason() {
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
        let refused = bundles.receive("upload", LIMITS, body(&upload, 20), admit).await.unwrap_err();
        assert_eq!(refused.code(), &ProjectError::INVALID_BUNDLE, "{reason}");
        let details = refused.details().unwrap();
        assert_eq!(details["reason"], json!(reason));
        assert!(entry.is_none_or(|entry| details["entry"] == json!(entry)), "{details}");
        assert_eq!(files.list(), [""; 0], "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_bundles_are_rejected_with_the_limit() {
    let files = Files::new();
    let bundles = files.bundles();
    let many: Vec<String> = (0..4).map(|n| format!("assets/{n}")).collect();
    let mut entries: Vec<(&str, &[u8])> = vec![("svc.json", b"{}")];
    entries.extend(many.iter().map(|path| (path.as_str(), b"x".as_slice())));
    let page = |content: &[u8]| bundle(&[("svc.json", b"{}"), ("assets/a", content)]);
    for (upload, limit, max) in [
        (page(&incompressible(150_000)), "compressed", 100_000),
        (page(&[0; 250_000]), "unpacked", 200_000),
        (bundle(&entries), "entries", 4),
    ] {
        let refused = bundles.receive("upload", LIMITS, body(&upload, 1000), admit).await.unwrap_err();
        assert_eq!(refused.code(), &kernel::Code::PAYLOAD_TOO_LARGE, "{limit}");
        assert_eq!(refused.details(), Some(json!({ "limit": max, "of": limit })));
        assert_eq!(files.list(), [""; 0], "{limit}");
    }
    let names: Vec<String> = (0..2049).map(|n| format!("assets/{n:04}/{}", "x".repeat(1012))).collect();
    let upload = bundle(&names.iter().map(|path| (path.as_str(), b"".as_slice())).collect::<Vec<_>>());
    let limits = BundleLimits { compressed: 1 << 20, entries: 20_000, ..LIMITS };
    let refused = bundles.receive("upload", limits, body(&upload, 1000), admit).await.unwrap_err();
    assert_eq!(refused.code(), &kernel::Code::PAYLOAD_TOO_LARGE);
    assert_eq!(refused.details(), Some(json!({ "limit": 2 << 20, "of": "names" })));
    let message = "the bundle was rejected: The bundle exceeds the limit of 2097152 bytes of file names in total.";
    assert_eq!(refused.to_string(), message);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_body_differs_from_a_truncated_one() {
    let files = Files::new();
    let bundles = files.bundles();
    let whole = bundle(&[("svc.json", b"{}"), ("assets/noise", &incompressible(50_000))]);
    for sent in [0, 1, whole.len() / 2, whole.len()] {
        let failure = stream::iter([Err(io::Error::other("connection reset"))]);
        let broken = body(&whole[..sent], 1000).chain(failure);
        let refused = bundles.receive("upload", LIMITS, broken, admit).await.unwrap_err();
        assert!(matches!(refused, ProjectError::UploadBroken(_)), "after {sent}: {refused:?}");
        assert_eq!(refused.code(), &Code::BAD_REQUEST);
        assert_eq!(files.list(), [""; 0], "after {sent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_upload_leaves_nothing() {
    let files = Files::new();
    let bundles = files.bundles();
    let mut limits = LIMITS;
    (limits.compressed, limits.unpacked) = (1_000_000, 1_000_000);
    // This asset is larger than one part of an upload.
    let whole = bundle(&[("svc.json", b"{}"), ("assets/noise", &incompressible(300_000))]);
    // The body stalls before its end.
    let stalled = body(&whole[..whole.len() - 1000], 1000).chain(stream::pending());
    {
        let mut upload = pin!(bundles.receive("upload", limits, stalled, admit));
        while files.list().is_empty() {
            let pause = tokio::time::sleep(Duration::from_millis(10));
            tokio::select! {
                outcome = &mut upload => panic!("the upload ended: {outcome:?}"),
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
    bundles.receive("upload", limits, body(&whole, 1000), admit).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rest_of_a_rejected_body_is_read_up_to_a_limit() {
    let files = Files::new();
    let bundles = files.bundles();
    // Some clients read the response only after they have sent the whole body.
    for (chunks, max) in [(50, 51), (100_000, 120)] {
        let polled = AtomicUsize::new(0);
        let endless = stream::iter(0..chunks).map(|_| {
            polled.fetch_add(1, Ordering::SeqCst);
            Ok::<_, io::Error>(Bytes::from_static(&[b'x'; 1000]))
        });
        let refused = bundles.receive("upload", LIMITS, endless, admit).await.unwrap_err();
        assert_eq!(refused.code(), &ProjectError::INVALID_BUNDLE);
        let polled = polled.into_inner();
        assert!(polled >= chunks.min(100) && polled <= max, "{polled} chunks of {chunks}");
    }
}
