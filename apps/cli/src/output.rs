//! What is printed: data to stdout, words to stderr.

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, IsTerminal as _, Write as _};

use client::{Answer, Page};
use serde_json::Value;

use crate::failure::Failure;

pub struct Output {
    json: bool,
    colour: bool,
    /// Whether there was a document: one command prints one.
    printed: Cell<bool>,
}

impl Output {
    /// Colours are for terminals (<https://no-color.org>, <https://bixense.com/clicolors>).
    pub fn new(json: bool) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            json,
            colour: !plain && (set("CLICOLOR_FORCE") || io::stderr().is_terminal()),
            printed: Cell::new(false),
        }
    }

    /// Prints an answer: as it came, or as people read it.
    pub fn answer<T>(&self, answer: &Answer<T>, show: impl FnOnce(&T) -> String) -> Result<(), Failure> {
        if self.json { self.document(&answer.json) } else { self.data(&clean(&show(&answer.value))) }
    }

    /// Prints a part of a list, a row for each item, and tells where the list goes on.
    pub fn list<T, const N: usize>(
        &self,
        page: &Answer<Page<T>>,
        head: [&str; N],
        row: impl Fn(&T) -> [String; N],
    ) -> Result<(), Failure> {
        self.answer(page, |page| table(head, page.items.iter().map(row)))?;
        if let Some(cursor) = page.next_cursor.as_ref().filter(|_| !self.json) {
            self.say(format!("there are more: --cursor {cursor}"));
        }
        Ok(())
    }

    /// Prints the answer to what leaves nothing to show, and tells that it is done.
    pub fn gone(&self, answer: &Answer<()>, words: impl AsRef<str>) -> Result<(), Failure> {
        self.answer(answer, |()| String::new())?;
        self.done(words);
        Ok(())
    }

    /// Prints what no answer says, for programs. People are told in words.
    pub fn for_programs(&self, json: &Value) -> Result<(), Failure> {
        if self.json { self.document(json) } else { Ok(()) }
    }

    /// Prints the data that people asked for, as it is.
    pub fn data(&self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        if !text.is_empty() {
            writeln!(stdout, "{}", text.trim_end_matches('\n'))?;
        }
        Ok(stdout.flush()?)
    }

    fn document(&self, json: &Value) -> Result<(), Failure> {
        self.printed.set(true);
        self.data(&format!("{json:#}"))
    }

    /// Tells something. That nobody reads it is no failure.
    pub fn say(&self, words: impl AsRef<str>) {
        let _ = writeln!(io::stderr().lock(), "{}", clean(words.as_ref()));
    }

    /// Tells something under a heading.
    fn say_as(&self, colour: &str, heading: &str, words: &str) {
        let _ = writeln!(io::stderr().lock(), "{} {}", self.paint(colour, heading), clean(words));
    }

    /// Tells that something is done.
    pub fn done(&self, words: impl AsRef<str>) {
        self.say_as("32", "✓", words.as_ref());
    }

    /// Tells of what is not as it should be, and stops nothing.
    pub fn warn(&self, words: impl AsRef<str>) {
        self.say_as("33", "warning:", words.as_ref());
    }

    pub fn failed(&self, failure: &Failure) {
        if matches!(failure, Failure::Closed) {
            return;
        }
        if let Some(json) = failure.json().filter(|_| self.json && !self.printed.get()) {
            let _ = self.document(json);
        }
        self.say_as("31", "error:", &failure.to_string());
        for line in failure.details() {
            self.say(format!("  {line}"));
        }
        if let Some(hint) = failure.hint() {
            self.say_as("36", "next:", &hint);
        }
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[1;{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// For people: what strangers wrote moves no cursor and changes no colour.
pub fn clean(text: &str) -> Cow<'_, str> {
    let moves = |c: char| c.is_control() && c != '\n';
    if text.contains(moves) { text.replace(moves, "\u{fffd}").into() } else { text.into() }
}

/// Rows in columns, each in one line whatever is in it.
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

/// A value that may not be there.
pub fn or_dash(value: Option<&str>) -> String {
    value.unwrap_or("–").to_owned()
}
