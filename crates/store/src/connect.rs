//! Opens connections, with optional TLS, session settings from the first packet on, and instrumentation.

use std::sync::Arc;

use diesel::{ConnectionError, ConnectionResult};
use diesel_async::AsyncConnection as _;
use kernel::error_chain;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio_postgres::tls::TlsStream;
use tokio_postgres::{CancelToken, Client, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Connection;
use crate::config::{InvalidUrl, Target, Tls};
use crate::instrument::StatementInstrumentation;

/// The purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Statements,
    Notifications,
}

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

    /// Opens a connection for statements.
    pub(crate) async fn connect(&self) -> ConnectionResult<Connection> {
        self.open(Use::Statements).await
    }

    /// Opens a connection that also receives notifications.
    pub(crate) async fn connect_for_notifications(&self) -> ConnectionResult<Connection> {
        self.open(Use::Notifications).await
    }

    async fn open(&self, purpose: Use) -> ConnectionResult<Connection> {
        let failed = |error: tokio_postgres::Error| ConnectionError::BadConnection(error_chain(&error).to_string());
        let mut connection = match &self.tls {
            None => {
                let (client, driver) = self.postgres.connect(NoTls).await.map_err(failed)?;
                start(client, driver, purpose).await?
            }
            Some(tls) => {
                let (client, driver) = self.postgres.connect(tls.clone()).await.map_err(failed)?;
                start(client, driver, purpose).await?
            }
        };
        connection.set_instrumentation(StatementInstrumentation::default());
        Ok(connection)
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

/// Reads and writes the messages of a connection in a task, which ends with the connection.
///
/// Only notifications need a task of diesel. With such a task, each statement also waits for the end of the task,
/// although a statement on a closed connection fails anyway.
async fn start<S: TlsStream + Unpin + Send + 'static>(
    client: Client,
    driver: tokio_postgres::Connection<Socket, S>,
    purpose: Use,
) -> ConnectionResult<Connection> {
    if purpose == Use::Notifications {
        return Connection::try_from_client_and_connection(client, driver).await;
    }
    tokio::spawn(async move {
        if let Err(error) = driver.await {
            tracing::debug!(error = %error_chain(&error), "a connection to Postgres ended");
        }
    });
    Connection::try_from(client).await
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
