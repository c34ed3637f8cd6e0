//! Where Postgres is and how it is spoken to.

use std::path::PathBuf;
use std::time::Duration;

use kernel::Secret;
use kernel::seal::Keys;
use tokio_postgres::config::SslMode;

/// How to reach Postgres.
#[derive(Debug, Clone)]
pub struct Config {
    /// `postgres://user:password@host:port/database?sslmode=…`, or a unix socket as `postgres:///database?host=/folder`.
    pub url: Secret,
    /// Shown in `pg_stat_activity`.
    pub application_name: String,
    /// The most connections the pool opens.
    pub connections: usize,
    /// Threads that serve requests and say so ([`crate::Store::settle`]): each has its share of the connections to itself.
    pub threads: usize,
    /// What values are sealed with and opened by. Without keys, whatever asks for either fails.
    pub keys: Keys,
}

/// A database address that cannot be used. Never holds the address, which may hold a password.
#[derive(Debug, thiserror::Error)]
#[error("the database address is not usable: {0}")]
pub struct InvalidUrl(pub String);

/// What a parsed address asks for.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) postgres: tokio_postgres::Config,
    pub(crate) tls: Tls,
}

/// Whether the connection is encrypted. Encrypted always means verified: chain and host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tls {
    Off,
    Verified { extra_root: Option<PathBuf> },
}

/// A statement never runs, and a lock is never waited for, longer than this: a request would be given up anyway.
const SESSION: &str = "-c statement_timeout=3000 -c lock_timeout=1000 -c idle_in_transaction_session_timeout=10000 \
     -c client_connection_check_interval=1000";

/// How long one address may take to connect; the pool waits for two of them.
const CONNECT: Duration = Duration::from_millis(900);

/// How long a server may leave what it was sent unacknowledged before it counts as gone.
const SILENCE: Duration = Duration::from_secs(3);

impl Config {
    /// A pool of the size that suits two cores, and no keys.
    #[must_use]
    pub fn new(url: Secret, application_name: &str) -> Self {
        Self { url, application_name: application_name.to_owned(), connections: 16, threads: 0, keys: Keys::default() }
    }

    /// Reads the address.
    ///
    /// # Errors
    /// When it is no Postgres address, or asks for a TLS mode that would not verify the server.
    pub(crate) fn target(&self) -> Result<Target, InvalidUrl> {
        let (url, tls) = split_tls(self.url.reveal())?;
        let mut postgres: tokio_postgres::Config =
            url.parse().map_err(|error: tokio_postgres::Error| InvalidUrl(error.to_string()))?;
        if postgres.get_options().is_some() {
            return Err(InvalidUrl("options are set by the service; leave them out".into()));
        }
        if tls == Tls::Off && postgres.get_ssl_mode() == SslMode::Require {
            return Err(InvalidUrl(
                "sslmode is not where it is understood: write the address as postgres://…?sslmode=…".into(),
            ));
        }
        postgres.application_name(&self.application_name).options(SESSION).connect_timeout(CONNECT);
        postgres.tcp_user_timeout(SILENCE).keepalives_idle(Duration::from_secs(10));
        let mode = if tls == Tls::Off { SslMode::Disable } else { SslMode::Require };
        postgres.ssl_mode(mode);
        Ok(Target { postgres, tls })
    }
}

/// Takes `sslmode` and `sslrootcert` out of the address: tokio-postgres knows neither `verify-full` nor roots.
fn split_tls(url: &str) -> Result<(String, Tls), InvalidUrl> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(InvalidUrl("write it as postgres://user:password@host/database".into()));
    }
    let Some((base, query)) = url.split_once('?') else {
        return Ok((url.to_owned(), Tls::Off));
    };
    let mut kept = Vec::new();
    let (mut mode, mut extra_root) = ("disable", None);
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = value,
            Some(("sslrootcert", value)) => extra_root = Some(PathBuf::from(value.replace("%2F", "/"))),
            _ => kept.push(pair),
        }
    }
    let tls = match mode {
        "disable" => Tls::Off,
        "require" | "verify-ca" | "verify-full" => Tls::Verified { extra_root },
        other => {
            let message = format!("sslmode={other} may fall back to plain text; use disable or verify-full");
            return Err(InvalidUrl(message));
        }
    };
    Ok((format!("{base}?{}", kept.join("&")), tls))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, InvalidUrl> {
        Config::new(Secret::new(url.to_owned()), "test").target()
    }

    #[test]
    fn tls_is_off_or_verified_and_nothing_between() {
        let tls = |url| target(url).map(|target| target.tls).ok();
        assert_eq!(tls("postgres://a@localhost/db"), Some(Tls::Off));
        assert_eq!(tls("postgres:///db?host=/run/pg&user=a"), Some(Tls::Off));
        assert_eq!(tls("postgres://a@h/db?sslmode=verify-full"), Some(Tls::Verified { extra_root: None }));
        assert_eq!(
            tls("postgres://a@h/db?sslmode=require&sslrootcert=/ca.pem"),
            Some(Tls::Verified { extra_root: Some("/ca.pem".into()) })
        );
        for refused in [
            "postgres://a@h/db?sslmode=prefer",
            "postgres://a:p?w@h/db?sslmode=require",
            "host=h user=a dbname=db sslmode=require",
            "postgres://a@h/db?options=-c%20statement_timeout%3D0",
        ] {
            assert_eq!(tls(refused), None, "{refused}");
        }
    }

    #[test]
    fn a_refused_address_is_not_repeated() {
        let error = target("mysql://user:hunter2@host/db").err().expect("refused").to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
