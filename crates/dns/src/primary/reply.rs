//! Headers, questions, EDNS and signatures of answers.

use crate::wire::{Header, Message, Question, TsigChain, Writer, rcode};

/// The parts of an answer that depend on the request: id, question, EDNS and signature.
pub(super) struct Reply {
    header: Header,
    question: Option<Question>,
    has_edns: bool,
    chain: Option<TsigChain>,
}

impl Reply {
    /// Creates a reply to a parsed request.
    pub(super) fn for_message(message: &Message<'_>) -> Self {
        let question = message.question().ok().cloned();
        Self { header: message.header, question, has_edns: message.edns().is_some(), chain: None }
    }

    /// Creates a reply to a request of which only the header is valid.
    pub(super) fn for_header(header: Header) -> Self {
        Self { header, question: None, has_edns: false, chain: None }
    }

    /// Signs all messages that follow.
    pub(super) fn sign_with(&mut self, chain: TsigChain) {
        self.chain = Some(chain);
    }

    pub(super) fn is_signed(&self) -> bool {
        self.chain.is_some()
    }

    /// Starts the first message of an answer.
    pub(super) fn first(&self) -> Writer {
        let mut writer = Writer::response(&self.header, rcode::NOERROR, true);
        self.question.iter().for_each(|question| writer.question(question));
        writer
    }

    /// Starts a further message. Only the first one has the question (RFC 5936 section 2.2.1).
    pub(super) fn next(&self) -> Writer {
        Writer::response(&self.header, rcode::NOERROR, true)
    }

    /// Finishes and signs a message.
    pub(super) fn finish(&mut self, writer: Writer, now: u64) -> Vec<u8> {
        self.end(writer, 0, now)
    }

    /// Returns an answer with a response code and without records.
    pub(super) fn error(mut self, code: u16, now: u64) -> Vec<u8> {
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
