//! Programs of others that tests are run with, and where those find what they read.

use std::path::PathBuf;

use kernel::World;

/// The program that this variable names, unless it could not be had.
pub fn outside(variable: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    if named.is_none() {
        eprintln!("SKIPPED: there is no program named by {variable}; cargo xtask test obtains it");
    }
    named
}

/// A folder that goes with the test.
pub struct Folder {
    pub path: PathBuf,
}

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("svc-{name}-{}", World::system().id::<uuid::Uuid>()));
        std::fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
