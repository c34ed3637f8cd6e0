//! Questions, on a terminal, and secrets, which come from there or through a pipe and are never arguments: those are
//! everybody's to see.

use std::io::{self, IsTerminal as _, Write as _};

use client::Secret;

use crate::failure::Failure;
use crate::output::clean;

/// A secret, typed unseen or the first line of stdin.
pub fn secret(what: &str) -> Result<Secret, Failure> {
    let text = if io::stdin().is_terminal() {
        rpassword::prompt_password(format!("{what}: "))?
    } else {
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        line
    };
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() { Err(Failure::Usage(format!("no {what} was given"))) } else { Ok(Secret::new(text)) }
}

/// Whether whoever sits there says yes; nobody does where nobody sits.
pub fn confirmed(question: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    eprint!("{} [y/N] ", clean(question));
    io::stderr().flush()?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
