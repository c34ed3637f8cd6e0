//! Mail submission over SMTP (RFC 5321) with STARTTLS (RFC 3207) and AUTH (RFC 4954).
//!
//! Each mail uses its own connection. A pooled connection would need a probe before each use and could still break; at
//! our rate, a handshake is simpler. The session is executed step by step, because the meaning of a reply depends on
//! the step.

mod config;
mod error;
mod line_reader;
mod relay;

use std::time::Duration;

use lettre::transport::smtp::authentication::{self, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::commands::{Data, Rcpt};
use lettre::transport::smtp::extension::ClientId;
use lettre::transport::smtp::{self, commands};
use lettre::{Message, message::Mailbox};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use url::Host;

use crate::mail::{Mail, address};
pub use config::{Credentials, InvalidSmtp, SmtpConfig, Tls};
pub use error::{Cause, MailError, Step};
use line_reader::LineReader;
pub use relay::{Envelope, RefusedRecipient, Relay, RelayError, Relayed};

/// The timeouts of an SMTP session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// The timeout of a connection attempt to one address.
    pub connect: Duration,
    /// The timeout of the delivery of one mail.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), total: Duration::from_secs(30) }
    }
}

/// The timeout of QUIT after the server accepted the mail.
const QUIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends mail through one server with one sender address. Cheap to clone.
#[derive(Clone)]
pub struct Smtp {
    config: SmtpConfig,
    tls: TlsParameters,
    from: Mailbox,
    hello: ClientId,
    timeouts: Timeouts,
}

impl std::fmt::Debug for Smtp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Smtp").field("config", &self.config).field("from", &self.from).finish_non_exhaustive()
    }
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
        let hello = ClientId::Domain(email.domain().to_owned());
        let tls = tls_parameters(config)?;
        Ok(Self { config: config.clone(), tls, from: Mailbox::new(from.name, email), hello, timeouts })
    }

    /// Sends a mail. `Ok` means that the server accepted responsibility for it.
    ///
    /// # Errors
    /// Returns [`MailError::Transient`] if a retry may succeed. If the connection broke before the server's reply, the
    /// server may have accepted the mail anyway. Returns [`MailError::Permanent`] if a retry cannot succeed.
    pub async fn send(&self, mail: &Mail) -> Result<()> {
        let message = mail.compose(&self.from)?;
        let sent = timeout(self.timeouts.total, self.deliver(&message)).await;
        let mut connection = sent.map_err(|_| MailError::Transient(Cause::Timeout))??;
        // The server has accepted the mail, so the result of QUIT does not matter.
        let _ = timeout(QUIT_TIMEOUT, connection.quit()).await;
        Ok(())
    }

    async fn deliver(&self, message: &Message) -> Result<AsyncSmtpConnection> {
        let mut connection = self.connect().await?;
        if let Some(Credentials { user, password }) = &self.config.credentials {
            let credentials = authentication::Credentials::new(user.clone(), password.reveal().to_owned());
            at_step(Step::Auth, connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await)?;
        }
        let envelope = message.envelope();
        let sender = commands::Mail::new(envelope.from().cloned(), Vec::new());
        at_step(Step::Sender, connection.command(sender).await)?;
        for recipient in envelope.to() {
            at_step(Step::Recipient, connection.command(Rcpt::new(recipient.clone(), Vec::new())).await)?;
        }
        at_step(Step::Message, connection.command(Data).await)?;
        at_step(Step::Message, connection.message(&message.formatted()).await)?;
        Ok(connection)
    }

    /// Connects and sends EHLO. Then sends STARTTLS if the configuration requires it, or if the configuration is
    /// opportunistic and the server offers it.
    async fn connect(&self) -> Result<AsyncSmtpConnection> {
        let (host, port) = (unbracketed(&self.config.host), self.config.port);
        if self.config.tls == Tls::Implicit {
            let (limit, tls) = (Some(self.timeouts.connect), Some(self.tls.clone()));
            let connection = AsyncSmtpConnection::connect_tokio1((host, port), limit, &self.hello, tls, None).await;
            return at_step(Step::Connect, connection);
        }
        let stream = Box::new(LineReader(self.connect_tcp(&host, port).await?));
        let mut connection =
            at_step(Step::Connect, AsyncSmtpConnection::connect_with_transport(stream, &self.hello).await)?;
        let uses_starttls = match self.config.tls {
            Tls::Opportunistic => connection.can_starttls(),
            tls => tls == Tls::Required,
        };
        if uses_starttls {
            at_step(Step::Tls, connection.starttls(self.tls.clone(), &self.hello).await)?;
        }
        Ok(connection)
    }

    /// Connects to the first reachable address of the host.
    async fn connect_tcp(&self, host: &str, port: u16) -> Result<TcpStream> {
        let failed = |what: String| MailError::Transient(Cause::Connection { step: Step::Connect, reason: what });
        let addresses = lookup_host((host, port)).await.map_err(|error| failed(error.to_string()))?;
        let mut last = failed("the host has no address".to_owned());
        for address in addresses {
            match timeout(self.timeouts.connect, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = failed(error.to_string()),
                Err(_) => last = MailError::Transient(Cause::Timeout),
            }
        }
        Err(last)
    }
}

fn tls_parameters(config: &SmtpConfig) -> std::result::Result<TlsParameters, InvalidSmtp> {
    let mut tls = TlsParameters::builder(unbracketed(&config.host));
    if let Some(pem) = &config.ca_certificate {
        let invalid = InvalidSmtp("the CA certificate is not a PEM certificate");
        tls = tls.add_root_certificate(Certificate::from_pem(pem.as_bytes()).map_err(|_| invalid)?);
    }
    tls.build_rustls().map_err(|_| InvalidSmtp("failed to set up TLS"))
}

/// Returns the host without the brackets of an IPv6 address.
fn unbracketed(host: &Host<String>) -> String {
    match host {
        Host::Domain(name) => name.clone(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    }
}
