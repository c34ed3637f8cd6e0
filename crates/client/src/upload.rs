//! Request bodies from files.

use std::fmt;
use std::io;
use std::sync::Arc;

use reqwest::Body;

/// A file to upload. Each attempt opens it again and streams it.
#[derive(Clone)]
pub struct Upload {
    bytes: u64,
    open: Arc<dyn Fn() -> io::Result<Body> + Send + Sync>,
}

impl Upload {
    /// Creates an upload of `bytes` bytes. `open` must return the same content each time.
    pub fn new(bytes: u64, open: impl Fn() -> io::Result<Body> + Send + Sync + 'static) -> Self {
        Self { bytes, open: Arc::new(open) }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn open(&self) -> io::Result<Body> {
        (self.open)()
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload({} bytes)", self.bytes)
    }
}
