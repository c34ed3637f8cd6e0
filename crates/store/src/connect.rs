//! Opens connections, with optional TLS, session settings from the first packet on, and instrumentation.

use std::sync::Arc;

use diesel::{ConnectionError, ConnectionResult};
use diesel_async::AsyncConnection as _;
use kernel::error_chain;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::task::JoinHandle;
use tokio_postgres::tls::TlsStream;
use tokio_postgres::{CancelToken, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Connection;
use crate::config::{InvalidUrl, Target, Tls};
use crate::instrument::StatementInstrumentation;

/// Opens connections to one database; cheap to clone.
#[derive(Clone)]
pub(crate) struct Connector {
    postgres: tokio_postgres::Config,
    tls: Option<MakeRustlsConnect>,
}

impl Connector {
    pub(crate) fn new(target: Target) -> Result<Self, InvalidUrl> {
        let tls = match target.tls {
            Tls::Off => None,
            Tls::Verified { extra_root } => Some(MakeRustlsConnect::new(client_config(extra_root)?)),
        };
        Ok(Self { postgres: target.postgres, tls })
    }

    /// Returns a connector to the same database with additional session settings.
    pub(crate) fn with_options(&self, more: &str) -> Self {
        let mut connector = self.clone();
        let options = format!("{} {more}", self.postgres.get_options().unwrap_or_default());
        connector.postgres.options(options);
        connector
    }

    /// Opens a connection for statements.
    pub(crate) async fn connect(&self) -> ConnectionResult<Connection> {
        self.connect_with_driver().await.map(|(connection, _)| instrumented(connection))
    }

    /// Opens a connection for concurrent statements, which the instrumentation cannot tell apart. Returns it with the
    /// task that reads and writes its messages, which ends with the connection.
    ///
    /// Only notifications need a task of diesel. With such a task, each statement also waits for the end of the task,
    /// although a statement on a closed connection fails anyway.
    pub(crate) async fn connect_with_driver(&self) -> ConnectionResult<(Connection, JoinHandle<()>)> {
        let (client, driver) = match &self.tls {
            None => {
                let (client, driver) = self.postgres.connect(NoTls).await.map_err(failed)?;
                (client, spawn(driver))
            }
            Some(tls) => {
                let (client, driver) = self.postgres.connect(tls.clone()).await.map_err(failed)?;
                (client, spawn(driver))
            }
        };
        Ok((Connection::try_from(client).await?, driver))
    }

    /// Opens a connection that also receives notifications.
    pub(crate) async fn connect_for_notifications(&self) -> ConnectionResult<Connection> {
        let connection = match &self.tls {
            None => {
                let (client, driver) = self.postgres.connect(NoTls).await.map_err(failed)?;
                Connection::try_from_client_and_connection(client, driver).await?
            }
            Some(tls) => {
                let (client, driver) = self.postgres.connect(tls.clone()).await.map_err(failed)?;
                Connection::try_from_client_and_connection(client, driver).await?
            }
        };
        Ok(instrumented(connection))
    }

    /// Asks the server to cancel the statement of a connection. Best effort: the server's own timeouts are the
    /// backstop.
    pub(crate) async fn cancel(&self, token: CancelToken) {
        let result = match &self.tls {
            None => token.cancel_query(NoTls).await,
            Some(tls) => token.cancel_query(tls.clone()).await,
        };
        if let Err(error) = result {
            tracing::debug!(error = %error_chain(&error), "failed to cancel an abandoned statement");
        }
    }
}

fn failed(error: tokio_postgres::Error) -> ConnectionError {
    ConnectionError::BadConnection(error_chain(&error).to_string())
}

fn instrumented(mut connection: Connection) -> Connection {
    connection.set_instrumentation(StatementInstrumentation::default());
    connection
}

fn spawn<S>(driver: tokio_postgres::Connection<Socket, S>) -> JoinHandle<()>
where
    S: TlsStream + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        if let Err(error) = driver.await {
            tracing::debug!(error = %error_chain(&error), "a connection to Postgres ended");
        }
    })
}

fn client_config(extra_root: Option<std::path::PathBuf>) -> Result<rustls::ClientConfig, InvalidUrl> {
    let mut roots = rustls::RootCertStore::empty();
    match extra_root {
        Some(path) => {
            let unreadable = |error| InvalidUrl(format!("sslrootcert {}: {error}", path.display()));
            for certificate in CertificateDer::pem_file_iter(&path).map_err(unreadable)? {
                let certificate = certificate.map_err(unreadable)?;
                roots
                    .add(certificate)
                    .map_err(|error| InvalidUrl(format!("sslrootcert {}: {error}", path.display())))?;
            }
        }
        None => {
            let loaded = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(loaded.certs);
            for error in &loaded.errors {
                tracing::warn!(error = %error_chain(error), "failed to load certificates of the system");
            }
        }
    }
    if roots.is_empty() {
        let message = "no CA certificate to verify the server with; name a file with sslrootcert or SSL_CERT_FILE";
        return Err(InvalidUrl(message.to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| InvalidUrl(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
