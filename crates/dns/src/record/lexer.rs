//! Words of presentation format (RFC 1035 section 5.1), which records and zone files are made of.
//!
//! A word is a piece of the text as it stands there, with its escapes: only who reads it knows whether a `\.` is a dot
//! within a label or just a dot. That the escapes are whole is seen here.

use std::borrow::Cow;

use super::InvalidRecord;
use crate::name::labels::escaped;

/// The longest word: a record's most octets, each as `\DDD`.
const MOST: usize = 4 * 65_535 + 2;

/// A word, or what stood between two quotation marks.
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
    /// From `;` to the end of the line.
    Comment,
    EndOfLine,
}

/// Why a text cannot be told into words; in words that complete "the record …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LexFault {
    #[error("has a control character, which must be written as \\DDD")]
    Control,
    #[error("has a quotation mark that is not closed on its line")]
    Unclosed,
    #[error("has a \\ without a character, or three digits up to 255, behind it")]
    Escape,
    #[error("has a quotation mark in the middle of a word; write it as \\\"")]
    Quote,
    #[error("has a word that is longer than any record")]
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

    /// Whether the next token stands behind white space.
    pub fn is_indented(&self) -> bool {
        matches!(self.peek(), Some(b' ' | b'\t'))
    }

    /// The next token. After a fault the rest of the line is no longer looked at.
    pub fn next(&mut self) -> Result<Option<Token<'a>>, LexFault> {
        let token = self.token();
        if token.is_err() {
            self.skip_line();
        }
        token
    }

    fn token(&mut self) -> Result<Option<Token<'a>>, LexFault> {
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
            b'\r' => return Err(LexFault::Control),
            b';' => {
                self.skip_line();
                return Ok(Some(Token::Comment));
            }
            _ => return self.word().map(|word| Some(Token::Word(word))),
        };
        self.at += 1;
        Ok(Some(token))
    }

    fn word(&mut self) -> Result<Word<'a>, LexFault> {
        let start = self.at;
        let is_quoted = self.peek() == Some(b'"');
        if is_quoted {
            self.quoted()?;
        }
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b'(' | b')' | b';' => break,
                // The value of a service parameter (RFC 9460 section 2.1) is all that may be quoted within a word.
                b'"' if !is_quoted && self.text.as_bytes().get(..self.at).is_some_and(|it| it.ends_with(b"=")) => {
                    self.quoted()?;
                    if self.peek().is_some_and(|byte| !b" \t\r\n();".contains(&byte)) {
                        return Err(LexFault::Quote);
                    }
                }
                b'"' => return Err(LexFault::Quote),
                _ if is_quoted => return Err(LexFault::Quote),
                _ => self.character()?,
            }
        }
        let word = self.text.get(start..self.at).unwrap_or_default();
        if word.len() > MOST {
            return Err(LexFault::Long);
        }
        let inside = word.strip_prefix('"').and_then(|word| word.strip_suffix('"'));
        Ok(Word { text: inside.filter(|_| is_quoted).unwrap_or(word), is_quoted })
    }

    /// From one quotation mark to behind the next.
    fn quoted(&mut self) -> Result<(), LexFault> {
        self.at += 1;
        loop {
            match self.peek() {
                None | Some(b'\n' | b'\r') => return Err(LexFault::Unclosed),
                Some(b'"') => break,
                Some(b'\t') => self.at += 1,
                Some(_) => self.character()?,
            }
        }
        self.at += 1;
        Ok(())
    }

    fn character(&mut self) -> Result<(), LexFault> {
        let byte = self.peek().unwrap_or_default();
        self.at += 1;
        if byte == b'\\' {
            let mut behind = self.rest().iter().copied();
            let length = behind.len();
            escaped(&mut behind).ok_or(LexFault::Escape)?;
            self.at += length - behind.len();
        } else if byte.is_ascii_control() {
            return Err(LexFault::Control);
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

/// The words of one record. What else may stand in a zone file has no place there.
pub(crate) fn words(text: &str) -> Result<Vec<Word<'_>>, InvalidRecord> {
    let (mut lexer, mut words) = (Lexer::new(text), Vec::new());
    loop {
        let wrong = match lexer.next().map_err(|fault| InvalidRecord(fault.to_string()))? {
            Some(Token::Word(word)) => {
                words.push(word);
                continue;
            }
            None => return Ok(words),
            Some(Token::Open | Token::Close) => "has a parenthesis outside quotation marks",
            Some(Token::Comment) => "has a ; outside quotation marks, where a comment would begin",
            Some(Token::EndOfLine) => "has more than one line",
        };
        return Err(InvalidRecord(wrong.to_owned()));
    }
}

impl<'a> Word<'a> {
    /// The word, unless it is in quotation marks, where numbers, addresses and names do not belong.
    pub fn bare(self) -> Option<&'a str> {
        (!self.is_quoted).then_some(self.text)
    }

    /// The octets that it stands for; none when it holds a quotation mark, as only a service parameter does.
    pub fn octets(self) -> Option<Vec<u8>> {
        let mut octets = Vec::with_capacity(self.text.len());
        let mut bytes = self.text.bytes();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => return None,
                b'\\' => octets.push(escaped(&mut bytes)?),
                _ => octets.push(byte),
            }
        }
        Some(octets)
    }

    /// Short enough to be told of.
    pub fn shown(self) -> Cow<'a, str> {
        match self.text.char_indices().nth(60) {
            Some((end, _)) => Cow::Owned(format!("{}…", self.text.get(..end).unwrap_or_default())),
            None => Cow::Borrowed(self.text),
        }
    }
}

/// Octets as one quoted string. What is not visible ASCII is `\DDD`, so that no octet ends a line or the string.
pub(crate) fn quoted(octets: &[u8]) -> String {
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
