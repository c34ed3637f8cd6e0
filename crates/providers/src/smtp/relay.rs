//! Submission of complete messages, with a reply for each recipient.

use std::time::Duration;

use lettre::address::Address;
use lettre::message::Mailbox;
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use tokio::time::timeout;

use super::{Cause, InvalidSmtp, MailError, Smtp, SmtpConfig, Step, at_step};

/// Submits messages to one server.
#[derive(Debug, Clone)]
pub struct Relay(Smtp);

/// The sender and the recipients of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    pub from: String,
    pub to: Vec<String>,
}

/// The server accepted the message for at least one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relayed {
    pub id: Option<String>,
    pub refused: Vec<RefusedRecipient>,
}

/// A recipient that the server refused permanently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRecipient {
    pub address: String,
    pub reply: String,
}

/// The reason why the server did not accept a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RelayError {
    #[error("failed to relay the message: {0}")]
    Transient(Cause),
    #[error("the message cannot be relayed: {0}")]
    Permanent(String),
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
    /// Creates a relay. EHLO sends the name `hello`.
    ///
    /// # Errors
    /// Returns an error for an invalid CA certificate.
    pub fn new(config: &SmtpConfig, hello: &str) -> Result<Self, InvalidSmtp> {
        let from = Address::new("postmaster", hello).map_err(|_| InvalidSmtp("the name is invalid"))?;
        Ok(Self(Smtp::new(config, Mailbox::new(None, from))?))
    }

    /// Submits a message.
    ///
    /// # Errors
    /// Returns an error if the server did not accept the message.
    pub async fn send(&self, envelope: &Envelope, message: &[u8]) -> Result<Relayed, RelayError> {
        let sent = timeout(Duration::from_secs(40), self.submit(envelope, message)).await;
        sent.map_err(|_| RelayError::Transient(Cause::Timeout))?
    }

    async fn submit(&self, envelope: &Envelope, message: &[u8]) -> Result<Relayed, RelayError> {
        let mut connection = self.0.connect().await?;
        let from: Option<Address> = envelope.from.parse().ok();
        at_step(Step::Sender, connection.command(Mail::new(from, Vec::new())).await)?;
        let mut refused = Vec::new();
        for address in &envelope.to {
            let parsed: Address = address.parse().map_err(|_| RelayError::Permanent("invalid address".to_owned()))?;
            if let Err(error) = connection.command(Rcpt::new(parsed, Vec::new())).await {
                match MailError::at(Step::Recipient, &error) {
                    MailError::Permanent(cause) => {
                        refused.push(RefusedRecipient { address: address.clone(), reply: cause.to_string() });
                    }
                    MailError::Transient(cause) => return Err(RelayError::Transient(cause)),
                }
            }
        }
        if refused.len() == envelope.to.len() {
            return Err(RelayError::Permanent(refused.into_iter().next().map(|it| it.reply).unwrap_or_default()));
        }
        at_step(Step::Message, connection.command(Data).await)?;
        let response =
            at_step(Step::Message, connection.message(message.strip_suffix(b"\r\n").unwrap_or(message)).await)?;
        let id = response.message().last().and_then(|line| line.split_ascii_whitespace().last().map(str::to_owned));
        let _ = timeout(Duration::from_secs(1), connection.quit()).await;
        Ok(Relayed { id, refused })
    }
}
