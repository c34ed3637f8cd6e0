//! What stops the start.

use std::fmt::Display;

/// What is wrong with one setting: one line that begins with its name and holds no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} {problem}")]
pub struct Error {
    name: String,
    problem: String,
}

impl Error {
    /// Names and parsers' messages come from outside and could break the line.
    pub(crate) fn new(name: &str, problem: impl Display) -> Self {
        let on_one_line = |text: &str| text.replace(char::is_control, " ");
        Self { name: on_one_line(name), problem: on_one_line(&problem.to_string()) }
    }

    pub(crate) fn malformed(name: &str, why: impl Display) -> Self {
        Self::new(name, format_args!("is malformed: {why}"))
    }
}
