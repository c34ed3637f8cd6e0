//! Bodies that are files.

use std::fmt;
use std::io;
use std::sync::Arc;

use reqwest::Body;

/// A file to send. It is opened anew for each attempt, and streamed.
#[derive(Clone)]
pub struct Upload {
    bytes: u64,
    open: Arc<dyn Fn() -> io::Result<Body> + Send + Sync>,
}

impl Upload {
    /// What `open` gives, each time the same; `bytes` of it.
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
