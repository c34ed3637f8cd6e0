//! Submission of complete messages, with a reply for each recipient.

use std::error::Error as _;
use std::time::Duration;

use lettre::address::Address;
use lettre::transport::smtp;
use lettre::transport::smtp::client::AsyncSmtpConnection;
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::Response;

use super::at_step;
use super::config::{InvalidSmtp, SmtpConfig};
use super::connector::{Connector, SessionError, Timeouts};
use super::error::{Cause, MailError, Step};
use crate::mail::parse_address;

/// The default timeouts, for messages of up to 10 MiB. After the message, a relay may need 10 minutes for its final
/// reply (RFC 5321 section 4.5.3.2.6). A shorter timeout would send a message again that the relay has accepted. The
/// outbox handler waits for longer than the total.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(5),
    before_message: Duration::from_secs(120),
    total: Duration::from_secs(15 * 60),
};

/// The longest reply that is returned, in characters.
const MAX_REPLY_LENGTH: usize = 500;
/// The longest id that is returned, in bytes.
const MAX_ID_LENGTH: usize = 256;

/// Submits messages to one server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Relay {
    connector: Connector,
}

/// The sender and the recipients of a message (RFC 5321 section 2.3.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The sender's address. Empty for the null sender.
    pub from: String,
    /// The recipients' addresses.
    pub to: Vec<String>,
}

/// The server accepted the message for at least one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relayed {
    /// The server's id of the message: the last word of its final reply.
    pub id: Option<String>,
    /// The recipients that the server refused permanently.
    pub refused: Vec<RefusedRecipient>,
}

/// A recipient that the server refused permanently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRecipient {
    /// The address, as in the envelope.
    pub address: String,
    /// The code and the text of the reply, on one line.
    pub reply: String,
}

/// The reason why the server did not accept a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RelayError {
    /// A retry may succeed. If the connection broke after the message, the server may have accepted it anyway.
    #[error("failed to relay the message: {0}")]
    Transient(Cause),
    /// The server refused the message or all recipients, or it cannot transport the message. Contains the reply.
    #[error("the message cannot be relayed: {0}")]
    Permanent(String),
}

impl SessionError for RelayError {
    fn can_quit(&self) -> bool {
        match self {
            Self::Transient(cause) => cause.is_recoverable(),
            // A reply, or nothing was sent.
            Self::Permanent(_) => true,
        }
    }
}

impl From<MailError> for RelayError {
    fn from(error: MailError) -> Self {
        match error {
            MailError::Transient(cause) => Self::Transient(cause),
            MailError::Permanent(cause) => Self::Permanent(cause.to_string()),
        }
    }
}

impl Relay {
    /// Creates a relay with the default timeouts. EHLO sends the name `hello`.
    ///
    /// # Errors
    /// Returns an error for an invalid CA certificate.
    pub fn new(config: &SmtpConfig, hello: &str) -> Result<Self, InvalidSmtp> {
        Self::with_timeouts(config, hello, TIMEOUTS)
    }

    /// Creates a relay with custom timeouts.
    ///
    /// # Errors
    /// Returns the errors of [`Relay::new`].
    pub fn with_timeouts(config: &SmtpConfig, hello: &str, timeouts: Timeouts) -> Result<Self, InvalidSmtp> {
        Ok(Self { connector: Connector::new(config, hello, timeouts)? })
    }

    /// Submits a message (RFC 5322, with CRLF line ends). `Ok` means that the server accepted responsibility for it.
    ///
    /// # Errors
    /// Returns [`RelayError::Transient`] if the server refuses any recipient temporarily: nothing is sent then, so a
    /// retry reaches all recipients. Returns [`RelayError::Permanent`] if a retry cannot succeed.
    pub async fn send(&self, envelope: &Envelope, message: &[u8]) -> Result<Relayed, RelayError> {
        if has_bare_line_break(message) {
            return Err(RelayError::Permanent("the message has a line break other than CRLF, or NUL".to_owned()));
        }
        let invalid = || RelayError::Permanent("the sender address is invalid".to_owned());
        let from = match envelope.from.as_str() {
            "" => None,
            from => Some(parse_address(from).ok_or_else(invalid)?),
        };
        // lettre adds the line break before the final dot.
        let bytes = message.strip_suffix(b"\r\n").unwrap_or(message);
        self.connector
            .run(
                async |connection| send_envelope(connection, from, &envelope.to, message).await,
                bytes,
                |refused, reply| Ok(Relayed { id: id(&message_reply(reply)?), refused }),
            )
            .await
    }
}

