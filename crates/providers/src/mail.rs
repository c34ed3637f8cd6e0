//! A mail: its content, recipient, date and message id.
//!
//! The same `Mail` always renders to the same bytes, because id, date and boundary depend only on the caller's values.
//! So mail software can recognize the duplicate if a mail is sent again after a lost acknowledgement.

use std::time::{Duration, UNIX_EPOCH};

use kernel::{Email, Time, encoded_words};
use lettre::address::Address;
use lettre::message::header::{self, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message, MultiPart, SinglePart};
use url::Host;

use crate::mail_content::MailContent;
use crate::smtp::{Cause, MailError};

/// 9999-12-31T23:59:59Z, the latest date that a mail header can express.
const LAST_SECOND: u64 = 253_402_300_799;
const MAX_MESSAGE_ID_BYTES: usize = 64;

/// A mail to one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// The recipient's address, without a name.
    pub to: String,
    /// The part of the Message-ID before the `@`: 1 to 64 of `A-Z a-z 0-9 . _ -`. Retries must use the same id.
    pub message_id: String,
    /// The date of the mail.
    pub date: Time,
    /// The content.
    pub content: MailContent,
}

impl Mail {
    pub(crate) fn compose(&self, from: &Mailbox) -> Result<Message, MailError> {
        let to = address(&self.to).ok_or(MailError::Permanent(Cause::Address))?;
        if !is_message_id(&self.message_id) {
            return Err(MailError::Permanent(Cause::MessageId));
        }
        let seconds = u64::try_from(self.date.unix_seconds()).unwrap_or(0).min(LAST_SECOND);
        // No part of the mail can contain the boundary: the encodings never contain "=_" (RFC 2045 section 6.7), and an
        // attacker cannot predict the id.
        let parts = MultiPart::alternative().boundary(format!("=_{}", self.message_id));
        let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
        Message::builder()
            .from(from.clone())
            .to(Mailbox::new(None, to))
            .raw_header(subject_header(self.content.subject()))
            .date(UNIX_EPOCH + Duration::from_secs(seconds))
            .message_id(Some(format!("<{}@{}>", self.message_id, from.email.domain())))
            .header(header::MIME_VERSION_1_0)
            // RFC 3834 section 5: suppresses automatic replies.
            .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()))
            .multipart(
                parts
                    .singlepart(SinglePart::plain(self.content.text()))
                    .singlepart(SinglePart::html(self.content.html())),
            )
            .map_err(|_| MailError::Permanent(Cause::Address))
    }
}

/// Returns the header of a subject. Encodes all of it if it is not ASCII or has a word that looks encoded. A receiver would
/// decode this word, which can be a name that a user chose.
fn subject_header(subject: String) -> HeaderValue {
    let is_plain = subject.is_ascii() && !subject.contains("=?");
    let value = if is_plain { subject } else { encoded_words(&subject) };
    HeaderValue::new(HeaderName::new_from_ascii_str("Subject"), value)
}

/// Parses an address of the platform or of one of its users, like [`parse_address`]. The part before the `@` must be
/// ASCII, because few servers support others (RFC 6531).
pub(crate) fn address(text: &str) -> Option<Address> {
    parse_address(text).filter(|address| text.len() <= Email::MAX_LENGTH && address.user().is_ascii())
}

/// Parses an address and converts its domain to ASCII.
pub(crate) fn parse_address(text: &str) -> Option<Address> {
    let (user, domain) = text.rsplit_once('@')?;
    if text.contains(char::is_control) {
        return None;
    }
    let domain = if domain.is_ascii() { domain.to_owned() } else { Host::parse(domain).ok()?.to_string() };
    Address::new(user, domain).ok()
}

fn is_message_id(text: &str) -> bool {
    let is_atom_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    // RFC 5322 section 3.2.3: dots separate non-empty atoms.
    let has_valid_dots = text.split('.').all(|atom| !atom.is_empty());
    has_valid_dots && text.len() <= MAX_MESSAGE_ID_BYTES && text.chars().all(is_atom_char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_validated_and_converted_to_ascii() {
        let parsed = |text: &str| address(text).map(|address| address.to_string());
        assert_eq!(parsed("ada@a.example").as_deref(), Some("ada@a.example"));
        assert_eq!(parsed("ada+x@müller.example").as_deref(), Some("ada+x@xn--mller-kva.example"));
        for bad in [
            "",
            "ada",
            "@a.example",
            "ada@",
            "ü@a.example",
            "a@b\r\nRCPT TO:<c@d>",
            "a b@c.example",
            "\"a\n\"@b.example",
        ] {
            assert_eq!(parsed(bad), None, "{bad:?}");
        }
    }
}
