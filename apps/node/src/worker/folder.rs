//! The folders that workers run from.
//!
//! Every path to a socket in one goes through an open file of the folder, for the node as for the worker: such a path
//! is short whatever the folder's, and the worker needs no way through the folders above.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

use super::definition::Definition;
use crate::cache::Cache;
use crate::random;

/// Where the worker finds the node's socket for its assets.
pub const ASSETS: &str = "assets";
/// Where the worker answers.
pub const HTTP: &str = "http";
/// Where the watchdog asks.
pub const PROBE: &str = "probe";

/// The folder that holds those of all workers.
pub struct Run {
    path: PathBuf,
    open: File,
}

/// The folder of one process, of a random name; gone when dropped.
pub struct Folder {
    path: PathBuf,
    open: File,
}

impl Run {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), open: File::open(path)? })
    }

    /// Listens for questions about assets. Who may connect is decided by the folders that the socket is linked into.
    pub fn listen(&self) -> io::Result<UnixListener> {
        let path = through(&self.open, ASSETS);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(path, Permissions::from_mode(0o666))?;
        Ok(listener)
    }

    /// A folder for a process of the user `uid`, with all that it is to read. Blocks.
    pub fn folder(&self, cache: &Cache, definition: &Definition<'_>, uid: Option<u32>) -> io::Result<Folder> {
        let path = self.path.join(random::id().simple().to_string());
        DirBuilder::new().mode(0o700).create(&path)?;
        let folder = Folder { open: File::open(&path)?, path };
        let path = &folder.path;
        put(&path.join("config.capnp"), definition.text().as_bytes())?;
        put(&path.join(definition.probe_file()), definition.probe().as_bytes())?;
        for (name, content) in definition.files() {
            let to = path.join(name);
            fs::copy(cache.blob(content), &to)?;
            fs::set_permissions(to, Permissions::from_mode(0o644))?;
        }
        fs::hard_link(self.path.join(ASSETS), path.join(ASSETS))?;
        chown(path, uid, uid)?;
        Ok(folder)
    }
}

impl Folder {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For finding the sockets of a process of the user `uid`, or of the node's own.
    pub fn opened(&self, uid: Option<u32>) -> io::Result<Opened> {
        Ok(Opened { folder: self.open.try_clone()?, uid })
    }
}

/// A process's folder, for finding its sockets. It may be gone already.
pub struct Opened {
    folder: File,
    uid: Option<u32>,
}

/// Where a worker listens, as it was found: the folder is the worker's own, and what it puts under the name later, a link
/// to somebody else's socket say, is not what the node talks to.
pub struct Socket(OwnedFd);

impl Opened {
    /// The socket of this name, if the process's user listens there.
    #[cfg(target_os = "linux")]
    pub fn socket(&self, name: &str) -> io::Result<Socket> {
        use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

        let socket = openat(&self.folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let found = fstat(&socket)?;
        let owner = self.uid.unwrap_or_else(|| rustix::process::geteuid().as_raw());
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket || found.st_uid != owner {
            return Err(io::Error::other("not a socket of the worker's"));
        }
        Ok(Socket(socket))
    }

    #[cfg(not(target_os = "linux"))]
    pub fn socket(&self, _: &str) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Socket {
    pub async fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(format!("/proc/self/fd/{}", self.0.as_raw_fd())).await
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, "the folder of a worker cannot be removed; the next start does");
        }
    }
}

/// Whatever the mask of the node's files is.
fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(0o644))
}

fn through(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}
