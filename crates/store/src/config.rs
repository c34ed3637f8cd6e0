//! The address of Postgres and the session settings.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use kernel::seal::Keys;
use kernel::{ClockRng, Secret};
use percent_encoding::percent_decode_str;
use tokio_postgres::config::SslMode;

/// The configuration of a [`Store`](crate::Store).
#[derive(Debug, Clone)]
pub struct Config {
    /// `postgres://user:password@host:port/database?sslmode=…`, or a Unix socket as
    /// `postgres:///database?host=/folder`.
    pub url: Secret,
    /// Shown in `pg_stat_activity`.
    pub application_name: String,
    /// The maximum size of the pool.
    pub connections: usize,
    /// The number of server threads that get their own share of the connections
    /// ([`crate::Store::bind_pool_to_thread`]).
    pub threads: usize,
    /// The keys that seal and open values. Without keys, both operations fail.
    pub keys: Keys,
    /// The timeouts, which only tests change.
    pub timeouts: Timeouts,
    /// The clock that is compared with that of Postgres, which only tests replace.
    pub system_clock: ClockRng,
}

/// The timeouts of a [`Store`](crate::Store). An operation that reaches one fails as unavailable.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// The longest wait of a request for a connection or a lookup.
    pub acquire: Duration,
    /// The longest wait of a background job or a request of a node, if threads have their own connections. After a
    /// start, all jobs run.
    pub shared_acquire: Duration,
    /// The timeout of opening a connection.
    pub create: Duration,
    /// The longest wait for a lock, and for the changes before in a group commit.
    pub lock: Duration,
    /// The timeout of a statement, which includes its waits for locks.
    pub statement: Duration,
    /// The longest time between two statements of a transaction.
    pub idle_in_transaction: Duration,
}

/// An invalid database address. The message does not contain the address, which may contain a password.
#[derive(Debug, thiserror::Error)]
#[error("the database address is invalid: {0}")]
pub struct InvalidUrl(pub String);

/// A parsed address.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) postgres: tokio_postgres::Config,
    pub(crate) tls: Tls,
}

/// Whether the connection is encrypted. An encrypted connection always verifies the chain and the host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tls {
    Off,
    Verified { extra_root: Option<PathBuf> },
}

/// More session settings for requests, whose statements use a few rows by key. A cached plan from when a table was empty
/// would read the whole table while it grows, until Postgres analyzes it. The cost of a sequential scan that cannot be
/// avoided must cause neither compilation nor a parallel plan.
pub(crate) const REQUEST_OPTIONS: &str = "-c enable_seqscan=off -c jit=off -c max_parallel_workers_per_gather=0";

/// More session settings for lookups. Postgres plans each of them once. By default, it plans a page of a long list for
/// each request, because only such a plan contains the limit, and that takes longer than to read the page.
pub(crate) const LOOKUP_OPTIONS: &str = "-c plan_cache_mode=force_generic_plan";

/// The timeout of a connection to one address. The pool waits long enough for two addresses of the same host.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(900);

/// The longest time that sent data may stay unacknowledged before the connection counts as lost.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(3);

impl Timeouts {
    /// Returns timeouts of the same length.
    #[must_use]
    pub const fn all(timeout: Duration) -> Self {
        Self {
            acquire: timeout,
            shared_acquire: timeout,
            create: timeout,
            lock: timeout,
            statement: timeout,
            idle_in_transaction: timeout,
        }
    }

