//! Prompts for confirmations, lines of text and secrets. Secrets come from the terminal or stdin, never from arguments,
//! which other users can read.

use std::io::{self, IsTerminal as _, Write as _};

use client::Secret;

use crate::error::CliError;
use crate::output::clean;

/// Reads a secret without echo from the terminal, or from the first line of stdin.
pub fn secret(name: &str) -> Result<Secret, CliError> {
    read(name, || {
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        Ok(line)
    })
}

/// Reads a secret without echo from the terminal, or the whole of stdin, without a line break at the end.
pub fn secret_lines(name: &str) -> Result<Secret, CliError> {
    read(name, || io::read_to_string(io::stdin()))
}

fn read(name: &str, from_stdin: impl FnOnce() -> io::Result<String>) -> Result<Secret, CliError> {
    let text = if io::stdin().is_terminal() { rpassword::prompt_password(format!("{name}: "))? } else { from_stdin()? };
    let text = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if text.is_empty() {
        return Err(CliError::Usage(format!("no {name} was given: enter it, or pass it on standard input")));
    }
    Ok(Secret::new(text))
}

/// Asks the user to confirm. Returns false if stdin is not a terminal.
pub fn confirm(question: &str) -> Result<bool, CliError> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    eprint!("{} [y/N] ", clean(question));
    io::stderr().flush()?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Asks the user to confirm, unless the option `--yes` is set. Otherwise, the error states that nothing was `done`, such
/// as `deleted`.
pub fn require_yes(yes: bool, question: &str, done: &str) -> Result<(), CliError> {
    match yes || confirm(question)? {
        true => Ok(()),
        false => Err(CliError::Usage(format!("nothing was {done}: confirm with --yes"))),
    }
}

/// Asks for a line of text. Returns `None` for an empty one, and if stdin is not a terminal.
pub fn line(label: &str) -> Result<Option<String>, CliError> {
    if !io::stdin().is_terminal() {
        return Ok(None);
    }
    eprint!("{}: ", clean(label));
    io::stderr().flush()?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(Some(line.trim().to_owned()).filter(|line| !line.is_empty()))
}
