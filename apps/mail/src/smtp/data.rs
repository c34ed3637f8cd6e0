//! Decodes the bytes after DATA (RFC 5321 section 4.5.2).
//!
//! If two servers disagree about the end of a mail, a sender can smuggle mail: the first server accepts one mail, and
//! the second one executes a part of it as commands. So only one sequence ends a mail, `CRLF.CRLF`. A carriage return
//! or line feed that is not part of `CRLF` is an error, which ends the connection before anything after it is read. The
//! same applies to NUL, which mail must not contain.

/// An invalid byte in a mail. It ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataError {
    BareCr,
    BareLf,
    Nul,
}

/// The position of the decoder in the current line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the start of a line.
    LineStart,
    /// After a dot at the start of a line. This dot is not part of the mail.
    Dot,
    /// After a dot at the start of a line, and a carriage return.
    DotCr,
    Text,
    Cr,
}

/// Finds the end of the mail and removes dot-stuffing.
#[derive(Debug)]
pub struct DataDecoder {
    state: State,
}

/// The result of decoding a block.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// The mail continues after the block.
    More,
    /// The mail ends in this block, after this number of bytes.
    End(usize),
}

impl DataDecoder {
    /// Creates a decoder. It begins at the start of a line, because the mail follows the line break of the command
    /// DATA.
    pub const fn new() -> Self {
        Self { state: State::LineStart }
    }

    /// Decodes a block, and appends the bytes of the mail to `mail`.
    pub fn decode(&mut self, block: &[u8], mail: &mut Vec<u8>) -> Result<Decoded, DataError> {
        let mut rest = block;
        while let Some((&byte, after)) = rest.split_first() {
            self.state = match (self.state, byte) {
                (_, 0) => return Err(DataError::Nul),
                (State::Cr, b'\n') => {
                    mail.extend(b"\r\n");
                    State::LineStart
                }
                (State::DotCr, b'\n') => return Ok(Decoded::End(block.len() - after.len())),
                (State::Cr | State::DotCr, _) => return Err(DataError::BareCr),
                (_, b'\n') => return Err(DataError::BareLf),
                (State::LineStart, b'.') => State::Dot,
                (State::Dot, b'\r') => State::DotCr,
                (_, b'\r') => State::Cr,
                (State::LineStart | State::Dot | State::Text, _) => {
                    let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0)).unwrap_or(rest.len());
                    let (text, after) = rest.split_at(end);
                    mail.extend(text);
                    rest = after;
                    self.state = State::Text;
                    continue;
                }
            };
            rest = after;
        }
        Ok(Decoded::More)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes bytes in blocks of this size. Returns the mail and the bytes after it.
    fn decode(bytes: &str, size: usize) -> Result<(String, &str), DataError> {
        let (mut decoder, mut mail, mut consumed) = (DataDecoder::new(), Vec::new(), 0);
        for block in bytes.as_bytes().chunks(size) {
            match decoder.decode(block, &mut mail)? {
                Decoded::More => consumed += block.len(),
                Decoded::End(length) => return Ok((String::from_utf8(mail).unwrap(), &bytes[consumed + length..])),
            }
        }
        panic!("the mail has no end");
    }

    #[test]
    fn only_one_sequence_ends_a_mail() {
        for (bytes, mail, rest) in [
            (".\r\nRSET", "", "RSET"),
            ("a\r\n.\r\n", "a\r\n", ""),
            ("\r\n.\r\nNOOP\r\n", "\r\n", "NOOP\r\n"),
            ("a\r\n..\r\n.b\r\n...\r\n.\r\n.", "a\r\n.\r\nb\r\n..\r\n", "."),
            ("a.\r\n .\r\n.\r\n", "a.\r\n .\r\n", ""),
            (".. .\r\n.\r\n", ". .\r\n", ""),
        ] {
            for size in 1..=bytes.len() {
                assert_eq!(decode(bytes, size), Ok((mail.to_owned(), rest)), "{bytes:?} by {size}");
            }
        }
    }

    #[test]
    fn all_other_line_breaks_are_errors() {
        for (bytes, error) in [
            ("a\n.\n", DataError::BareLf),
            ("a\n.\r\n", DataError::BareLf),
            ("a\r\n.\n", DataError::BareLf),
            ("a\r.\r", DataError::BareCr),
            ("a\r.\r\n", DataError::BareCr),
            ("a\r\n.\r\r\n", DataError::BareCr),
            ("a\r\n.\rx", DataError::BareCr),
            ("a\r\r\n.\r\n", DataError::BareCr),
            ("a\n\r.\r\n", DataError::BareLf),
            ("\n.\r\n", DataError::BareLf),
            (".\n", DataError::BareLf),
            ("a\r\0\n.\r\n", DataError::Nul),
            ("a\r\n.\0\r\n", DataError::Nul),
            ("a\0b\r\n.\r\n", DataError::Nul),
        ] {
            for size in 1..=bytes.len() {
                assert_eq!(decode(bytes, size), Err(error), "{bytes:?} by {size}");
            }
        }
    }
}
