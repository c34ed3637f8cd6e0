//! The header fields of a received mail (RFC 5322 section 2.2).

use crate::text::one_line;

/// The longest header section that worker code sees. Later fields are only in the raw mail.
pub const MAX_BYTES: usize = 256 << 10;

/// A name, and a value without line breaks.
pub type Field = (String, String);

/// Returns whether the bytes contain the whole header section: a line without content follows it.
pub fn is_complete(mail: &[u8]) -> bool {
    lines(mail).any(<[u8]>::is_empty)
}

/// Returns the header fields in order. Skips lines that are not fields, and a last line without a line end. In a value,
/// U+FFFD replaces bytes that are not UTF-8, and a space replaces control characters.
///
/// Returns only the first `Authentication-Results` field, which the mail node added. `Headers` joins fields with the same
/// name, so results of the sender would follow those of the mail node in one value.
pub fn fields(mail: &[u8]) -> Vec<Field> {
    let mut fields: Vec<(String, Vec<u8>)> = Vec::new();
    let mut is_field = false;
    for line in lines(mail).take_while(|line| !line.is_empty()) {
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            // A folded line belongs to the field before it.
            if let Some((_, value)) = fields.last_mut().filter(|_| is_field) {
                value.extend_from_slice(line);
            }
            continue;
        }
        let field = split(line);
        is_field = field.is_some();
        fields.extend(field);
    }
    let mut has_results = false;
    fields.retain(|(name, _)| {
        !name.eq_ignore_ascii_case("Authentication-Results") || !std::mem::replace(&mut has_results, true)
    });
    fields.into_iter().map(|(name, value)| (name, text(&value))).collect()
}

/// Returns the lines, without the bytes after the last line feed.
fn lines(mail: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = mail.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
    lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

fn split(line: &[u8]) -> Option<(String, Vec<u8>)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = line.split_at_checked(colon)?;
    let name = str::from_utf8(name.trim_ascii_end()).ok()?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    is_name.then(|| (name.to_owned(), value.strip_prefix(b":").unwrap_or(value).to_vec()))
}

fn text(value: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(value), usize::MAX).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mail: &[u8]) -> Vec<Field> {
        fields(mail)
    }

    fn field(name: &str, value: &str) -> Field {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn fields_are_unfolded_up_to_the_body() {
        let mail = b"Subject: one\r\n two\r\n\tthree\r\nX:  \r\nReceived : a\r\nreceived:b\r\n\r\nTo: body\r\n";
        let expected =
            [field("Subject", "one two three"), field("X", ""), field("Received", "a"), field("received", "b")];
        assert_eq!(read(mail), expected);
        assert_eq!(read(&mail.iter().copied().filter(|byte| *byte != b'\r').collect::<Vec<_>>()), expected);
        assert_eq!(read(b"\r\nTo: body\r\n"), []);
    }

    #[test]
    fn only_the_first_results_are_returned() {
        let mail = b"Authentication-Results: a\r\n b\r\nX: 1\r\nauthentication-results : c\r\n d\r\nX: 2\r\n\
            AUTHENTICATION-RESULTS:e\r\n\r\n";
        let expected = [field("Authentication-Results", "a b"), field("X", "1"), field("X", "2")];
        assert_eq!(read(mail), expected);
    }

    #[test]
    fn odd_bytes_do_not_break_a_value() {
        let mail = b"A: \xff\xc3\xa9\r\nB: a\0b\rc\x1b\r\nC: =?utf-8?q?=C3=A9?=\r\nD: a: b\r\n\r\n";
        let expected =
            [field("A", "\u{fffd}é"), field("B", "a b c"), field("C", "=?utf-8?q?=C3=A9?="), field("D", "a: b")];
        assert_eq!(read(mail), expected);
    }

    #[test]
    fn other_lines_are_skipped_with_their_folded_lines() {
        let mail = b" folded\r\nno colon\r\n folded\r\n: x\r\nn\xc3\xa4me: x\r\na name: x\r\n folded\r\nA: 1\r\nB: 2";
        assert_eq!(read(mail), [field("A", "1")]);
    }

    #[test]
    fn header_section_ends_with_an_empty_line() {
        for (mail, complete) in [
            (&b"A: 1\r\n\r\n"[..], true),
            (b"A: 1\n\nbody", true),
            (b"\r\n", true),
            (b"", false),
            (b"A: 1\r\n", false),
            (b"A: 1\r\n\r", false),
        ] {
            assert_eq!(is_complete(mail), complete, "{mail:?}");
        }
    }
}
