//! An object store: `s3s-fs`, a server of the S3 protocol that keeps objects as files.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{fs, time};

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::listener::accept;

/// The first character of the names of files that are not objects.
const HIDDEN: char = '.';

/// An S3 server. It rejects requests without a valid signature. When it is dropped, it closes all connections, and the
/// objects stay in the folder.
#[derive(Debug)]
pub struct S3Server {
    address: SocketAddr,
    folder: PathBuf,
    accepting: AbortHandle,
}

/// An object, or a part of an unfinished upload, in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredFile {
    pub path: String,
    pub size: u64,
}

impl S3Server {
    /// The credentials of the only user.
    pub const ACCESS_KEY_ID: &'static str = "sandbox";
    pub const SECRET_ACCESS_KEY: &'static str = "sandbox-hush";

    /// Starts a server on a free port. Each folder in `folder` is a bucket.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read or no port can be bound.
    pub async fn start(folder: &Path) -> io::Result<Self> {
        Self::start_on(([127, 0, 0, 1], 0).into(), folder).await
    }

    /// Starts a server on this address.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read or the address is in use.
    pub async fn start_on(address: SocketAddr, folder: &Path) -> io::Result<Self> {
        let files = FileSystem::new(folder).map_err(|error| io::Error::other(format!("{error:?}")))?;
        let mut service = S3ServiceBuilder::new(files);
        service.set_auth(SimpleAuth::from_single(Self::ACCESS_KEY_ID, Self::SECRET_ACCESS_KEY));
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(serve(listener, service.build())).abort_handle();
        Ok(Self { address, folder: folder.to_owned(), accepting })
    }

    /// Returns the address of the server.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the paths of all objects and of the parts of unfinished uploads, with their buckets, in order.
    ///
    /// # Panics
    /// Panics if the folder cannot be read.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        self.list().into_iter().map(|file| file.path).collect()
    }

    /// Returns all objects and unfinished parts, without the metadata files of the server.
    pub(crate) fn list(&self) -> Vec<StoredFile> {
        let (mut files, mut folders) = (Vec::new(), vec![self.folder.clone()]);
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(folder) else { continue };
            for entry in entries {
                let path = entry.unwrap().path();
                let relative = path.strip_prefix(&self.folder).unwrap().display().to_string();
                // A file may be deleted while the folder is read.
                match fs::metadata(&path) {
                    Ok(found) if found.is_dir() => folders.push(path),
                    Ok(found) if !relative.starts_with(".bucket-") => {
                        files.push(StoredFile { path: relative, size: found.len() });
                    }
                    _ => {}
                }
            }
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        files
    }

    /// Returns the names of the buckets, in order.
    pub(crate) fn buckets(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).unwrap().map(Result::unwrap);
        let folders = entries.filter(|entry| entry.path().is_dir());
        let mut buckets: Vec<String> =
            folders.map(|entry| entry.file_name().display().to_string()).filter(|it| !it.starts_with(HIDDEN)).collect();
        buckets.sort();
        buckets
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Serves until the future is dropped, which also closes the connections.
async fn serve(listener: TcpListener, service: S3Service) {
    let mut connection = http1::Builder::new();
    connection.timer(TokioTimer::new()).header_read_timeout(time::Duration::from_secs(60));
    accept(listener, move |stream| connection.serve_connection(TokioIo::new(stream), service.clone())).await;
}