    /// Returns the session settings. Their timeouts end statements, lock waits and idle transactions of requests that
    /// would fail anyway.
    fn session_options(&self) -> String {
        format!(
            "-c statement_timeout={} -c lock_timeout={} -c idle_in_transaction_session_timeout={} \
             -c client_connection_check_interval=1000",
            self.statement.as_millis(),
            self.lock.as_millis(),
            self.idle_in_transaction.as_millis()
        )
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            acquire: Duration::from_millis(500),
            shared_acquire: Duration::from_secs(2),
            create: Duration::from_secs(2),
            lock: Duration::from_secs(1),
            statement: Duration::from_secs(3),
            idle_in_transaction: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// Returns a configuration with one pool of 16 connections, without keys.
    #[must_use]
    pub fn new(url: Secret, application_name: &str) -> Self {
        Self {
            url,
            application_name: application_name.to_owned(),
            connections: 16,
            threads: 0,
            keys: Keys::default(),
            timeouts: Timeouts::default(),
            system_clock: ClockRng::system(),
        }
    }

    /// Parses the address.
    ///
    /// # Errors
    /// Returns [`InvalidUrl`] for anything but a Postgres address, and for a TLS mode that would not verify the server.
    pub(crate) fn parse_url(&self) -> Result<Target, InvalidUrl> {
        let (url, tls) = split_tls(self.url.reveal())?;
        let mut postgres: tokio_postgres::Config =
            url.parse().map_err(|error: tokio_postgres::Error| InvalidUrl(error.to_string()))?;
        if postgres.get_options().is_some() {
            return Err(InvalidUrl("the service sets the options; remove them from the address".into()));
        }
        if tls == Tls::Off && postgres.get_ssl_mode() == SslMode::Require {
            return Err(InvalidUrl(
                "sslmode must be a query parameter: write the address as postgres://…?sslmode=…".into(),
            ));
        }
        postgres.application_name(&self.application_name).options(self.timeouts.session_options());
        postgres.connect_timeout(CONNECT_TIMEOUT);
        postgres.tcp_user_timeout(TCP_USER_TIMEOUT).keepalives_idle(Duration::from_secs(10));
        let mode = if tls == Tls::Off { SslMode::Disable } else { SslMode::Require };
        postgres.ssl_mode(mode);
        Ok(Target { postgres, tls })
    }
}

/// Removes `sslmode` and `sslrootcert` from the address: tokio-postgres supports neither `verify-full` nor custom
/// roots.
fn split_tls(url: &str) -> Result<(String, Tls), InvalidUrl> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(InvalidUrl("write it as postgres://user:password@host/database".into()));
    }
    let Some((base, query)) = url.split_once('?') else {
        return Ok((url.to_owned(), Tls::Off));
    };
    let mut kept = Vec::new();
    let (mut mode, mut extra_root) = (Cow::Borrowed("disable"), None);
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = decode(value)?,
            Some(("sslrootcert", value)) => extra_root = Some(PathBuf::from(&*decode(value)?)),
            _ => kept.push(pair),
        }
    }
    let tls = match &*mode {
        "disable" => Tls::Off,
        "require" | "verify-ca" | "verify-full" => Tls::Verified { extra_root },
        other => {
            let message = format!("sslmode={other} may fall back to plain text; use disable or verify-full");
            return Err(InvalidUrl(message));
        }
    };
    Ok((format!("{base}?{}", kept.join("&")), tls))
}

/// Decodes the value of a parameter, as tokio-postgres does with the others.
fn decode(value: &str) -> Result<Cow<'_, str>, InvalidUrl> {
    percent_decode_str(value).decode_utf8().map_err(|_| InvalidUrl("a parameter of the address is not UTF-8".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, InvalidUrl> {
        Config::new(Secret::new(url.to_owned()), "test").parse_url()
    }

    #[test]
    fn tls_modes_without_verification_are_rejected() {
        let tls = |url| target(url).map(|target| target.tls).ok();
        assert_eq!(tls("postgres://a@localhost/db"), Some(Tls::Off));
        assert_eq!(tls("postgres:///db?host=/run/pg&user=a"), Some(Tls::Off));
        assert_eq!(tls("postgres://a@h/db?sslmode=verify-full"), Some(Tls::Verified { extra_root: None }));
        assert_eq!(
            tls("postgres://a@h/db?sslmode=require&sslrootcert=/ca.pem"),
            Some(Tls::Verified { extra_root: Some("/ca.pem".into()) })
        );
        assert_eq!(
            tls("postgres://a@h/db?sslmode=verify%2dfull&sslrootcert=%2Fetc%2fdatabase+%26%20%C3%BC%2525.pem"),
            Some(Tls::Verified { extra_root: Some("/etc/database+& ü%25.pem".into()) })
        );
        for rejected in [
            "postgres://a@h/db?sslmode=prefer",
            "postgres://a:p?w@h/db?sslmode=require",
            "host=h user=a dbname=db sslmode=require",
            "postgres://a@h/db?options=-c%20statement_timeout%3D0",
            "postgres://a@h/db?sslmode=verify-full&sslrootcert=%FF",
        ] {
            assert_eq!(tls(rejected), None, "{rejected}");
        }
    }

    #[test]
    fn invalid_url_error_does_not_contain_the_address() {
        let error = target("mysql://user:hunter2@host/db").err().expect("rejected").to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
