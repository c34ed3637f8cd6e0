//! The address of the Postgres cluster, and logins in it.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use percent_encoding::percent_decode_str;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use settings::Secret;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::system_roots::system_roots;

/// The longest wait for a connection, up to the end of the session's startup. A tenant can make the startup of a session
/// in its database wait for a lock, which no setting of Postgres limits.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time that sent data may stay unacknowledged before the connection counts as lost.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const DEFAULT_PORT: u16 = 5432;

/// The cluster and the login of its superuser, from `SVC_NODE_DATABASE_URL`. `Debug` hides the password.
#[derive(Debug, Clone)]
pub struct Server {
    pub address: Arc<Address>,
    user: String,
    password: Option<Secret>,
    /// The database that the node connects to when it creates its own one.
    initial_database: String,
}

/// The address of a cluster.
#[derive(Debug, Clone)]
pub struct Address {
    /// A host name, an IP address, or the folder of a unix socket.
    pub host: String,
    pub port: u16,
    pub tls: Tls,
}

/// Whether connections are encrypted. An encrypted connection always verifies the chain and the host name.
#[derive(Debug, Clone)]
pub enum Tls {
    Off,
    Verified {
        config: Arc<ClientConfig>,
        /// The file with the root certificates; `None` for those of the system.
        root: Option<PathBuf>,
    },
}

/// A login of the node in one database. `Debug` hides the password.
#[derive(Debug, Clone)]
pub struct Credentials {
    pub address: Arc<Address>,
    pub database: String,
    /// The role that logs in.
    pub user: String,
    pub password: Secret,
    /// The role that the session acts as: the owner of the database.
    pub role: String,
}

/// Why a session could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("Postgres did not complete the startup of the session within {} s", CONNECT_TIMEOUT.as_secs())]
    TimedOut,
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
}

impl ConnectError {
    /// Returns the code of an error that Postgres sent.
    pub fn code(&self) -> Option<&SqlState> {
        if let Self::Postgres(error) = self { error.code() } else { None }
    }
}

impl Server {
    /// Parses `postgres://user:password@host:port/database?sslmode=…&sslrootcert=…`, or a unix socket as
    /// `postgres:///database?host=/folder&user=…`.
    ///
    /// # Errors
    /// Returns an error for anything else, and for a TLS mode that would not verify the server. The message does not
    /// contain the URL.
    pub fn parse(url: &str) -> anyhow::Result<Self> {
        let (url, tls) = split_tls(url)?;
        let config: Config = url.parse().map_err(|_| anyhow::anyhow!("it is not a Postgres URL"))?;
        ensure!(config.get_options().is_none(), "the node sets the options; remove them");
        ensure!(config.get_ssl_mode() != SslMode::Require, "sslmode must be a query parameter");
        let [host] = config.get_hosts() else { bail!("it must name one host") };
        let host = match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(folder) => folder.to_str().context("the folder of the socket must be UTF-8")?.to_owned(),
        };
        let port = config.get_ports().first().copied().unwrap_or(DEFAULT_PORT);
        let password = config.get_password().map(|password| String::from_utf8(password.to_vec())).transpose();
        Ok(Self {
            address: Arc::new(Address { host, port, tls }),
            user: config.get_user().context("it must name a user")?.to_owned(),
            password: password.map_err(|_| anyhow::anyhow!("the password must be UTF-8"))?.map(Secret::new),
            initial_database: config.get_dbname().unwrap_or("postgres").to_owned(),
        })
    }

    /// Connects as the superuser; `None` is the database of the URL. The session resolves unqualified names only in
    /// `pg_catalog`. The control plane relies on the session's commits, so they are synchronous regardless of the
    /// cluster's settings.
    pub(super) async fn connect(&self, database: Option<&str>) -> Result<Client, ConnectError> {
        // With these options, the session of a lost machine ends within half a minute, which releases the lock of the
        // node.
        const OPTIONS: &str = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 \
             -c idle_session_timeout=0 -c search_path=pg_catalog -c synchronous_commit=on -c statement_timeout=120s \
             -c lock_timeout=20s -c idle_in_transaction_session_timeout=60s \
             -c client_min_messages=warning";
        let database = database.unwrap_or(&self.initial_database);
        let password = self.password.as_ref();
        self.address.connect(database, &self.user, password, OPTIONS).await
    }
}

impl Credentials {
    /// Connects as this login. The session resolves unqualified names only in `pg_catalog`.
    ///
    /// # Errors
    /// Returns an error if Postgres is unreachable or refuses the login.
    pub async fn connect(&self) -> anyhow::Result<Client> {
        Ok(self.connect_with("-c search_path=pg_catalog").await?)
    }

    /// Connects as this login, to read catalogs for a task that other projects wait for. A tenant can hold locks on the
    /// objects that the catalogs describe, so the waits are short.
    pub(super) async fn connect_to_read(&self) -> Result<Client, ConnectError> {
        self.connect_with("-c search_path=pg_catalog -c lock_timeout=5s -c statement_timeout=60s").await
    }

    /// Connects as this login, with these settings of the session. They have priority over those of roles and databases.
    pub(crate) async fn connect_with(&self, options: &str) -> Result<Client, ConnectError> {
        self.address.connect(&self.database, &self.user, Some(&self.password), options).await
    }
}

