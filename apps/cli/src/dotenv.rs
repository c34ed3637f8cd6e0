//! Parses `.env` files.
//!
//! There is no standard. This parser accepts what common parsers agree on: comments, blank lines, `export`, and values
//! that are unquoted, or in single or double quotes over several lines. It does not expand variables. It rejects all
//! other lines, because a wrong guess would store a wrong secret. Errors contain no text of the file: the second line
//! of a value that lacks quotes can look like a name.

use client::Secret;

/// A line that is not valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct InvalidLine {
    /// The number of the line, from 1.
    pub line: usize,
    pub reason: Reason,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("must be NAME=value, a comment or blank")]
    NotAnAssignment,
    #[error("the name must have 1 to 128 characters of A-Z, 0-9 and _, and begin with a letter")]
    InvalidName,
    #[error("the value has no closing quote")]
    UnclosedQuote,
    #[error("only a comment may follow the closing quote")]
    TextAfterQuote,
    #[error("the value is missing")]
    NoValue,
    #[error("the value has only =, as the end of base64 does: quote a value of several lines")]
    OnlyPadding,
    /// The name was already assigned in the line with this number.
    #[error("line {0} sets the same name")]
    Repeated(usize),
}

/// Parses a file into names and values, in the order of the file.
pub fn parse(text: &str) -> Result<Vec<(String, Secret)>, InvalidLine> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let mut parser = Parser { rest: &text, line: 1 };
    let mut found: Vec<(String, Secret, usize)> = Vec::new();
    while !parser.rest.is_empty() {
        let line = parser.line;
        let Some((name, value)) = parser.assignment().map_err(|reason| InvalidLine { line, reason })? else { continue };
        let earlier = found.iter().find(|(other, ..)| *other == name);
        if let Some((_, _, earlier)) = earlier {
            return Err(InvalidLine { line, reason: Reason::Repeated(*earlier) });
        }
        if value.is_empty() {
            return Err(InvalidLine { line, reason: Reason::NoValue });
        }
        found.push((name, Secret::new(value), line));
    }
    Ok(found.into_iter().map(|(name, value, _)| (name, value)).collect())
}

struct Parser<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Parser<'a> {
    /// Parses an assignment, which may have several lines. Returns `None` for a blank line or a comment.
    fn assignment(&mut self) -> Result<Option<(String, String)>, Reason> {
        let line = self.rest.lines().next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            self.end_of_line();
            return Ok(None);
        }
        let line = line.strip_prefix("export").filter(|rest| rest.starts_with([' ', '\t'])).unwrap_or(line);
        let name = line.split_once('=').ok_or(Reason::NotAnAssignment)?.0.trim();
        if !is_name(name) {
            return Err(Reason::InvalidName);
        }
        let at_value = self.rest.split_once('=').map_or("", |(_, value)| value);
        self.rest = at_value.trim_start_matches([' ', '\t']);
        let value = match self.rest.chars().next() {
            Some(quote @ ('"' | '\'')) => self.quoted(quote)?,
            _ => unquoted(self.end_of_line())?,
        };
        Ok(Some((name.to_owned(), value)))
    }

    /// Reads a quoted value and the rest of its last line.
    fn quoted(&mut self, quote: char) -> Result<String, Reason> {
        let (mut value, mut characters) = (String::new(), self.rest.chars());
        characters.next();
        loop {
            match characters.next() {
                None => return Err(Reason::UnclosedQuote),
                Some(character) if character == quote => break,
                Some('\\') if quote == '"' => value.push_str(&escape(characters.next())),
                Some(character) => value.push(character),
            }
        }
        let read = self.rest.len() - characters.as_str().len();
        self.line += self.rest.get(..read).unwrap_or_default().matches('\n').count();
        self.rest = characters.as_str();
        let after = self.end_of_line().trim();
        if !after.is_empty() && !after.starts_with('#') {
            return Err(Reason::TextAfterQuote);
        }
        Ok(value)
    }

    /// Returns the rest of the line and moves to the next line.
    fn end_of_line(&mut self) -> &'a str {
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        (self.rest, self.line) = (rest, self.line + 1);
        line
    }
}

/// Returns the value of an unquoted assignment. A comment begins with a `#` after white space.
fn unquoted(text: &str) -> Result<String, Reason> {
    let comment = text.match_indices('#').map(|(at, _)| at).find(|&at| {
        let before = text.get(..at).unwrap_or_default();
        before.is_empty() || before.ends_with([' ', '\t'])
    });
    let value = text.get(..comment.unwrap_or(text.len())).unwrap_or_default().trim();
    let is_padding = !value.is_empty() && value.chars().all(|character| character == '=');
    if is_padding { Err(Reason::OnlyPadding) } else { Ok(value.to_owned()) }
}

