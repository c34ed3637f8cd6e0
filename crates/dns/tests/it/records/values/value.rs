//! The rows of the tables.

pub(super) struct Value {
    pub(super) mnemonic: &'static str,
    pub(super) text: &'static str,
    pub(super) is_valid: bool,
    /// The letters of the parsers that disagree.
    pub(super) disagreeing: &'static str,
    #[expect(dead_code, reason = "documentation for readers of the table")]
    pub(super) why: &'static str,
}

pub(super) const fn yes(mnemonic: &'static str, text: &'static str) -> Value {
    laxer(mnemonic, text, "", "")
}

pub(super) const fn no(mnemonic: &'static str, text: &'static str) -> Value {
    stricter(mnemonic, text, "", "")
}

pub(super) const fn laxer(
    mnemonic: &'static str,
    text: &'static str,
    others: &'static str,
    why: &'static str,
) -> Value {
    Value { mnemonic, text, is_valid: true, disagreeing: others, why }
}

pub(super) const fn stricter(
    mnemonic: &'static str,
    text: &'static str,
    others: &'static str,
    why: &'static str,
) -> Value {
    Value { mnemonic, text, is_valid: false, disagreeing: others, why }
}
