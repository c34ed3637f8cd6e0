//! Entries of a zone file: single lines, or several lines in parentheses.

use crate::record::lexer::{LexError, Lexer, Token, Word};

/// The maximum number of words in an entry. The longest record has one word for each octet, plus the fields before its
/// data.
const MAX_WORDS: usize = 65_600;

/// The words of an entry, and its first line.
pub(super) struct Entry<'a> {
    pub line: u32,
    /// Whether the entry begins with white space. It then has the owner of the previous entry.
    pub is_indented: bool,
    pub words: Vec<Word<'a>>,
}

/// A syntax error in an entry. The message completes "the line …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum EntryError {
    #[error(transparent)]
    Lex(#[from] LexError),
    #[error("opens a parenthesis that is never closed")]
    Open,
    #[error("closes a parenthesis that is not open")]
    Close,
    #[error("has more words than a record can have")]
    Long,
}

pub(super) struct Entries<'a> {
    lexer: Lexer<'a>,
    line: u32,
}

impl<'a> Entries<'a> {
    pub fn new(text: &'a str) -> Self {
        // Some editors write a byte order mark at the start.
        Self { lexer: Lexer::new(text.strip_prefix('\u{feff}').unwrap_or(text)), line: 1 }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, (u32, EntryError)>;

    /// Returns the next entry. After an error, continues at the next line, even within parentheses.
    fn next(&mut self) -> Option<Self::Item> {
        let (mut words, mut depth) = (Vec::new(), 0_u32);
        let (mut line, mut is_indented) = (self.line, self.lexer.is_indented());
        loop {
            let error = match self.lexer.next() {
                Ok(Some(Token::Word(word))) if words.len() < MAX_WORDS => {
                    words.push(word);
                    continue;
                }
                Ok(Some(Token::Word(_))) => EntryError::Long,
                Ok(Some(Token::Open)) => {
                    depth += 1;
                    continue;
                }
                Ok(Some(Token::Close)) if depth > 0 => {
                    depth -= 1;
                    continue;
                }
                Ok(Some(Token::Close)) => EntryError::Close,
                Ok(Some(Token::Comment)) => continue,
                Ok(Some(Token::EndOfLine)) => {
                    self.line += 1;
                    if depth > 0 {
                        continue;
                    }
                    if words.is_empty() {
                        (line, is_indented) = (self.line, self.lexer.is_indented());
                        continue;
                    }
                    return Some(Ok(Entry { line, is_indented, words }));
                }
                Ok(None) if depth > 0 => return Some(Err((line, EntryError::Open))),
                Ok(None) if words.is_empty() => return None,
                Ok(None) => return Some(Ok(Entry { line, is_indented, words })),
                Err(error) => error.into(),
            };
            self.lexer.skip_line();
            return Some(Err((self.line, error)));
        }
    }
}
