//! A row of the tables.

pub(super) struct Value {
    pub(super) mnemonic: &'static str,
    pub(super) text: &'static str,
    pub(super) is_taken: bool,
    /// The letters of the checkers that decide otherwise.
    pub(super) others: &'static str,
    #[expect(dead_code, reason = "for who reads the table")]
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
    Value { mnemonic, text, is_taken: true, others, why }
}

pub(super) const fn stricter(
    mnemonic: &'static str,
    text: &'static str,
    others: &'static str,
    why: &'static str,
) -> Value {
    Value { mnemonic, text, is_taken: false, others, why }
}
