//! Validation of outgoing mail.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};

use crate::address::{Mailbox, suppression_key};
use crate::mime::{custom_header, has_long_line};
use crate::model::{Attachment, OutgoingMail, Refusal};

/// The maximum size of an assembled mail, in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 10 * 1024 * 1024;

/// The maximum number of recipients of a mail, including `cc` and `bcc`.
const MAX_RECIPIENTS: usize = 50;
const MAX_SUBJECT_CHARS: usize = 1000;
const MAX_HEADERS: usize = 50;
/// The maximum length of a header's value, in bytes.
const MAX_HEADER_BYTES: usize = 4096;
const MAX_ATTACHMENTS: usize = 100;
const MAX_FILENAME_CHARS: usize = 255;
const MAX_CONTENT_TYPE_BYTES: usize = 255;

/// The headers that the platform or a mail server sets. Headers that begin with `Content-`, `Resent-`, `ARC-` or
/// `X-SES-` are reserved as well.
const RESERVED_HEADERS: &[&str] = &[
    "from",
    "sender",
    "reply-to",
    "to",
    "cc",
    "bcc",
    "subject",
    "date",
    "message-id",
    "mime-version",
    "dkim-signature",
    "received",
    "received-spf",
    "return-path",
    "delivered-to",
    "authentication-results",
];
const RESERVED_PREFIXES: &[&str] = &["content-", "resent-", "arc-", "x-ses-"];

/// A valid mail.
pub(crate) struct ValidMail {
    pub(crate) from: Mailbox,
    pub(crate) reply_to: Option<Mailbox>,
    pub(crate) to: Vec<Mailbox>,
    pub(crate) cc: Vec<Mailbox>,
    /// The recipients in the envelope, including `cc` and `bcc`.
    pub(crate) recipients: Vec<String>,
    pub(crate) subject: String,
    pub(crate) text: Option<String>,
    pub(crate) html: Option<String>,
    pub(crate) headers: Vec<HeaderValue>,
    pub(crate) attachments: Vec<ValidAttachment>,
}

pub(crate) struct ValidAttachment {
    pub(crate) filename: String,
    pub(crate) content_type: ContentType,
    pub(crate) content: Vec<u8>,
}

/// Returns the default sender of a domain.
pub(crate) fn default_sender(domain: &str) -> String {
    format!("noreply@{domain}")
}

/// Validates a mail of the project with this mail domain.
pub(crate) fn validate(mail: OutgoingMail, domain: &str) -> Result<ValidMail, Refusal> {
    let OutgoingMail { from, reply_to, to, cc, bcc, subject, text, html, headers, attachments } = mail;
    let from = sender(from, domain)?;
    let reply_to = reply_to.map(|text| Mailbox::parse(&text).ok_or_else(|| invalid("replyTo must be an address")));
    let count = to.len() + cc.len() + bcc.len();
    if to.is_empty() {
        return Err(Refusal::InvalidRecipient("to must have at least one address".to_owned()));
    }
    if count > MAX_RECIPIENTS {
        let message = format!("a mail can have {MAX_RECIPIENTS} recipients with cc and bcc; this mail has {count}");
        return Err(Refusal::InvalidRecipient(message));
    }
    let (to, cc, bcc) = (mailboxes("to", &to)?, mailboxes("cc", &cc)?, mailboxes("bcc", &bcc)?);
    if subject.contains(char::is_control) || subject.chars().count() > MAX_SUBJECT_CHARS {
        let message = format!("subject must be one line of at most {MAX_SUBJECT_CHARS} characters");
        return Err(Refusal::InvalidMessage(message));
    }
    if [&text, &html].into_iter().flatten().any(|body| body.contains('\0')) {
        return Err(invalid("text and html must not contain U+0000"));
    }
    if headers.len() > MAX_HEADERS || attachments.len() > MAX_ATTACHMENTS {
        let message = format!("a mail can have {MAX_HEADERS} headers and {MAX_ATTACHMENTS} attachments");
        return Err(Refusal::InvalidMessage(message));
    }
    let mut names = BTreeSet::new();
    if let Some(name) = headers.keys().find(|name| !names.insert(name.to_ascii_lowercase())) {
        return Err(Refusal::InvalidMessage(format!("headers must contain {name} only once, in upper or lower case")));
    }
    let headers = headers.into_iter().map(|(name, value)| header(name, &value)).collect::<Result<_, _>>()?;
    let attachments = attachments.into_iter().map(attachment).collect::<Result<Vec<_>, _>>()?;
    // Encoding never makes content shorter. So a mail whose content exceeds the limit need not be assembled.
    let bodies = [&text, &html].into_iter().flatten().map(String::len);
    let size = bodies.chain(attachments.iter().map(|it: &ValidAttachment| it.content.len())).sum();
    if size > MAX_MESSAGE_BYTES {
        return Err(Refusal::TooLarge { size, limit: MAX_MESSAGE_BYTES });
    }
    let mut seen = BTreeSet::new();
    let recipients = to.iter().chain(&cc).chain(&bcc).map(|mailbox| mailbox.address.to_string());
    let recipients = recipients.filter(|address| seen.insert(suppression_key(address))).collect();
    let reply_to = reply_to.transpose()?;
    Ok(ValidMail { from, reply_to, to, cc, recipients, subject, text, html, headers, attachments })
}

