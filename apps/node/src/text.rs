//! Texts of tenants and of their mail.

/// Returns a text in one line of at most `max_chars` characters: spaces replace control characters.
pub fn one_line(text: &str, max_chars: usize) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).take(max_chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_bounded_and_has_no_control_characters() {
        assert_eq!(one_line("a\r\nb\u{1b}", 10), "a  b ");
        assert_eq!(one_line(&"ü".repeat(2000), 500), "ü".repeat(500));
    }
}
