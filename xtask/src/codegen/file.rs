//! Generated files.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use xtask::workspace;

/// The path in the checkout, and the text.
pub type File = (String, String);

/// Formats Rust source code.
pub fn rustfmt(text: &str) -> Result<String> {
    let mut command = Command::new("rustfmt");
    command.current_dir(workspace::root()?).args(["--edition", "2024"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("rustfmt")?;
    child.stdin.take().context("rustfmt has no stdin")?.write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "rustfmt rejected the generated source:\n{text}");
    Ok(String::from_utf8(output.stdout)?)
}
