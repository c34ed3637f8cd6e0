//! Starts the user's browser. The URL is passed as an argument, which other users of the machine may be able to read. A
//! local file that redirects to the URL is not an alternative, because a sandboxed browser could not read the file.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// Opens a URL in the program that `BROWSER` names, by default the system's browser. Returns whether the program
/// started.
pub fn open(url: &str) -> bool {
    let system = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let program = std::env::var_os("BROWSER").filter(|name| !name.is_empty()).unwrap_or_else(|| OsString::from(system));
    let mut command = Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The terminal sends the signal of Ctrl-C to the process group of svc, which must not end the browser.
    command.process_group(0).spawn().is_ok()
}
