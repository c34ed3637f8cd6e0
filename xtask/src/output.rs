//! The output of operator commands. If the reader closes it, as `head` does, a command continues without output,
//! because it may be in the middle of a change. A command fails if it cannot print a credential, which is shown only
//! once.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

use anyhow::{Context as _, Result};

/// Prints a line to stdout.
macro_rules! out {
    ($($argument:tt)*) => { $crate::output::write_line(std::io::stdout(), format_args!($($argument)*)) };
}

/// Prints a line to stderr.
macro_rules! note {
    ($($argument:tt)*) => { $crate::output::write_line(std::io::stderr(), format_args!($($argument)*)) };
}

pub(crate) use {note, out};

/// Writes a line, unless the reader has closed the stream.
pub fn write_line(mut stream: impl Write, line: Arguments<'_>) -> io::Result<()> {
    match writeln!(stream, "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Prints lines with a credential to stdout. If that fails, the error tells the operator how to get another one.
pub fn print_credential(lines: &str, remedy: &str) -> Result<()> {
    write_credential(io::stdout(), lines, remedy)
}

fn write_credential(mut stream: impl Write, lines: &str, remedy: &str) -> Result<()> {
    let written = writeln!(stream, "{lines}").and_then(|()| stream.flush());
    written.with_context(|| format!("cannot print the credential, which is shown only once: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream whose writes fail.
    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_a_closed_stream_is_ignored() {
        assert!(write_line(Failing(ErrorKind::BrokenPipe), format_args!("a")).is_ok());
        assert_eq!(
            write_line(Failing(ErrorKind::StorageFull), format_args!("a")).unwrap_err().kind(),
            ErrorKind::StorageFull
        );
        let mut written = Vec::new();
        write_line(&mut written, format_args!("{} {}", 1, 2)).unwrap();
        assert_eq!(written, b"1 2\n");
    }

    #[test]
    fn closed_stream_is_an_error_for_a_credential() {
        let error = write_credential(Failing(ErrorKind::BrokenPipe), "secret", "run the command again").unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("only once: run the command again: ") && !error.contains("secret"), "{error}");
        let mut written = Vec::new();
        write_credential(&mut written, "id\nsecret", "").unwrap();
        assert_eq!(written, b"id\nsecret\n");
    }
}
