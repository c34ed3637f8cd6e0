//! The object stores of the tests.

use std::fs;
use std::time::Duration;

use chaos::{Proxy, Upstream};
use objects::{S3Config, StoreConfig, Timeouts};
use sandbox::S3Server;
use settings::Secret;

use crate::running::Dir;

const BUCKET: &str = "projects-objects";

#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Folder,
    S3,
}

/// A store with its own folder.
pub struct TestStore {
    dir: Dir,
    s3: Option<S3>,
}

struct S3 {
    server: S3Server,
    proxy: Proxy,
}

impl TestStore {
    pub async fn start(kind: Kind) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = Dir::new();
        let s3 = match kind {
            Kind::Folder => None,
            Kind::S3 => {
                fs::create_dir(dir.path().join(BUCKET)).unwrap();
                let server = S3Server::start(dir.path()).await.unwrap();
                let proxy = Proxy::start(Upstream::Tcp(server.address())).await.unwrap();
                Some(S3 { server, proxy })
            }
        };
        Self { dir, s3 }
    }

    /// Returns the configuration of the store. A bucket is reached through the proxy.
    pub fn config(&self) -> StoreConfig {
        let Some(S3 { proxy, .. }) = &self.s3 else { return StoreConfig::Folder(self.dir.path().to_owned()) };
        StoreConfig::S3(S3Config {
            bucket: BUCKET.to_owned(),
            prefix: "node".to_owned(),
            region: "us-east-1".to_owned(),
            endpoint: Some(format!("http://{}", proxy.address())),
            access_key_id: S3Server::ACCESS_KEY_ID.to_owned(),
            secret_access_key: Secret::new(S3Server::SECRET_ACCESS_KEY.to_owned()),
            session_token: None,
            timeouts: Timeouts { read: Duration::from_secs(18), retry: Duration::from_secs(15) },
        })
    }

    /// Returns the settings of a node with this store.
    pub fn settings(&self) -> Vec<(String, String)> {
        let settings = match self.config() {
            StoreConfig::Folder(folder) => vec![("SVC_NODE_STORAGE", format!("file://{}", folder.display()))],
            StoreConfig::S3(s3) => vec![
                ("SVC_NODE_STORAGE", format!("s3://{}/{}", s3.bucket, s3.prefix)),
                ("SVC_NODE_STORAGE_ACCESS_KEY_ID", s3.access_key_id),
                ("SVC_NODE_STORAGE_SECRET_ACCESS_KEY", s3.secret_access_key.reveal().to_owned()),
                ("SVC_NODE_STORAGE_ENDPOINT_URL", s3.endpoint.unwrap()),
            ],
        };
        settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Returns the proxy in front of the S3 server.
    pub fn proxy(&self) -> &Proxy {
        &self.s3.as_ref().unwrap().proxy
    }

    /// Returns the paths of all blobs and of the parts of unfinished uploads. Omits the files that the S3 server writes
    /// while it receives a request.
    pub fn blobs(&self) -> Vec<String> {
        let files = match &self.s3 {
            Some(S3 { server, .. }) => server.files(),
            None => files(self.dir.path(), ""),
        };
        // If the response to the creation of an upload was lost, the upload has no parts. The bucket removes it after a
        // day (docs/storage.md).
        let is_empty_upload = |file: &str| file.starts_with(".upload-") && file.ends_with(".json");
        let is_internal = |file: &str| file.ends_with("/owner") || file.starts_with(".tmp.") || is_empty_upload(file);
        files.into_iter().filter(|file| !is_internal(file)).collect()
    }

    /// Returns the folder with the blobs of a prefix.
    pub fn folder(&self, prefix: &str) -> std::path::PathBuf {
        match self.s3 {
            Some(_) => self.dir.path().join(BUCKET).join("node").join(prefix),
            None => self.dir.path().join(prefix),
        }
    }
}

fn files(folder: &std::path::Path, relative: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder.join(relative)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{relative}{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            found.extend(files(folder, &format!("{path}/")));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}
