//! The text of an error for the log.

/// Returns an error and its sources on one line, from the outermost to the innermost.
#[must_use]
pub fn error_chain(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}
