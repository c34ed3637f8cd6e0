//! Replies (RFC 5321 section 4.2) with enhanced status codes (RFC 3463).

use std::borrow::Cow;
use std::fmt;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub code: u16,
    /// The enhanced status code; empty for the greeting, and for replies to EHLO, HELO and DATA.
    pub status: &'static str,
    /// The text, in one or more lines.
    pub text: Cow<'static, str>,
}

impl Reply {
    pub fn new(code: u16, status: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        Self { code, status, text: text.into() }
    }

    /// Returns whether the reply reports an error of the client.
    pub const fn is_error(&self) -> bool {
        self.code >= 500
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, status, text } = self;
        let space = if status.is_empty() { "" } else { " " };
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let separator = if lines.peek().is_some() { '-' } else { ' ' };
            write!(f, "{code}{separator}{status}{space}{line}\r\n")?;
        }
        Ok(())
    }
}
