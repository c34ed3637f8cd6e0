//! The lexer of presentation format (RFC 1035 section 5.1), for records and zone files.
//!
//! A word keeps its escapes, because only the parser of a field knows whether `\.` is a dot within a label. The lexer
//! checks that escapes are complete.

use std::borrow::Cow;

use super::InvalidRecord;
use crate::name::labels::unescape;

/// The maximum length of a word. The data of the longest record can be one quoted word, with each octet written as
/// `\DDD`.
const MAX_WORD_LENGTH: usize = 4 * 65_535 + 2;

/// A word, or the text between two quotation marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word<'a> {
    pub text: &'a str,
    pub is_quoted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    Word(Word<'a>),
    Open,
    Close,
    /// The text from `;` to the end of the line.
    Comment,
    EndOfLine,
}

/// A lexical error. The message completes "the record …" or "the line …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LexError {
    #[error("has a control character, which must be written as \\DDD")]
    Control,
    #[error("has a quotation mark that is not closed on its line")]
    Unclosed,
    #[error("has a \\ that is not followed by a character or by three digits up to 255")]
    Escape,
    #[error("has a quotation mark in the middle of a word; write it as \\\"")]
    Quote,
    #[error("has a word that is longer than a record can be")]
    Long,
}

pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns whether white space precedes the next token.
    pub fn is_indented(&self) -> bool {
        matches!(self.peek(), Some(b' ' | b'\t'))
    }

    /// Returns the next token. After an error, skips the rest of the line.
    pub fn next(&mut self) -> Result<Option<Token<'a>>, LexError> {
        let token = self.token();
        if token.is_err() {
            self.skip_line();
        }
        token
    }

    fn token(&mut self) -> Result<Option<Token<'a>>, LexError> {
        while self.is_indented() {
            self.at += 1;
        }
        let Some(byte) = self.peek() else { return Ok(None) };
        let token = match byte {
            b'(' => Token::Open,
            b')' => Token::Close,
            b'\n' => Token::EndOfLine,
            b'\r' if self.rest().starts_with(b"\r\n") => {
                self.at += 1;
                Token::EndOfLine
            }
            b'\r' => return Err(LexError::Control),
            b';' => {
                self.skip_line();
                return Ok(Some(Token::Comment));
            }
            _ => return self.word().map(|word| Some(Token::Word(word))),
        };
        self.at += 1;
        Ok(Some(token))
    }

    fn word(&mut self) -> Result<Word<'a>, LexError> {
        let start = self.at;
        let is_quoted = self.peek() == Some(b'"');
        if is_quoted {
            self.skip_quoted()?;
        }
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b'(' | b')' | b';' => break,
                // Within a word, only the value of a service parameter may be quoted (RFC 9460 section 2.1).
                b'"' if !is_quoted && self.text.as_bytes().get(..self.at).is_some_and(|it| it.ends_with(b"=")) => {
                    self.skip_quoted()?;
                    if self.peek().is_some_and(|byte| !b" \t\r\n();".contains(&byte)) {
                        return Err(LexError::Quote);
                    }
                }
                b'"' => return Err(LexError::Quote),
                _ if is_quoted => return Err(LexError::Quote),
                _ => self.skip_character()?,
            }
        }
        let word = self.text.get(start..self.at).unwrap_or_default();
        if word.len() > MAX_WORD_LENGTH {
            return Err(LexError::Long);
        }
        let inside = word.strip_prefix('"').and_then(|word| word.strip_suffix('"'));
        Ok(Word { text: inside.filter(|_| is_quoted).unwrap_or(word), is_quoted })
    }

    /// Skips a quoted string and its quotation marks.
    fn skip_quoted(&mut self) -> Result<(), LexError> {
        self.at += 1;
        loop {
            match self.peek() {
                None | Some(b'\n' | b'\r') => return Err(LexError::Unclosed),
                Some(b'"') => break,
                Some(b'\t') => self.at += 1,
                Some(_) => self.skip_character()?,
            }
        }
        self.at += 1;
        Ok(())
    }

    fn skip_character(&mut self) -> Result<(), LexError> {
        let byte = self.peek().unwrap_or_default();
        self.at += 1;
        if byte == b'\\' {
            let mut tail = self.rest().iter().copied();
            let length = tail.len();
            unescape(&mut tail).ok_or(LexError::Escape)?;
            self.at += length - tail.len();
        } else if byte.is_ascii_control() {
            return Err(LexError::Control);
        }
        Ok(())
    }

    pub fn skip_line(&mut self) {
        let rest = self.rest();
        self.at += rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}

/// Splits the text of one record into words. Rejects parentheses, comments and line ends, which only zone files may
/// have.
pub(crate) fn words(text: &str) -> Result<Vec<Word<'_>>, InvalidRecord> {
    let (mut lexer, mut words) = (Lexer::new(text), Vec::new());
    loop {
        let message = match lexer.next().map_err(|error| InvalidRecord(error.to_string()))? {
            Some(Token::Word(word)) => {
                words.push(word);
                continue;
            }
            None => return Ok(words),
            Some(Token::Open | Token::Close) => "has a parenthesis outside quotation marks",
            Some(Token::Comment) => "has a ; outside quotation marks, where a comment would begin",
            Some(Token::EndOfLine) => "has more than one line",
        };
        return Err(InvalidRecord(message.to_owned()));
    }
}

impl<'a> Word<'a> {
    /// Returns the text of an unquoted word. Numbers, addresses and names must not be quoted.
    pub fn bare(self) -> Option<&'a str> {
        (!self.is_quoted).then_some(self.text)
    }

    /// Returns the unescaped octets. Returns `None` if the word contains a quotation mark, which is allowed only in
    /// service parameters.
    pub fn octets(self) -> Option<Vec<u8>> {
        let mut octets = Vec::with_capacity(self.text.len());
        let mut bytes = self.text.bytes();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => return None,
                b'\\' => octets.push(unescape(&mut bytes)?),
                _ => octets.push(byte),
            }
        }
        Some(octets)
    }

    /// Returns the text for messages, truncated to 60 characters.
    pub fn truncated(self) -> Cow<'a, str> {
        match self.text.char_indices().nth(60) {
            Some((end, _)) => Cow::Owned(format!("{}…", self.text.get(..end).unwrap_or_default())),
            None => Cow::Borrowed(self.text),
        }
    }
}

/// Formats octets as one quoted string. Writes all octets except visible ASCII as `\DDD`, so that no octet ends the
/// line or the string.
pub(crate) fn quote(octets: &[u8]) -> String {
    let mut text = String::with_capacity(octets.len() + 2);
    text.push('"');
    for &octet in octets {
        match octet {
            b'"' | b'\\' => {
                text.push('\\');
                text.push(octet.into());
            }
            b' '..=b'~' => text.push(octet.into()),
            _ => text.push_str(&format!("\\{octet:03}")),
        }
    }
    text.push('"');
    text
}