/// Runs the steps of a session from MAIL FROM to DATA. Returns the refused recipients.
async fn send_envelope(
    connection: &mut AsyncSmtpConnection,
    from: Option<Address>,
    to: &[String],
    message: &[u8],
) -> Result<Vec<RefusedRecipient>, RelayError> {
    let recipients: Vec<_> = to.iter().map(|address| (address, parse_address(address))).collect();
    let mut addresses = from.iter().chain(recipients.iter().filter_map(|(_, parsed)| parsed.as_ref()));
    let needs_utf8 = !header(message).is_ascii() || addresses.any(|address| !is_ascii(address));
    let parameters = parameters(connection, message, needs_utf8)?;
    at_step(Step::Sender, connection.command(Mail::new(from, parameters)).await)?;
    let mut refused = Vec::new();
    for (address, parsed) in recipients {
        let reply = match parsed {
            Some(parsed) => recipient(connection, parsed).await?,
            None => Some("the address is invalid".to_owned()),
        };
        refused.extend(reply.map(|reply| RefusedRecipient { address: address.clone(), reply }));
    }
    if refused.len() == to.len() {
        let reply = refused.into_iter().next().map(|refused| refused.reply);
        return Err(RelayError::Permanent(reply.unwrap_or_else(|| "the message has no recipient".to_owned())));
    }
    message_reply(connection.command(Data).await)?;
    Ok(refused)
}

/// Returns the parameters of MAIL FROM that the bytes need (RFC 6152, RFC 6531).
fn parameters(
    connection: &AsyncSmtpConnection,
    message: &[u8],
    needs_utf8: bool,
) -> Result<Vec<MailParameter>, RelayError> {
    let mut parameters = Vec::new();
    for (is_needed, extension, parameter) in [
        (!message.is_ascii(), Extension::EightBitMime, MailParameter::Body(MailBodyParameter::EightBitMime)),
        (needs_utf8, Extension::SmtpUtfEight, MailParameter::SmtpUtfEight),
    ] {
        if is_needed && !connection.server_info().supports_feature(extension) {
            return Err(RelayError::Permanent(format!("the relay does not support {extension}")));
        }
        parameters.extend(is_needed.then_some(parameter));
    }
    Ok(parameters)
}

/// Sends RCPT TO. Returns the reply if the server refuses the recipient permanently.
async fn recipient(connection: &mut AsyncSmtpConnection, address: Address) -> Result<Option<String>, RelayError> {
    let Err(error) = connection.command(Rcpt::new(address, Vec::new())).await else { return Ok(None) };
    match MailError::at(Step::Recipient, &error) {
        MailError::Permanent(_) => Ok(Some(reply(&error))),
        MailError::Transient(cause) => Err(RelayError::Transient(cause)),
    }
}

/// Adds the reply to a permanent error of DATA or the message.
fn message_reply(result: Result<Response, smtp::Error>) -> Result<Response, RelayError> {
    result.map_err(|error| match MailError::at(Step::Message, &error) {
        MailError::Permanent(_) => RelayError::Permanent(reply(&error)),
        MailError::Transient(cause) => RelayError::Transient(cause),
    })
}

/// Returns the code and the text of an error reply, on one line.
fn reply(error: &smtp::Error) -> String {
    let code = error.status().map(u16::from);
    let text = error.source().map(ToString::to_string);
    let reply = [code.map(|code| code.to_string()), text].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let reply = reply.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    reply.collect::<Vec<_>>().join(" ").chars().take(MAX_REPLY_LENGTH).collect()
}

/// Returns the last word of a reply, if it can be an id.
fn id(response: &Response) -> Option<String> {
    let word = response.message().last()?.split_ascii_whitespace().last()?;
    let is_id = word.len() <= MAX_ID_LENGTH && word.bytes().all(|byte| byte.is_ascii_graphic());
    is_id.then(|| word.to_owned())
}

fn is_ascii(address: &Address) -> bool {
    let text: &str = address.as_ref();
    text.is_ascii()
}

/// Returns the header of a message.
fn header(message: &[u8]) -> &[u8] {
    let end = message.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or(message.len());
    message.get(..end).unwrap_or(message)
}

/// Returns whether a message contains CR, LF or NUL other than in line ends. Some servers read a line end there, and so
/// could find the end of the message before its last byte (RFC 5321 section 2.3.8).
fn has_bare_line_break(message: &[u8]) -> bool {
    let mut previous = None;
    for &byte in message {
        if (byte == b'\n') != (previous == Some(b'\r')) || byte == 0 {
            return true;
        }
        previous = Some(byte);
    }
    previous == Some(b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_line_breaks_are_found() {
        for message in ["", "a", "\r\n", "a\r\n\r\n.\r\n", "a\r\nb"] {
            assert!(!has_bare_line_break(message.as_bytes()), "{message:?}");
        }
        for message in ["\n", "\r", "a\nb", "a\rb", "a\r\n\nb", "a\r\r\nb", "a\n\r\n", "a\r\n\r", "a\0"] {
            assert!(has_bare_line_break(message.as_bytes()), "{message:?}");
        }
    }

    #[test]
    fn domain_is_converted_to_ascii() {
        let parsed = |text: &str| parse_address(text).map(|address| address.to_string());
        assert_eq!(parsed("ada@müller.example").as_deref(), Some("ada@xn--mller-kva.example"));
        assert_eq!(parsed("äda@a.example").as_deref(), Some("äda@a.example"));
        for invalid in ["", "ada", "@a.example", "ada@", "a@b\r\nRCPT TO:<c@d>", "a b@c.example", "a>@c.example"] {
            assert_eq!(parsed(invalid), None, "{invalid:?}");
        }
    }
}
