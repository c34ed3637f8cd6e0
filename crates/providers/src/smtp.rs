//! Mail over SMTP (RFC 5321), submission and its extensions: STARTTLS (RFC 3207), AUTH (RFC 4954).
//!
//! Each mail has a connection of its own. A connection that is kept would have to be probed before each use and can
//! still break under it; at our rate the handshake costs less than telling the two apart. The conversation is held a
//! step at a time, since the same reply means another thing at another step.

mod config;
mod error;
mod line;

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
use line::Lines;

/// How long a server may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until there is a connection to one of its addresses.
    pub connect: Duration,
    /// For a mail in all.
    pub whole: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), whole: Duration::from_secs(30) }
    }
}

/// How long a server that has taken the mail may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// Sends mail through one server, under one sender. Cheap to clone.
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

/// Names the step at which lettre's error came up.
fn at<T>(step: Step, result: std::result::Result<T, smtp::Error>) -> Result<T> {
    result.map_err(|error| MailError::at(step, &error))
}

impl Smtp {
    /// A sender of mail within the product's time limits.
    ///
    /// # Errors
    /// A sender's address that is malformed or beyond ASCII before its `@`, an authority that is no certificate.
    pub fn new(config: &SmtpConfig, from: Mailbox) -> std::result::Result<Self, InvalidSmtp> {
        Self::within(config, from, Timeouts::default())
    }

    /// A sender of mail within other time limits.
    ///
    /// # Errors
    /// Those of [`Smtp::new`].
    pub fn within(config: &SmtpConfig, from: Mailbox, timeouts: Timeouts) -> std::result::Result<Self, InvalidSmtp> {
        let email = address(from.email.as_ref()).ok_or(InvalidSmtp("the sender's address is malformed"))?;
        // A name that is fully qualified and ours, which a host's own often is not.
        let hello = ClientId::Domain(email.domain().to_owned());
        let tls = tls(config)?;
        Ok(Self { config: config.clone(), tls, from: Mailbox::new(from.name, email), hello, timeouts })
    }

    /// Hands a mail to the server. When this answers `Ok`, the server has taken it over.
    ///
    /// # Errors
    /// [`MailError::Later`] when another attempt may succeed; then the server may have taken the mail nevertheless, if
    /// the connection broke before it said so. [`MailError::Never`] when none will.
    pub async fn send(&self, mail: &Mail) -> Result<()> {
        let message = mail.compose(&self.from)?;
        let sent = timeout(self.timeouts.whole, self.converse(&message)).await;
        let mut connection = sent.map_err(|_| MailError::Later(Cause::Timeout))??;
        // The mail is theirs by now, whatever becomes of the goodbye.
        let _ = timeout(GOODBYE, connection.quit()).await;
        Ok(())
    }

    async fn converse(&self, message: &Message) -> Result<AsyncSmtpConnection> {
        let mut connection = self.connect().await?;
        if let Some(Credentials { user, password }) = &self.config.credentials {
            let credentials = authentication::Credentials::new(user.clone(), password.reveal().to_owned());
            at(Step::Auth, connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await)?;
        }
        let envelope = message.envelope();
        let sender = commands::Mail::new(envelope.from().cloned(), Vec::new());
        at(Step::Sender, connection.command(sender).await)?;
        for recipient in envelope.to() {
            at(Step::Recipient, connection.command(Rcpt::new(recipient.clone(), Vec::new())).await)?;
        }
        at(Step::Message, connection.command(Data).await)?;
        at(Step::Message, connection.message(&message.formatted()).await)?;
        Ok(connection)
    }

    /// A connection past EHLO, and past STARTTLS where it is to be.
    async fn connect(&self) -> Result<AsyncSmtpConnection> {
        let (host, port) = (bare(&self.config.host), self.config.port);
        if self.config.tls == Tls::Implicit {
            let (limit, tls) = (Some(self.timeouts.connect), Some(self.tls.clone()));
            let connection = AsyncSmtpConnection::connect_tokio1((host, port), limit, &self.hello, tls, None).await;
            return at(Step::Connect, connection);
        }
        let stream = Box::new(Lines(self.dial(&host, port).await?));
        let mut connection = at(Step::Connect, AsyncSmtpConnection::connect_with_transport(stream, &self.hello).await)?;
        let encrypts = match self.config.tls {
            Tls::Opportunistic => connection.can_starttls(),
            tls => tls == Tls::Required,
        };
        if encrypts {
            at(Step::Tls, connection.starttls(self.tls.clone(), &self.hello).await)?;
        }
        Ok(connection)
    }

    /// Tries the host's addresses one after the other.
    async fn dial(&self, host: &str, port: u16) -> Result<TcpStream> {
        let failed = |what: String| MailError::Later(Cause::Connection { at: Step::Connect, what });
        let addresses = lookup_host((host, port)).await.map_err(|error| failed(error.to_string()))?;
        let mut last = failed("the host has no address".to_owned());
        for address in addresses {
            match timeout(self.timeouts.connect, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = failed(error.to_string()),
                Err(_) => last = MailError::Later(Cause::Timeout),
            }
        }
        Err(last)
    }
}

fn tls(config: &SmtpConfig) -> std::result::Result<TlsParameters, InvalidSmtp> {
    let mut tls = TlsParameters::builder(bare(&config.host));
    if let Some(pem) = &config.authority {
        let none = InvalidSmtp("the authority is no certificate in PEM");
        tls = tls.add_root_certificate(Certificate::from_pem(pem.as_bytes()).map_err(|_| none)?);
    }
    tls.build_rustls().map_err(|_| InvalidSmtp("TLS cannot be set up"))
}

/// As it is looked up: without the brackets of an IPv6 address.
fn bare(host: &Host<String>) -> String {
    match host {
        Host::Domain(name) => name.clone(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    }
}
