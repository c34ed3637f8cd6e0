//! The user's browser. It takes an address from its command line, which every user of the machine may be able to read; a
//! file that leads there would not be readable to a browser that is confined.

use std::ffi::OsString;
use std::process::{Command, Stdio};

/// Opens an address, in what `BROWSER` names or the system's own. Answers whether that began.
pub fn open(url: &str) -> bool {
    let system = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let program = std::env::var_os("BROWSER").filter(|name| !name.is_empty()).unwrap_or_else(|| OsString::from(system));
    let mut command = Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}
