//! Generated doc comments.

use std::fmt::Write as _;

use anyhow::Result;

/// Writes a description as the doc comment of the next item.
pub fn comment(text: &mut String, description: Option<&str>) -> Result<()> {
    for line in description.unwrap_or_default().lines() {
        writeln!(text, "/// {line}")?;
    }
    Ok(())
}
