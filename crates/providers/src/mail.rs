//! A mail: a letter, whom it goes to, and what makes it recognisable.
//!
//! The same `Mail` is the same bytes whenever it is sent: the id, the date and the border between its parts come from
//! the caller's values. A mail whose acknowledgement was lost and that is sent again can be told for what it is.

use std::time::{Duration, UNIX_EPOCH};

use kernel::Time;
use lettre::address::Address;
use lettre::message::header::{self, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message, MultiPart, SinglePart};
use url::Host;

use crate::letter::Letter;
use crate::smtp::{Cause, MailError};

/// 9999-12-31T23:59:59Z, the last moment that a date in a mail can tell.
const LAST_SECOND: u64 = 253_402_300_799;
/// RFC 5321 section 4.5.3.1.3, less the angle brackets.
const ADDRESS_MAX_BYTES: usize = 254;
const MESSAGE_ID_MAX_BYTES: usize = 64;

/// A mail to one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// The recipient's address, without a name.
    pub to: String,
    /// What stands before the `@` of its Message-ID: 1 to 64 of `A-Z a-z 0-9 . _ -`, the same whenever it is sent again.
    pub message_id: String,
    /// When it was written.
    pub date: Time,
    /// What it says.
    pub letter: Letter,
}

impl Mail {
    pub(crate) fn compose(&self, from: &Mailbox) -> Result<Message, MailError> {
        let to = address(&self.to).ok_or(MailError::Never(Cause::Address))?;
        if !is_message_id(&self.message_id) {
            return Err(MailError::Never(Cause::MessageId));
        }
        let seconds = u64::try_from(self.date.unix_seconds()).unwrap_or(0).min(LAST_SECOND);
        // Neither encoding that a part can have holds "=_" (RFC 2045 section 6.7), and the id is not known before.
        let parts = MultiPart::alternative().boundary(format!("=_{}", self.message_id));
        let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
        Message::builder()
            .from(from.clone())
            .to(Mailbox::new(None, to))
            .subject(self.letter.subject())
            .date(UNIX_EPOCH + Duration::from_secs(seconds))
            .message_id(Some(format!("<{}@{}>", self.message_id, from.email.domain())))
            .header(header::MIME_VERSION_1_0)
            // RFC 3834 section 5: nobody's holiday notice answers it.
            .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()))
            .multipart(
                parts
                    .singlepart(SinglePart::plain(self.letter.text()))
                    .singlepart(SinglePart::html(self.letter.html())),
            )
            .map_err(|_| MailError::Never(Cause::Address))
    }
}

/// The address with its domain in ASCII. The part before the `@` has to be in ASCII too: hardly a server takes others
/// (RFC 6531).
pub(crate) fn address(text: &str) -> Option<Address> {
    let (user, domain) = text.rsplit_once('@')?;
    if text.len() > ADDRESS_MAX_BYTES || !user.is_ascii() || text.contains(char::is_control) {
        return None;
    }
    let domain = if domain.is_ascii() { domain.to_owned() } else { Host::parse(domain).ok()?.to_string() };
    Address::new(user, domain).ok()
}

fn is_message_id(text: &str) -> bool {
    let atoms = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    // RFC 5322 section 3.2.3: dots stand between atoms.
    let dotted = text.split('.').all(|atom| !atom.is_empty());
    dotted && text.len() <= MESSAGE_ID_MAX_BYTES && text.chars().all(atoms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
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