/// Returns the sender, which may have any local part at the project's domain.
fn sender(from: Option<String>, domain: &str) -> Result<Mailbox, Refusal> {
    let text = from.unwrap_or_else(|| default_sender(domain));
    let sender = Mailbox::parse(&text).filter(|sender| sender.domain() == domain);
    sender.ok_or_else(|| Refusal::InvalidSender { domain: domain.to_owned() })
}

fn mailboxes(field: &str, texts: &[String]) -> Result<Vec<Mailbox>, Refusal> {
    let parse = |(at, text): (usize, &String)| {
        let message = || format!("{field}[{at}] must be an address, optionally with a display name");
        let mailbox = Mailbox::parse(text).filter(|mailbox| mailbox.header().is_some());
        mailbox.ok_or_else(|| Refusal::InvalidRecipient(message()))
    };
    texts.iter().enumerate().map(parse).collect()
}

fn header(name: String, value: &str) -> Result<HeaderValue, Refusal> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let lower = name.to_ascii_lowercase();
    if name.is_empty() || name.len() > 76 || !name.chars().all(is_token) {
        return Err(invalid("the names of headers must be 1 to 76 letters, digits, - and _"));
    }
    if RESERVED_HEADERS.contains(&&*lower) || RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix)) {
        return Err(Refusal::InvalidMessage(format!("headers must not contain {name}, which the platform sets")));
    }
    if value.len() > MAX_HEADER_BYTES || value.contains(char::is_control) {
        let message = format!("the header {name} must be one line of at most {MAX_HEADER_BYTES} bytes");
        return Err(Refusal::InvalidMessage(message));
    }
    let long = format!("the header {name} has a word that does not fit in a line of 998 characters; add spaces to it");
    let name = HeaderName::new_from_ascii(name).map_err(|_| invalid("the name of a header is not valid"))?;
    let header = custom_header(name, value);
    if has_long_line(&header) { Err(Refusal::InvalidMessage(long)) } else { Ok(header) }
}

fn attachment(attachment: Attachment) -> Result<ValidAttachment, Refusal> {
    let Attachment { filename, content_type, content } = attachment;
    let length = filename.chars().count();
    if !(1..=MAX_FILENAME_CHARS).contains(&length) || filename.contains(char::is_control) {
        let message = format!("the filename of an attachment must be one line of 1 to {MAX_FILENAME_CHARS} characters");
        return Err(Refusal::InvalidMessage(message));
    }
    // Multipart and message types must not be encoded in base64 (RFC 2045 section 6.4).
    let lower = content_type.to_ascii_lowercase();
    let is_valid = content_type.len() <= MAX_CONTENT_TYPE_BYTES
        && content_type.is_ascii()
        && !content_type.contains(char::is_control)
        && !lower.starts_with("multipart/")
        && !lower.starts_with("message/");
    let parsed = ContentType::parse(&content_type).ok().filter(|_| is_valid);
    let content_type = parsed.ok_or_else(|| {
        Refusal::InvalidMessage(format!(
            "the contentType of {filename} must be a media type such as image/png of at most {MAX_CONTENT_TYPE_BYTES} \
             bytes, other than multipart and message"
        ))
    })?;
    let content = STANDARD.decode(content.as_bytes());
    let content = content.map_err(|_| Refusal::InvalidMessage(format!("the content of {filename} is not base64")))?;
    Ok(ValidAttachment { filename, content_type, content })
}

fn invalid(message: &str) -> Refusal {
    Refusal::InvalidMessage(message.to_owned())
}
