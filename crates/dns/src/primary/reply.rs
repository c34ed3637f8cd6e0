//! Beginning and ending the messages of an answer.

use crate::wire::{Chain, Header, Message, Question, Writer, rcode};

/// How a request is answered: with its id, its question, in its dialect, signed when it was.
pub(super) struct Reply {
    header: Header,
    question: Option<Question>,
    has_edns: bool,
    chain: Option<Chain>,
}

impl Reply {
    /// To what could be read.
    pub(super) fn to(message: &Message<'_>) -> Self {
        let question = message.question().ok().cloned();
        Self { header: message.header, question, has_edns: message.edns().is_some(), chain: None }
    }

    /// To what could not.
    pub(super) fn bare(header: Header) -> Self {
        Self { header, question: None, has_edns: false, chain: None }
    }

    /// Signs what is to come.
    pub(super) fn sign_with(&mut self, chain: Chain) {
        self.chain = Some(chain);
    }

    pub(super) fn is_signed(&self) -> bool {
        self.chain.is_some()
    }

    /// The first message of an answer with records.
    pub(super) fn first(&self) -> Writer {
        let mut writer = Writer::response(&self.header, rcode::NOERROR, true);
        self.question.iter().for_each(|question| writer.question(question));
        writer
    }

    /// Each further one: the question is in the first (RFC 5936 section 2.2.1).
    pub(super) fn further(&self) -> Writer {
        Writer::response(&self.header, rcode::NOERROR, true)
    }

    /// Ends a message.
    pub(super) fn finish(&mut self, writer: Writer, now: u64) -> Vec<u8> {
        self.end(writer, 0, now)
    }

    /// The answer without records that says why there are none.
    pub(super) fn tell(mut self, code: u16, now: u64) -> Vec<u8> {
        let extended = u8::try_from(code >> 4).unwrap_or_default();
        let mut writer = Writer::response(&self.header, code, false);
        self.question.iter().for_each(|question| writer.question(question));
        self.end(writer, extended, now)
    }

    fn end(&mut self, mut writer: Writer, extended: u8, now: u64) -> Vec<u8> {
        if self.has_edns {
            writer.edns(extended);
        }
        let message = writer.finish();
        match &mut self.chain {
            Some(chain) => chain.sign(message, now),
            None => message,
        }
    }
}
