//! Assembly of outgoing mail (RFC 5322, RFC 2045).
//!
//! The boundaries, the date and the Message-ID depend only on the mail's id, so the same mail always has the same
//! bytes.

use std::time::{Duration, UNIX_EPOCH};

use kernel::MailId;
use lettre::message::header::{self, ContentTransferEncoding, HeaderValue};
use lettre::message::{Attachment, Body, Message, MultiPart, SinglePart};

use crate::outgoing::{ValidAttachment, ValidMail};

/// Assembles the message of a mail. Recipients in `bcc` appear only in the envelope. Returns `None` if the library
/// rejects the mail.
pub(crate) fn assemble(id: MailId, domain: &str, mail: ValidMail) -> Option<Vec<u8>> {
    let ValidMail { from, reply_to, to, cc, recipients: _, subject, text, html, headers, attachments } = mail;
    let mut message = Message::builder()
        .from(from.header()?)
        .subject(subject)
        .date(UNIX_EPOCH + Duration::from_millis(millis(id)))
        .message_id(Some(format!("<{id}@{domain}>")))
        .header(header::MIME_VERSION_1_0);
    for mailbox in to {
        message = message.to(mailbox.header()?);
    }
    for mailbox in cc {
        message = message.cc(mailbox.header()?);
    }
    if let Some(mailbox) = reply_to {
        message = message.reply_to(mailbox.header()?);
    }
    for (name, value) in headers {
        message = message.raw_header(HeaderValue::new(name, value));
    }
    let content = content(id, text, html);
    let message = match (content, attachments) {
        (Content::Part(part), attachments) if attachments.is_empty() => message.singlepart(part),
        (Content::Parts(parts), attachments) if attachments.is_empty() => message.multipart(parts),
        (content, attachments) => message.multipart(with_attachments(id, content, attachments)?),
    };
    Some(message.ok()?.formatted())
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