impl Address {
    async fn connect(
        &self,
        database: &str,
        user: &str,
        password: Option<&Secret>,
        options: &str,
    ) -> Result<Client, ConnectError> {
        let mut config = Config::new();
        config.host(&self.host).port(self.port).dbname(database).user(user).options(options);
        config.application_name("svc-node");
        config.tcp_user_timeout(TCP_USER_TIMEOUT).keepalives_idle(KEEPALIVE_IDLE);
        if let Some(password) = password {
            config.password(password.reveal());
        }
        match &self.tls {
            Tls::Off => {
                let (client, connection) = in_time(config.ssl_mode(SslMode::Disable).connect(NoTls)).await?;
                // The statement in flight receives the same error.
                tokio::spawn(async move { drop(connection.await) });
                Ok(client)
            }
            Tls::Verified { config: tls, .. } => {
                let tls = MakeRustlsConnect::new((**tls).clone());
                let (client, connection) = in_time(config.ssl_mode(SslMode::Require).connect(tls)).await?;
                tokio::spawn(async move { drop(connection.await) });
                Ok(client)
            }
        }
    }
}

async fn in_time<T>(connect: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, ConnectError> {
    Ok(timeout(CONNECT_TIMEOUT, connect).await.map_err(|_| ConnectError::TimedOut)??)
}

/// Removes `sslmode` and `sslrootcert` from the URL: tokio-postgres supports neither `verify-full` nor custom roots.
fn split_tls(url: &str) -> anyhow::Result<(String, Tls)> {
    let is_url = url.starts_with("postgres://") || url.starts_with("postgresql://");
    ensure!(is_url, "write it as postgres://user:password@host/database");
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut kept, mut mode, mut root) = (Vec::new(), Cow::Borrowed("disable"), None);
    // tokio-postgres decodes the other parameters.
    let decode = |value| percent_decode_str(value).decode_utf8().context("its parameters must be UTF-8");
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = decode(value)?,
            Some(("sslrootcert", value)) => root = Some(PathBuf::from(&*decode(value)?)),
            _ => kept.push(pair),
        }
    }
    let tls = match &*mode {
        "disable" => Tls::Off,
        "require" | "verify-ca" | "verify-full" => {
            Tls::Verified { config: Arc::new(client_config(root.as_ref())?), root }
        }
        _ => bail!("its sslmode may fall back to plain text; use disable or verify-full"),
    };
    Ok((format!("{base}?{}", kept.join("&")), tls))
}

fn client_config(root: Option<&PathBuf>) -> anyhow::Result<ClientConfig> {
    let roots = match root {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
            for certificate in read().context("the file of sslrootcert cannot be read")? {
                roots.add(certificate).context("the file of sslrootcert contains an invalid certificate")?;
            }
            roots
        }
        None => system_roots(),
    };
    ensure!(!roots.is_empty(), "there is no CA certificate to verify the server with; name a file with sslrootcert");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sandbox::Certificate;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn server_that_does_not_complete_the_startup_ends_the_attempt() {
        // The kernel accepts the connection, and no process reads from it.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://root@{}/postgres", listener.local_addr().unwrap());
        let connecting = Server::parse(&url).unwrap();
        let connected = timeout(CONNECT_TIMEOUT * 10, connecting.connect(None)).await.expect("an end");
        assert!(matches!(connected, Err(ConnectError::TimedOut)));
    }

    #[test]
    fn parameters_of_tls_are_percent_decoded() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("database+& %25.pem");
        fs::write(&file, Certificate::generate_for(&["db"]).authority()).unwrap();
        let folder = folder.path().to_str().unwrap();
        let path = folder.replace('/', "%2f") + "%2Fdatabase+%26%20%2525.pem";
        let url = format!("postgres://root@db/postgres?sslmode=verify%2Dfull&sslrootcert={path}");
        let server = Server::parse(&url).unwrap();
        assert!(matches!(&server.address.tls, Tls::Verified { root: Some(root), .. } if *root == file));
    }

    #[test]
    fn urls_with_unverified_tls_are_rejected_and_errors_hide_them() {
        let server = Server::parse("postgres://root:hush@db:6000/postgres").unwrap();
        assert_eq!((server.address.host.as_str(), server.address.port), ("db", 6000));
        assert!(matches!(server.address.tls, Tls::Off) && !format!("{server:?}").contains("hush"));
        let socket = Server::parse("postgres:///postgres?host=/run/pg&user=root").unwrap();
        assert_eq!((socket.address.host.as_str(), socket.address.port), ("/run/pg", DEFAULT_PORT));
        for url in [
            "mysql://root:hush@db/postgres",
            "postgres://root:hush@db/postgres?sslmode=prefer",
            "postgres://root:hush@db/postgres?sslmode=verify-full&sslrootcert=/missing/hush",
            "postgres://root:hush@db/postgres?sslmode=verify-full&sslrootcert=%FF",
            "postgres://root:hush@db/postgres?options=-cx%3Dhush",
            "postgres://root:hush@one,two/postgres",
            "postgres://root:hush@db:hush/postgres",
            "host=db user=root password=hush",
            "postgres://",
        ] {
            let error = format!("{:#}", Server::parse(url).unwrap_err());
            assert!(!error.contains("hush"), "{error}");
        }
    }
}
