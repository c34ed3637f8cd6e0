//! External programs for tests, and temporary folders for their files.

use std::path::PathBuf;

use kernel::ClockRng;

/// Returns the program at the path in this variable. Returns `None` and prints a notice if the variable is not set.
pub fn external_program(variable: &str) -> Option<PathBuf> {
    let program = std::env::var_os(variable).map(PathBuf::from);
    if program.is_none() {
        eprintln!("SKIPPED: {variable} is not set; cargo xtask test installs the program and sets it");
    }
    program
}

/// A temporary folder, deleted at the end of the test.
pub struct Folder {
    pub path: PathBuf,
}

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("svc-{name}-{}", ClockRng::system().id::<uuid::Uuid>()));
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
