//! Connections to the configured mail server.

use std::time::Duration;

use lettre::transport::smtp;
use lettre::transport::smtp::authentication::{self, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::transport::smtp::response::Response;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};
use url::Host;

use super::config::{Credentials, InvalidSmtp, SmtpConfig, Tls};
use super::error::{Cause, MailError, Step};
use super::line_reader::LineReader;
use super::{Result, at_step};

/// The timeouts of an SMTP session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// The timeout of a connection attempt to one address.
    pub connect: Duration,
    /// The timeout of the part of the session before the message. After this part, the server may need much longer: it
    /// checks the message before its final reply (RFC 5321 section 4.5.3.2.6).
    pub before_message: Duration,
    /// The timeout of the delivery of one mail.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let total = Duration::from_secs(30);
        Self { connect: Duration::from_secs(5), before_message: total, total }
    }
}

/// An error of the steps of a session.
pub(super) trait SessionError: From<MailError> {
    /// Returns whether QUIT can end the session: the connection works, and the server waits for a command.
    fn can_quit(&self) -> bool;
}

impl SessionError for MailError {
    fn can_quit(&self) -> bool {
        self.cause().is_recoverable()
    }
}

/// The timeout of QUIT.
const QUIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens a connection for each mail. A pooled connection would need a probe before each use, and could break even so.
/// At this rate of mail, a handshake is simpler.
#[derive(Clone)]
pub(super) struct Connector {
    config: SmtpConfig,
    tls: TlsParameters,
    hello: ClientId,
    timeouts: Timeouts,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Connector {
    /// EHLO sends the name `hello`.
    pub(super) fn new(config: &SmtpConfig, hello: &str, timeouts: Timeouts) -> std::result::Result<Self, InvalidSmtp> {
        let tls = tls_parameters(config)?;
        Ok(Self { config: config.clone(), tls, hello: ClientId::Domain(hello.to_owned()), timeouts })
    }

    /// Connects, runs the steps up to DATA, sends the message, and then ends the session. `conclude` receives the result
    /// of the steps and the final reply.
    ///
    /// # Errors
    /// Returns the errors of the connection, of the steps and of `conclude`, and [`Cause::Timeout`].
    pub(super) async fn run<P, T, E: SessionError>(
        &self,
        steps: impl AsyncFnOnce(&mut AsyncSmtpConnection) -> std::result::Result<P, E>,
        message: &[u8],
        conclude: impl FnOnce(P, std::result::Result<Response, smtp::Error>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let start = Instant::now();
        let (before_message, end) = (start + self.timeouts.before_message, start + self.timeouts.total);
        let before_message = before_message.min(end);
        let timed_out = |_| MailError::Transient(Cause::Timeout);
        let mut connection = timeout_at(before_message, self.greet()).await.map_err(timed_out)??;
        let steps = async {
            self.authenticate(&mut connection).await?;
            steps(&mut connection).await
        };
        let result = match timeout_at(before_message, steps).await.map_err(timed_out)? {
            Ok(prepared) => {
                let reply = timeout_at(end, connection.message(message)).await.map_err(timed_out)?;
                conclude(prepared, reply)
            }
            Err(error) => Err(error),
        };
        if result.as_ref().err().is_none_or(E::can_quit) {
            // The result is known, so that of QUIT does not matter.
            let _ = timeout(QUIT_TIMEOUT, connection.quit()).await;
        }
        result
    }

    /// Sends the credentials, if they are configured.
    async fn authenticate(&self, connection: &mut AsyncSmtpConnection) -> Result<()> {
        if let Some(Credentials { user, password }) = &self.config.credentials {
            let credentials = authentication::Credentials::new(user.clone(), password.reveal().to_owned());
            at_step(Step::Auth, connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await)?;
        }
        Ok(())
    }

    /// Connects and sends EHLO. Then sends STARTTLS if the configuration requires it, or if the configuration is
    /// opportunistic and the server offers it.
    async fn greet(&self) -> Result<AsyncSmtpConnection> {
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
