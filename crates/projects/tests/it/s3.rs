//! Bundles in a bucket, on an S3 server that checks signatures.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kernel::{ApiError as _, BundleLimits, ClockRng, Code, Digest, SessionId};
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt as _};
use objects::{S3Config, StoreConfig, Timeouts};
use projects::{Bundles, ProjectError};
use sandbox::S3Server;
use settings::Secret;
use testkit::bundle::{body, incompressible, pack as bundle, site};

use crate::kit::admit;

const BUCKET: &str = "test-bundles";

const LIMITS: BundleLimits = BundleLimits { compressed: 64 << 20, unpacked: 64 << 20, entries: 10 };

/// A separate S3 server per test, with one bucket.
struct Server {
    folder: PathBuf,
    server: S3Server,
}

impl Server {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let name = format!("s3-{}", ClockRng::system().id::<SessionId>());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(folder.join(BUCKET)).unwrap();
        Self { server: S3Server::start(&folder).await.unwrap(), folder }
    }

    /// Returns the configuration of the bucket, with valid credentials.
    fn s3(&self, prefix: &str) -> S3Config {
        S3Config {
            bucket: BUCKET.to_owned(),
            prefix: prefix.to_owned(),
            region: "us-east-1".to_owned(),
            endpoint: Some(format!("http://{}", self.server.address())),
            access_key_id: S3Server::ACCESS_KEY_ID.to_owned(),
            secret_access_key: Secret::new(S3Server::SECRET_ACCESS_KEY.to_owned()),
            session_token: None,
            timeouts: Timeouts { read: Duration::from_secs(30), retry: Duration::from_secs(5) },
        }
    }

    fn bundles(&self, prefix: &str) -> Bundles {
        open(self.s3(prefix))
    }

    /// Opens the bucket's files directly.
    fn objects(&self) -> Arc<dyn ObjectStore> {
        Arc::new(LocalFileSystem::new_with_prefix(self.folder.join(BUCKET)).unwrap())
    }

    /// Lists all objects and the parts of unfinished uploads.
    fn list(&self) -> Vec<String> {
        self.server.files()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn open(s3: S3Config) -> Bundles {
    Bundles::new(StoreConfig::S3(s3).open().unwrap())
}

async fn stored(bundles: &Bundles, digest: Digest) -> Vec<u8> {
    let (length, bytes) = bundles.open(digest).await.unwrap();
    let chunks: Vec<Bytes> = bytes.try_collect().await.unwrap();
    assert_eq!(length, chunks.iter().map(Bytes::len).sum::<usize>() as u64);
    chunks.concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_bundle_equals_the_upload() {
    let server = Server::start().await;
    let bundles = server.bundles("some/prefix");
    // One upload is longer than two parts, the other shorter than one.
    let large = bundle(&[("svc.json", b"{}"), ("assets/noise", &incompressible(12 << 20))]);
    for upload in [large, site("one")] {
        let digest = Digest::of(&upload);
        for _ in 0..2 {
            let received = bundles.receive("upload", LIMITS, body(&upload, 100_000), admit).await.unwrap();
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
async fn rejected_and_interrupted_uploads_leave_nothing() {
    let server = Server::start().await;
    let bundles = server.bundles("");
    let whole = bundle(&[("svc.json", b"{}"), ("assets/noise", &incompressible(12 << 20))]);
    let refused =
        bundles.receive("refused", LIMITS, body(&[&*whole, b"x"].concat(), 100_000), admit).await.unwrap_err();
    assert_eq!(refused.code(), &ProjectError::INVALID_BUNDLE);
    wait_until_empty(&server).await;

    let failure = stream::iter([Err(io::Error::other("connection reset"))]);
    let broken = body(&whole[..11 << 20], 100_000).chain(failure);
    let refused = bundles.receive("broken", LIMITS, broken, admit).await.unwrap_err();
    assert_eq!(refused.code(), &Code::BAD_REQUEST);
    wait_until_empty(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_upload_leaves_nothing() {
    let server = Server::start().await;
    let bundles = server.bundles("");
    let whole = bundle(&[("svc.json", b"{}"), ("assets/noise", &incompressible(12 << 20))]);
    let stalled = body(&whole[..11 << 20], 100_000).chain(stream::pending());
    {
        let mut upload = pin!(bundles.receive("upload", LIMITS, stalled, admit));
        while server.list().is_empty() {
            let pause = tokio::time::sleep(Duration::from_millis(10));
            tokio::select! {
                outcome = &mut upload => panic!("the upload ended: {outcome:?}"),
                () = pause => {}
            }
        }
    }
    wait_until_empty(&server).await;
}

/// Waits until the server has no objects. It cleans up interrupted requests asynchronously.
async fn wait_until_empty(server: &Server) {
    let gone = async {
        while !server.list().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(30), gone).await;
    assert!(gone.is_ok(), "{:?}", server.list());
}

#[tokio::test(flavor = "multi_thread")]
async fn sweep_deletes_old_temporary_objects() {
    let server = Server::start().await;
    let bundles = server.bundles("p");
    let digest = bundles.receive("upload", LIMITS, body(&site("kept"), 100), admit).await.unwrap().digest;
    server.objects().put(&"p/incoming/old".into(), "partial content".into()).await.unwrap();
    let now = ClockRng::system().now();
    assert_eq!(bundles.sweep(now.plus_seconds(-3600)).await.unwrap(), 0);
    assert_eq!(server.list().len(), 2);
    assert_eq!(bundles.sweep(now.plus_seconds(3600)).await.unwrap(), 1);
    assert_eq!(server.list(), [format!("{BUCKET}/p/bundles/{}", digest.hex())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_supports_range_reads() {
    let server = Server::start().await;
    let upload = site("page");
    let digest = server.bundles("").receive("upload", LIMITS, body(&upload, 100), admit).await.unwrap().digest;
    let location = format!("bundles/{}", digest.hex()).into();
    assert_eq!(server.objects().get_range(&location, 3..20).await.unwrap(), &upload[3..20]);
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_or_unreachable_bucket_returns_unavailable() {
    let server = Server::start().await;
    let closed = testkit::reserved_address();
    let wrong_secret = S3Config { secret_access_key: Secret::new("guess".to_owned()), ..server.s3("") };
    let unreachable = S3Config { endpoint: Some(format!("https://{closed}")), ..server.s3("") };
    for s3 in [wrong_secret, unreachable] {
        let bundles = open(s3);
        let failed = bundles.receive("upload", LIMITS, body(&site("page"), 100), admit).await.unwrap_err();
        assert_eq!(failed.code(), &Code::UNAVAILABLE, "{failed:?}");
        assert!(!format!("{failed:?}").contains("guess"));
    }
    assert_eq!(server.list(), [""; 0]);
}
