//! A separate S3 server per test. It stores objects as files and rejects unsigned requests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use kernel::{ClockRng, Secret, SessionId};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use projects::{Bundles, S3Config};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::net::TcpListener;

pub const BUCKET: &str = "test-bundles";
const KEY: &str = "AKIATEST";
const SECRET: &str = "test-secret";

pub struct Server {
    folder: PathBuf,
    endpoint: String,
    accepting: tokio::task::JoinHandle<()>,
}

impl Server {
    pub async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("s3-{}", ClockRng::system().id::<SessionId>()));
        std::fs::create_dir_all(folder.join(BUCKET)).unwrap();
        let mut service = S3ServiceBuilder::new(FileSystem::new(&folder).unwrap());
        service.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = service.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone());
                tokio::spawn(connection);
            }
        });
        Self { folder, endpoint, accepting }
    }

    /// Returns the configuration of the bucket, with valid credentials.
    pub fn s3(&self, prefix: &str) -> S3Config {
        S3Config {
            bucket: BUCKET.to_owned(),
            prefix: prefix.to_owned(),
            region: "us-east-1".to_owned(),
            endpoint: Some(self.endpoint.clone()),
            access_key_id: KEY.to_owned(),
            secret_access_key: Secret::new(SECRET.to_owned()),
            session_token: None,
        }
    }

    pub fn bundles(&self, prefix: &str) -> Bundles {
        Bundles::in_s3(&self.s3(prefix)).unwrap()
    }

    /// Opens the bucket's files directly.
    pub fn objects(&self) -> Arc<dyn ObjectStore> {
        Arc::new(LocalFileSystem::new_with_prefix(self.folder.join(BUCKET)).unwrap())
    }

    /// Lists all objects and the parts of unfinished uploads, without the server's metadata files.
    pub fn list(&self) -> Vec<String> {
        let (mut files, mut folders) = (Vec::new(), vec![self.folder.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let relative = path.strip_prefix(&self.folder).unwrap().display().to_string();
                if path.is_dir() {
                    folders.push(path);
                } else if !relative.starts_with(".bucket-") {
                    files.push(relative);
                }
            }
        }
        files.sort();
        files
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
