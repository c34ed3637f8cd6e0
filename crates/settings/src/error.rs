//! Errors of settings.

use std::fmt::Display;

/// An error of one setting: one line that begins with its name and contains no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} {problem}")]
pub struct Error {
    name: String,
    problem: String,
}

impl Error {
    /// Creates an error. Removes line breaks, because names and the messages of parsers come from the environment or
    /// the file.
    pub(crate) fn new(name: &str, problem: impl Display) -> Self {
        let on_one_line = |text: &str| text.replace(char::is_control, " ");
        Self { name: on_one_line(name), problem: on_one_line(&problem.to_string()) }
    }

    pub(crate) fn malformed(name: &str, why: impl Display) -> Self {
        Self::new(name, format_args!("is malformed: {why}"))
    }
}
