//! Terminal output: data to stdout, messages to stderr.

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, IsTerminal as _, Write as _};

use client::{Page, Response};
use indicatif::BinaryBytes;
use serde_json::Value;

use crate::error::CliError;

pub struct Output {
    json: bool,
    color: bool,
    /// Whether a JSON document was printed. Each command prints at most one.
    printed: Cell<bool>,
}

impl Output {
    /// Enables colors on a terminal (<https://no-color.org>, <https://bixense.com/clicolors>).
    pub fn new(json: bool) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { json, color: !plain && (set("CLICOLOR_FORCE") || io::stderr().is_terminal()), printed: Cell::new(false) }
    }

    /// Prints a response, as JSON or in the human-readable form of `show`.
    pub fn response<T>(&self, response: &Response<T>, show: impl FnOnce(&T) -> String) -> Result<(), CliError> {
        if self.json { self.document(&response.json) } else { self.data(&clean(&show(&response.value))) }
    }

    /// Prints a page of a listing, one row per item, and the cursor of the next page.
    pub fn page<T, const N: usize>(
        &self,
        page: &Response<Page<T>>,
        head: [&str; N],
        row: impl Fn(&T) -> [String; N],
    ) -> Result<(), CliError> {
        self.response(page, |page| table(head, page.items.iter().map(row)))?;
        if let Some(cursor) = page.next_cursor.as_ref().filter(|_| !self.json) {
            self.info(format!("more results: --cursor {cursor}"));
        }
        Ok(())
    }

    /// Prints a response without a body, and a success message.
    pub fn empty_response(&self, response: &Response<()>, message: impl AsRef<str>) -> Result<(), CliError> {
        self.response(response, |()| String::new())?;
        self.success(message);
        Ok(())
    }

    /// Prints a JSON document with `--json`, otherwise nothing.
    pub fn json_only(&self, json: &Value) -> Result<(), CliError> {
        if self.json { self.document(json) } else { Ok(()) }
    }

    /// Prints text to stdout.
    pub fn data(&self, text: &str) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        if !text.is_empty() {
            writeln!(stdout, "{}", text.trim_end_matches('\n'))?;
        }
        Ok(stdout.flush()?)
    }

    /// Prints a download unchanged. On a terminal, replaces control characters other than tabs, which the author of the
    /// content could use to control it.
    pub fn download(content: &[u8]) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        if stdout.is_terminal() {
            let text = String::from_utf8_lossy(content).replace("\r\n", "\n");
            let cells: Vec<Cow<'_, str>> = text.split('\t').map(clean).collect();
            stdout.write_all(cells.join("\t").as_bytes())?;
        } else {
            stdout.write_all(content)?;
        }
        Ok(stdout.flush()?)
    }

    /// Prints a response, as JSON or as the content that it contains, like a download.
    pub fn content<T>(&self, response: &Response<T>, content: &str) -> Result<(), CliError> {
        if self.json { self.document(&response.json) } else { Self::download(content.as_bytes()) }
    }

    fn document(&self, json: &Value) -> Result<(), CliError> {
        self.printed.set(true);
        self.data(&format!("{json:#}"))
    }

    /// Prints a message. Write errors are ignored.
    pub fn info(&self, message: impl AsRef<str>) {
        let _ = writeln!(io::stderr().lock(), "{}", clean(message.as_ref()));
    }

    /// Prints a message with a colored label.
    fn labeled(&self, color: &str, label: &str, message: &str) {
        let _ = writeln!(io::stderr().lock(), "{} {}", self.paint(color, label), clean(message));
    }

    /// Prints a success message.
    pub fn success(&self, message: impl AsRef<str>) {
        self.labeled("32", "✓", message.as_ref());
    }

    /// Prints a warning.
    pub fn warn(&self, message: impl AsRef<str>) {
        self.labeled("33", "warning:", message.as_ref());
    }

    pub fn error(&self, error: &CliError) {
        if matches!(error, CliError::Closed) {
            return;
        }
        if let Some(json) = error.json().filter(|_| self.json && !self.printed.get()) {
            // Also reported if stdout is closed: the message below is on stderr.
            let _ = self.document(json);
        }
        self.labeled("31", "error:", &error.to_string());
        self.explain(error);
    }

    /// Prints an error that does not end the command.
    pub fn warn_error(&self, message: &str, error: &CliError) {
        self.warn(format!("{message}: {error}"));
        self.explain(error);
    }

    fn explain(&self, error: &CliError) {
        for line in error.details() {
            self.info(format!("  {line}"));
        }
        if let Some(hint) = error.hint() {
            self.labeled("36", "next:", &hint);
        }
    }

    fn paint(&self, color: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[1;{color}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Replaces control characters, so that untrusted text cannot control the terminal.
pub fn clean(text: &str) -> Cow<'_, str> {
    let is_unsafe = |c: char| c.is_control() && c != '\n';
    if text.contains(is_unsafe) { text.replace(is_unsafe, "\u{fffd}").into() } else { text.into() }
}

/// Formats rows as aligned columns. Control characters are replaced, so that each row stays on one line.
pub fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let flat = |cell: String| cell.replace(char::is_control, "\u{fffd}");
    let rows: Vec<[String; N]> =
        std::iter::once(head.map(str::to_owned)).chain(rows.into_iter().map(|row| row.map(flat))).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Formats names and values as two aligned columns, one row per line.
pub fn fields<T: AsRef<str>>(rows: &[[T; 2]]) -> String {
    let width = rows.iter().map(|[name, _]| name.as_ref().len()).max().unwrap_or_default();
    let line = |[name, value]: &[T; 2]| format!("{:<width$}  {}", name.as_ref(), value.as_ref());
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Formats a size in units of 1,024 bytes.
pub fn bytes(count: i64) -> String {
    // The API returns no negative size.
    BinaryBytes(count.try_into().unwrap_or_default()).to_string()
}

pub const fn yes_or_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

/// Returns the value, or a dash if it is `None`.
pub fn or_dash(value: Option<&str>) -> String {
    value.unwrap_or("–").to_owned()
}
