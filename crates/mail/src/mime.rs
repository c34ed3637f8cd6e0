//! Assembly of outgoing mail (RFC 5322, RFC 2045).
//!
//! The boundaries, the date and the Message-ID depend only on the mail's id, so the same mail always has the same
//! bytes.

use std::time::{Duration, UNIX_EPOCH};

use kernel::{MailId, encoded_words};
use lettre::message::header::{self, ContentTransferEncoding, HeaderName, HeaderValue, Headers};
use lettre::message::{Attachment, Body, Mailboxes, Message, MultiPart, SinglePart};

use crate::address::Mailbox;
use crate::outgoing::{ValidAttachment, ValidMail};

/// The maximum length of a line without its line break (RFC 5322 section 2.1.1).
const MAX_LINE_BYTES: usize = 998;

/// Assembles the message of a mail. Recipients in `bcc` appear only in the envelope. Returns `None` if the library
/// rejects the mail.
pub(crate) fn assemble(id: MailId, domain: &str, mail: ValidMail) -> Option<Vec<u8>> {
    let ValidMail { from, reply_to, to, cc, recipients: _, subject, text, html, headers, attachments } = mail;
    let mut message = Message::builder()
        .from(from.header()?)
        .raw_header(subject_header(subject))
        .date(UNIX_EPOCH + Duration::from_millis(millis(id)))
        .message_id(Some(format!("<{id}@{domain}>")))
        .header(header::MIME_VERSION_1_0)
        .raw_header(recipients_header("To", &to)?);
    if !cc.is_empty() {
        message = message.raw_header(recipients_header("Cc", &cc)?);
    }
    if let Some(mailbox) = reply_to {
        message = message.reply_to(mailbox.header()?);
    }
    for header in headers {
        message = message.raw_header(header);
    }
    let content = content(id, text, html);
    let message = match (content, attachments) {
        (Content::Part(part), attachments) if attachments.is_empty() => message.singlepart(part),
        (Content::Parts(parts), attachments) if attachments.is_empty() => message.multipart(parts),
        (content, attachments) => message.multipart(with_attachments(id, content, attachments)?),
    };
    Some(message.ok()?.formatted())
}

/// Returns a header with one mailbox a line. The library does not break lines between mailboxes.
fn recipients_header(name: &'static str, mailboxes: &[Mailbox]) -> Option<HeaderValue> {
    let encode = |mailbox: &Mailbox| {
        let mut headers = Headers::new();
        headers.set(header::To::from(Mailboxes::from(mailbox.header()?)));
        Some(headers.to_string().strip_prefix("To: ")?.trim_end().to_owned())
    };
    let lines: Vec<String> = mailboxes.iter().map(encode).collect::<Option<_>>()?;
    // The library parses this list for the envelope, which is not used.
    let addresses: Vec<&str> = mailboxes.iter().map(|mailbox| mailbox.address.as_str()).collect();
    let name = HeaderName::new_from_ascii_str(name);
    Some(HeaderValue::dangerous_new_pre_encoded(name, addresses.join(", "), lines.join(",\r\n ")))
}

/// Returns whether a line of a header is too long. The library breaks lines only at spaces.
pub(crate) fn has_long_line(header: &HeaderValue) -> bool {
    let mut headers = Headers::new();
    headers.insert_raw(header.clone());
    headers.to_string().lines().any(|line| line.len() > MAX_LINE_BYTES)
}

/// Returns the header of a subject. Encodes all of it if it is not ASCII, or has a long word or one that looks encoded.
/// A receiver would decode this word or drop spaces, and show another subject than the log.
fn subject_header(subject: String) -> HeaderValue {
    let name = HeaderName::new_from_ascii_str("Subject");
    let encoded = encoded_words(&subject);
    let is_plain = subject.is_ascii() && !subject.contains("=?");
    let header = HeaderValue::new(name.clone(), subject);
    if is_plain && !has_long_line(&header) { header } else { HeaderValue::new(name, encoded) }
}

/// Returns a header of the developer. Encodes words with several spaces between them as one text: the library would
/// encode each word separately, and receivers drop the spaces between encoded words (RFC 2047 section 6.2).
pub(crate) fn custom_header(name: HeaderName, value: &str) -> HeaderValue {
    let words: Vec<&str> = value.split_inclusive(' ').collect();
    let is_encoded = |word: &&str| !word.is_ascii() || *word == " ";
    let runs = words.chunk_by(|first, second| is_encoded(first) && is_encoded(second));
    let encode = |run: &[&str]| {
        let run = run.concat();
        let text = run.trim_matches(' ');
        if text.is_ascii() || !text.contains("  ") { run } else { run.replacen(text, &encoded_words(text), 1) }
    };
    HeaderValue::new(name, runs.map(encode).collect())
}

/// The text of a mail: a single part, or alternatives (text and HTML).
enum Content {
    Part(SinglePart),
    Parts(MultiPart),
}

fn content(id: MailId, text: Option<String>, html: Option<String>) -> Content {
    match (text, html) {
        (Some(text), Some(html)) => {
            // No encoding of a part contains "=_" (RFC 2045 section 6.7).
            let parts = MultiPart::alternative().boundary(format!("=_{id}_alternative"));
            let parts = parts.singlepart(SinglePart::plain(lines(&text)));
            Content::Parts(parts.singlepart(SinglePart::html(lines(&html))))
        }
        (None, Some(html)) => Content::Part(SinglePart::html(lines(&html))),
        (text, None) => Content::Part(SinglePart::plain(lines(&text.unwrap_or_default()))),
    }
}

fn with_attachments(id: MailId, content: Content, attachments: Vec<ValidAttachment>) -> Option<MultiPart> {
    let parts = MultiPart::mixed().boundary(format!("=_{id}_mixed"));
    let mut parts = match content {
        Content::Part(part) => parts.singlepart(part),
        Content::Parts(nested) => parts.multipart(nested),
    };
    for ValidAttachment { filename, content_type, content } in attachments {
        // Base64 preserves every byte. Another encoding could change the line endings of a text.
        let content = Body::new_with_encoding(content, ContentTransferEncoding::Base64).ok()?;
        parts = parts.singlepart(Attachment::new(filename).body(content, content_type));
    }
    Some(parts)
}

/// Replaces each line ending with CRLF, including bare CRs and LFs. The library needs quadratic time for this.
fn lines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n").replace('\n', "\r\n")
}

/// Returns the creation time in the id (RFC 9562 section 5.7), at most the end of the year 9999.
fn millis(id: MailId) -> u64 {
    const LAST_MILLIS: u64 = 253_402_300_799_000;
    let millis = u64::try_from(id.as_uuid().as_u128() >> 80).unwrap_or(LAST_MILLIS);
    millis.min(LAST_MILLIS)
}
