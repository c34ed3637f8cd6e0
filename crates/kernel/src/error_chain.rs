//! The text of an error with all of its sources, for logs and error details.

use std::error::Error;
use std::fmt::{Display, Formatter, Result};

/// Displays an error and its sources on one line, from the outermost to the innermost. Some libraries include the
/// source in their own message: if the text of an error already ends with its source, the source is omitted.
///
/// A source can quote a part of the input, so do not send the text to clients or store it as an error of the outbox.
#[must_use]
pub fn error_chain<'a>(error: &'a (dyn Error + 'static)) -> impl Display + 'a {
    ErrorChain(error)
}

struct ErrorChain<'a>(&'a (dyn Error + 'static));

impl Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut last = self.0.to_string();
        f.write_str(&last)?;
        for source in std::iter::successors(self.0.source(), |&error| error.source()) {
            let text = source.to_string();
            if !last.ends_with(&text) {
                write!(f, ": {text}")?;
            }
            last = text;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::error_chain;

    #[derive(Debug, thiserror::Error)]
    #[error("connection refused")]
    struct Refused;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to connect: {0}")]
    struct Connect(#[source] Refused);

    #[derive(Debug, thiserror::Error)]
    #[error("try again in a moment")]
    struct Unavailable(#[source] Connect);

    #[test]
    fn error_is_followed_by_each_source_once() {
        assert_eq!(error_chain(&Refused).to_string(), "connection refused");
        let error = Unavailable(Connect(Refused));
        assert_eq!(error_chain(&error).to_string(), "try again in a moment: failed to connect: connection refused");
    }
}
