//! Mail submission over SMTP (RFC 5321) with STARTTLS (RFC 3207) and AUTH (RFC 4954): [`Smtp`] for the platform's own
//! mails, and [`Relay`] for the messages of projects.
//!
//! The session is executed step by step, because the meaning of a reply depends on the step.

mod config;
mod connector;
mod error;
mod line_reader;
mod relay;

use lettre::message::Mailbox;
use lettre::transport::smtp;
use lettre::transport::smtp::commands::{self, Data, Rcpt};

use crate::mail::{Mail, address};
pub use config::{Credentials, InvalidSmtp, SmtpConfig, Tls};
use connector::Connector;
pub use connector::Timeouts;
pub use error::{Cause, MailError, Step};
pub use relay::{Envelope, RefusedRecipient, Relay, RelayError, Relayed};

/// Sends mail through one server with one sender address. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Smtp {
    connector: Connector,
    from: Mailbox,
}

type Result<T> = std::result::Result<T, MailError>;

/// Adds the step to an error of lettre.
fn at_step<T>(step: Step, result: std::result::Result<T, smtp::Error>) -> Result<T> {
    result.map_err(|error| MailError::at(step, &error))
}

impl Smtp {
    /// Creates a mail client with the default timeouts.
    ///
    /// # Errors
    /// Returns an error for an invalid CA certificate, and for a sender address that is invalid or not ASCII before the
    /// `@`.
    pub fn new(config: &SmtpConfig, from: Mailbox) -> std::result::Result<Self, InvalidSmtp> {
        Self::with_timeouts(config, from, Timeouts::default())
    }

    /// Creates a mail client with custom timeouts.
    ///
    /// # Errors
    /// Returns the errors of [`Smtp::new`].
    pub fn with_timeouts(
        config: &SmtpConfig,
        from: Mailbox,
        timeouts: Timeouts,
    ) -> std::result::Result<Self, InvalidSmtp> {
        let email = address(from.email.as_ref()).ok_or(InvalidSmtp("the sender address is invalid"))?;
        // EHLO sends the sender's domain, because the name of this host often is not fully qualified.
        let connector = Connector::new(config, email.domain(), timeouts)?;
        Ok(Self { connector, from: Mailbox::new(from.name, email) })
    }

    /// Sends a mail. `Ok` means that the server accepted responsibility for it.
    ///
    /// # Errors
    /// Returns [`MailError::Transient`] if a retry may succeed. If the connection broke before the server's reply, the
    /// server may have accepted the mail anyway. Returns [`MailError::Permanent`] if a retry cannot succeed.
    pub async fn send(&self, mail: &Mail) -> Result<()> {
        let message = mail.compose(&self.from)?;
        let bytes = message.formatted();
        self.connector
            .run(
                async |connection| {
                    let envelope = message.envelope();
                    let sender = commands::Mail::new(envelope.from().cloned(), Vec::new());
                    at_step(Step::Sender, connection.command(sender).await)?;
                    for recipient in envelope.to() {
                        at_step(Step::Recipient, connection.command(Rcpt::new(recipient.clone(), Vec::new())).await)?;
                    }
                    at_step(Step::Message, connection.command(Data).await)
                },
                &bytes,
                |_, reply| at_step(Step::Message, reply).map(drop),
            )
            .await
    }
}
