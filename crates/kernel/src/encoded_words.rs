//! Texts in the headers of mails (RFC 2047).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The number of bytes in an encoded word. With the name of the header (`Subject: `), the first line has at most 76
/// characters (RFC 2047 section 2).
const ENCODED_WORD_BYTES: usize = 39;

/// Returns a text as encoded words.
#[must_use]
pub fn encoded_words(text: &str) -> String {
    let (mut words, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.floor_char_boundary(ENCODED_WORD_BYTES));
        words.push(format!("=?utf-8?b?{}?=", STANDARD.encode(word)));
        rest = after;
    }
    words.join(" ")
}