/// Returns the text that a backslash and the next character denote in double quotes.
fn escape(next: Option<char>) -> String {
    match next {
        Some('n') => "\n".to_owned(),
        Some('r') => "\r".to_owned(),
        Some('t') => "\t".to_owned(),
        Some(character @ ('"' | '\\' | '$')) => character.to_string(),
        Some(character) => format!("\\{character}"),
        None => String::new(),
    }
}

/// Returns whether the text is a valid name of a secret (contract section 9).
fn is_name(text: &str) -> bool {
    text.len() <= 128
        && text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.chars().all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || it == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, String)> {
        let parsed = parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        parsed.into_iter().map(|(name, value)| (name, value.reveal().to_owned())).collect()
    }

    fn value(text: &str) -> String {
        let values = values(text);
        let [(_, value)] = values.as_slice() else { panic!("{text:?}: {values:?}") };
        value.clone()
    }

    #[test]
    fn files_have_assignments_comments_and_blank_lines() {
        let text = "\u{feff}# comment\r\n\r\n  A=1\r\nexport B = two words \n\texport\tC='3'\n#D=4\nEXPORT=5\nexport EXPORT_6=6";
        let expected = [("A", "1"), ("B", "two words"), ("C", "3"), ("EXPORT", "5"), ("EXPORT_6", "6")];
        assert_eq!(values(text), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(values("").is_empty());
        assert!(values("\n# only a comment").is_empty());
    }

    #[test]
    fn values_are_unquoted_or_quoted() {
        for (text, expected) in [
            ("A=b # comment", "b"),
            ("A=b#c", "b#c"),
            ("A=b=c==", "b=c=="),
            ("A='=='", "=="),
            ("A=it's \"quoted\"", "it's \"quoted\""),
            ("A=$HOME ${B} \\n", "$HOME ${B} \\n"),
            (r#"A="b # c" # comment"#, "b # c"),
            (r#"A="it's \"b\" \\ \$C \r\n\t \d""#, "it's \"b\" \\ $C \r\n\t \\d"),
            (r"A='b \n \' # comment", r"b \n \"),
            (r#"A='"b"'"#, r#""b""#),
            ("A=' b '", " b "),
            ("A=grüße", "grüße"),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn quoted_values_can_have_several_lines() {
        let key = "-----BEGIN KEY-----\nMIIB+/=\n-----END KEY-----\n";
        assert_eq!(value(&format!("A=\"{key}\"")), key);
        assert_eq!(value(&format!("A='{}' # comment", key.replace('\n', "\r\n"))), key);
        assert_eq!(value("A='#1\nB=2\n'"), "#1\nB=2\n");
    }

    #[test]
    fn errors_name_the_line_and_contain_no_text_of_the_file() {
        let long = format!("{}=HUNTER2", "A".repeat(129));
        for (text, line, reason) in [
            ("A=1\nHUNTER2", 2, Reason::NotAnAssignment),
            ("B='1\n2'\n\nA: HUNTER2", 4, Reason::NotAnAssignment),
            ("=HUNTER2", 1, Reason::InvalidName),
            ("A B=HUNTER2", 1, Reason::InvalidName),
            ("1A=HUNTER2", 1, Reason::InvalidName),
            ("_A=HUNTER2", 1, Reason::InvalidName),
            ("Ä=HUNTER2", 1, Reason::InvalidName),
            (&long, 1, Reason::InvalidName),
            ("export=\n-----BEGIN HUNTER2", 1, Reason::InvalidName),
            ("A=\"HUNTER2\nB=\\\"", 1, Reason::UnclosedQuote),
            ("A='HUNTER2", 1, Reason::UnclosedQuote),
            ("\nA='1' HUNTER2", 2, Reason::TextAfterQuote),
            ("A= # HUNTER2", 1, Reason::NoValue),
            ("A=", 1, Reason::NoValue),
            ("A=''", 1, Reason::NoValue),
            ("A=1\nB=\"2\n3\"\nA=HUNTER2", 4, Reason::Repeated(1)),
            // The second line of base64 or base32 without quotes.
            ("A=AAAA\nHUNTER2=", 2, Reason::NoValue),
            ("A=AAAA\nHUNTER2==", 2, Reason::OnlyPadding),
            ("A=AAAA\nHUNTER2==== # comment", 2, Reason::OnlyPadding),
            ("A=AAAA\nHUNTER2/x==", 2, Reason::InvalidName),
            ("HUNTER2=1\nHUNTER2=2", 2, Reason::Repeated(1)),
        ] {
            let error = parse(text).unwrap_err();
            assert!(!error.to_string().contains("HUNTER2"), "{error}");
            assert_eq!(error, InvalidLine { line, reason }, "{text}");
        }
    }
}
