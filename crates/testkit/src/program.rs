//! Programs that tests write.

use std::path::Path;
use std::process::Command;

/// Writes a script and makes it executable. A child process writes it: if another thread starts a program while this
/// process has the script open, the new process inherits the open file until its exec. Until then, an exec of the script
/// fails with "Text file busy".
///
/// # Panics
/// Panics if the script cannot be written.
pub fn write_program(path: &Path, script: &str) {
    let write = r#"printf %s "$1" > "$0" && chmod 755 "$0""#;
    let written = Command::new("sh").args(["-c", write]).arg(path).arg(script).status().unwrap();
    assert!(written.success(), "cannot write {}", path.display());
}
