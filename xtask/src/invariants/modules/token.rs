//! A tokenizer for Rust source code that skips comments and literals.

use std::iter::Peekable;
use std::str::Chars;

/// A token with its line number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

impl Token {
    /// Returns whether it is an identifier or a keyword.
    pub fn is_word(&self) -> bool {
        self.text.starts_with(is_word)
    }
}

/// Returns the tokens of a file: words, `::`, and single other characters.
pub fn tokens(source: &str) -> Vec<Token> {
    let mut reader = Reader { rest: source.chars().peekable(), line: 1, tokens: Vec::new() };
    while reader.step() {}
    reader.tokens
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
    tokens: Vec<Token>,
}

impl Reader<'_> {
    fn step(&mut self) -> bool {
        let line = self.line;
        let Some(first) = self.next() else { return false };
        match first {
            '/' if self.follows("/") => while self.next().is_some_and(|it| it != '\n') {},
            '/' if self.follows("*") => self.comment(),
            '"' => self.text(line),
            '\'' => self.quote(),
            ':' if self.follows(":") => {
                self.next();
                self.push("::".to_owned(), line);
            }
            first if is_word(first) => self.word(first, line),
            first if first.is_whitespace() => {}
            first => self.push(first.to_string(), line),
        }
        true
    }

    fn word(&mut self, first: char, line: usize) {
        let mut word = String::from(first);
        while let Some(next) = self.rest.next_if(|it| is_word(*it)) {
            word.push(next);
        }
        // Handles r"…", br#"…"#, b'…' and r#type.
        let raw = word.ends_with('r') && ["r", "br", "cr"].contains(&word.as_str());
        if raw && (self.follows("\"") || self.follows("#\"") || self.follows("##")) {
            self.raw_text();
        } else if raw && self.follows("#") {
            self.next();
        } else if !(["b", "c"].contains(&word.as_str()) && (self.follows("\"") || self.follows("'"))) {
            self.push(word, line);
        }
    }

    /// Skips a block comment, including nested ones.
    fn comment(&mut self) {
        let mut depth = 0;
        let mut before = '/';
        while let Some(next) = self.next() {
            match (before, next) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    before = next;
                    continue;
                }
            }
            if depth == 0 {
                return;
            }
            before = ' ';
        }
    }

    /// Skips a string literal. A literal that is a path is tokenized, because attributes name functions in literals.
    fn text(&mut self, line: usize) {
        let mut text = String::new();
        while let Some(next) = self.next().filter(|it| *it != '"') {
            text.push(next);
            if next == '\\' {
                text.extend(self.next());
            }
        }
        let is_path = ["crate::", "self::", "super::"].iter().any(|it| text.starts_with(it));
        if is_path && text.chars().all(|it| is_word(it) || it == ':') {
            self.tokens.extend(tokens(&text).into_iter().map(|it| Token { line, ..it }));
        }
    }

    fn raw_text(&mut self) {
        let mut hashes = 0;
        while self.next().is_some_and(|it| it == '#') {
            hashes += 1;
        }
        let end = "#".repeat(hashes);
        while let Some(next) = self.next() {
            if next == '"' && self.follows(&end) {
                break;
            }
        }
        for _ in 0..hashes {
            self.next();
        }
    }

    /// Skips a character literal or a lifetime.
    fn quote(&mut self) {
        let escaped = self.follows("\\");
        self.next();
        if escaped {
            self.next();
            while self.next().is_some_and(|it| it != '\'') {}
        } else if self.follows("'") {
            self.next();
        } else {
            while self.rest.next_if(|it| is_word(*it)).is_some() {}
        }
    }

    fn follows(&self, text: &str) -> bool {
        let mut rest = self.rest.clone();
        text.chars().all(|it| rest.next() == Some(it))
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn push(&mut self, text: String, line: usize) {
        self.tokens.push(Token { text, line });
    }
}

fn is_word(it: char) -> bool {
    it.is_alphanumeric() || it == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_skipped() {
        let source = r##"
            a::b /* c /* d */ e */ "f \" g" 'h' '\'' 'i // j
            r#"k " l"# br"m" b"n" b'o' r#type p!("#") '\u{1F600}' q"##;
        let found: Vec<String> = tokens(source).into_iter().map(|it| it.text).collect();
        assert_eq!(found, ["a", "::", "b", "type", "p", "!", "(", ")", "q"]);
    }

    #[test]
    fn path_literals_are_tokenized_as_paths() {
        let found = tokens("\n#[serde(with = \"crate::a::b\")] \"crate::no path\"");
        let path: Vec<&str> = found.iter().skip(6).map(|it| it.text.as_str()).collect();
        assert_eq!(path, ["crate", "::", "a", "::", "b", ")", "]"]);
        assert!(found.iter().all(|it| it.line == 2));
    }
}
