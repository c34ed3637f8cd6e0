//! The folders of worker processes.
//!
//! The node and the worker both reach the sockets in a folder through an open file descriptor of the folder. A path
//! through this descriptor is short enough for a socket address, and the worker needs no access to the parent folders.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

use crate::random;

/// The node's socket for the bindings.
pub const BINDINGS_SOCKET: &str = "bindings";
/// The node's socket for outgoing connections.
pub const EGRESS_SOCKET: &str = "egress";
/// The worker's socket for requests.
pub const HTTP_SOCKET: &str = "http";
/// The worker's socket for received mail, if the project has a mail address.
pub const EMAIL_SOCKET: &str = "email";
/// The worker's socket for the watchdog's probes.
pub const PROBE_SOCKET: &str = "probe";

/// The parent folder of all workers' folders.
pub struct RunDir {
    path: PathBuf,
    open: File,
}

/// The folder of one process, with a random name; removed when dropped.
pub struct Folder {
    path: PathBuf,
    open: File,
}

impl RunDir {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), open: File::open(path)? })
    }

    /// Listens for requests to bindings. Each worker reaches the socket through a link in its folder, so the
    /// permissions of the folder control the access.
    pub fn listen(&self) -> io::Result<UnixListener> {
        listen(&self.open, BINDINGS_SOCKET)
    }

    /// Creates a folder for a process of the user `uid`. It contains only sockets. Blocks.
    pub fn create_folder(&self, uid: Option<u32>) -> io::Result<Folder> {
        let path = self.path.join(random::id().simple().to_string());
        DirBuilder::new().mode(0o700).create(&path)?;
        let folder = Folder { open: File::open(&path)?, path };
        fs::hard_link(self.path.join(BINDINGS_SOCKET), folder.path.join(BINDINGS_SOCKET))?;
        chown(&folder.path, uid, uid)?;
        Ok(folder)
    }
}

impl Folder {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name, which no other folder has.
    pub fn name(&self) -> io::Result<&str> {
        self.path.file_name().and_then(|name| name.to_str()).ok_or_else(|| io::ErrorKind::InvalidFilename.into())
    }

    /// Listens for outgoing connections of the process. The permissions of the folder control access to the socket.
    pub fn listen(&self) -> io::Result<UnixListener> {
        listen(&self.open, EGRESS_SOCKET)
    }

    /// Returns a handle to find the sockets of a process of the user `uid`, or of the node's user.
    pub fn handle(&self, uid: Option<u32>) -> io::Result<FolderHandle> {
        Ok(FolderHandle { folder: self.open.try_clone()?, uid })
    }
}

/// A handle of a process's folder, to find its sockets. The folder may already be removed.
pub struct FolderHandle {
    folder: File,
    uid: Option<u32>,
}

/// An open reference to a worker's socket. The worker owns the folder and could replace the socket, for example by a
/// link to another socket; this reference still leads to the original.
pub struct Socket(OwnedFd);

impl FolderHandle {
    /// Opens the socket `name`. It must belong to the process's user.
    #[cfg(target_os = "linux")]
    pub fn socket(&self, name: &str) -> io::Result<Socket> {
        use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

        let socket = openat(&self.folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&socket)?;
        let owner = self.uid.unwrap_or_else(|| rustix::process::geteuid().as_raw());
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket || stat.st_uid != owner {
            return Err(io::Error::other("not a socket of the worker's user"));
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
            tracing::warn!(%error, "failed to remove a worker's folder; the next start of the node removes it");
        }
    }
}

fn listen(folder: &File, name: &str) -> io::Result<UnixListener> {
    let path = path_through(folder, name);
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(path, Permissions::from_mode(0o666))?;
    Ok(listener)
}

fn path_through(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}
