//! Entries of a zone file: lines, or several that parentheses hold together.

use crate::record::lexer::{LexFault, Lexer, Token, Word};

/// The most words of an entry: of a record of single octets, with room for what stands before it.
const MOST_WORDS: usize = 65_600;

/// Its words, and where it begins.
pub(super) struct Entry<'a> {
    pub line: u32,
    /// Whether it begins with white space, and so with the name of the entry before.
    pub is_indented: bool,
    pub words: Vec<Word<'a>>,
}

/// Why a line is no entry; in words that complete "the line …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum EntryFault {
    #[error(transparent)]
    Lex(#[from] LexFault),
    #[error("opens a parenthesis that is never closed")]
    Open,
    #[error("closes a parenthesis that is not open")]
    Close,
    #[error("has more words than any record")]
    Long,
}

pub(super) struct Entries<'a> {
    lexer: Lexer<'a>,
    line: u32,
}

impl<'a> Entries<'a> {
    pub fn new(text: &'a str) -> Self {
        // Some editors put a byte order mark before everything.
        Self { lexer: Lexer::new(text.strip_prefix('\u{feff}').unwrap_or(text)), line: 1 }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, (u32, EntryFault)>;

    /// After a fault it goes on with the next line, be it within parentheses or not.
    fn next(&mut self) -> Option<Self::Item> {
        let (mut words, mut depth) = (Vec::new(), 0_u32);
        let (mut line, mut is_indented) = (self.line, self.lexer.is_indented());
        loop {
            let fault = match self.lexer.next() {
                Ok(Some(Token::Word(word))) if words.len() < MOST_WORDS => {
                    words.push(word);
                    continue;
                }
                Ok(Some(Token::Word(_))) => EntryFault::Long,
                Ok(Some(Token::Open)) => {
                    depth += 1;
                    continue;
                }
                Ok(Some(Token::Close)) if depth > 0 => {
                    depth -= 1;
                    continue;
                }
                Ok(Some(Token::Close)) => EntryFault::Close,
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
                Ok(None) if depth > 0 => return Some(Err((line, EntryFault::Open))),
                Ok(None) if words.is_empty() => return None,
                Ok(None) => return Some(Ok(Entry { line, is_indented, words })),
                Err(fault) => fault.into(),
            };
            self.lexer.skip_line();
            return Some(Err((self.line, fault)));
        }
    }
}
