//! Refuses statements that cannot work in a call: transaction control and COPY.
//!
//! A statement of a call is a single SQL command, so its first words identify the command. Functions and procedures can
//! run neither transaction control nor COPY inside a transaction.

use super::error::DatabaseError;

const TRANSACTION: DatabaseError = DatabaseError::NotSupported(
    "A statement cannot begin or end a transaction, because each call may use another connection. Use `batch`, which \
     is one transaction.",
);
pub const COPY: DatabaseError = DatabaseError::NotSupported(
    "COPY is not possible in a call. Use INSERT and SELECT, or psql with the address of the database.",
);

/// Returns the reason if a statement cannot work.
pub fn refuse(text: &str) -> Option<DatabaseError> {
    let mut words = Words(text);
    let mut next = || words.next().map(str::to_ascii_lowercase).unwrap_or_default();
    match next().as_str() {
        "begin" | "start" | "commit" | "end" | "abort" => Some(TRANSACTION),
        "rollback" => {
            let second = next();
            let third = if matches!(second.as_str(), "work" | "transaction") { next() } else { second };
            (third != "to").then_some(TRANSACTION)
        }
        "prepare" => (next() == "transaction").then_some(TRANSACTION),
        "copy" => Some(COPY),
        _ => None,
    }
}

/// The words at the beginning of a statement, without comments. Ends at the first other character.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.0 = skip_space(self.0);
        let end = self.0.find(|it: char| !it.is_ascii_alphanumeric() && it != '_').unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at_checked(end)?;
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
}

/// Skips white space, comments and empty statements, as Postgres's scanner does.
fn skip_space(mut text: &str) -> &str {
    loop {
        let rest = text.trim_start_matches([' ', '\t', '\n', '\r', '\u{b}', '\u{c}', ';']);
        text = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once(['\n', '\r']).map_or("", |(_, rest)| rest)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            skip_comment(comment)
        } else {
            return rest;
        };
    }
}

/// Skips the rest of a comment, which may contain others.
fn skip_comment(mut text: &str) -> &str {
    let mut depth = 1;
    while depth > 0 {
        let next = [text.find("/*"), text.find("*/")].into_iter().flatten().min();
        let Some((mark, rest)) = next.and_then(|at| text.split_at_checked(at)?.1.split_at_checked(2)) else {
            return "";
        };
        depth = if mark == "/*" { depth + 1 } else { depth - 1 };
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_control_and_copy_are_refused() {
        for text in [
            "BEGIN",
            " begin;",
            "/* a /* nested */ comment */ -- line\n\tCommit",
            "--\r\nEND",
            ";; abort",
            "START TRANSACTION",
            "rollback",
            "ROLLBACK WORK",
            "ROLLBACK/**/TRANSACTION",
            "ROLLBACK AND CHAIN",
            "ROLLBACK PREPARED 'x'",
            "PREPARE TRANSACTION 'x'",
            "COMMIT PREPARED 'x'",
            "copy t from stdin",
            "COPY(SELECT 1) TO STDOUT",
        ] {
            assert!(refuse(text).is_some(), "{text}");
        }
        for text in [
            "",
            "SELECT 'BEGIN'",
            "/* BEGIN",
            "-- COMMIT",
            "ROLLBACK TO a",
            "ROLLBACK WORK TO SAVEPOINT a",
            "ROLLBACK /**/ TRANSACTION -- x\nTO a",
            "SAVEPOINT a",
            "RELEASE a",
            "PREPARE a AS SELECT 1",
            "beginning",
            "copy_table()",
            "\"begin\"",
            "ü",
            "(SELECT 1)",
        ] {
            assert_eq!(refuse(text), None, "{text}");
        }
    }
}
