//! The settings of the mail node.

use std::net::SocketAddr;
use std::path::PathBuf;

use reqwest::Url;
use reqwest::header::HeaderValue;
use settings::{Claim, Error, Secret, Setting, Settings};
use tracing_subscriber::EnvFilter;

use crate::host::HostName;
use crate::limits::Limits;

settings::table! {
    /// The address on which the node accepts SMTP. In production, port 25 of a public address.
    pub LISTEN: SocketAddr = Setting::with_default("SVC_MX_LISTEN", "127.0.0.1:2525");
    /// The host name of the node. The MX record of the mail domain points to it, and the node uses it in SMTP replies,
    /// in `Received` and in `Authentication-Results`.
    pub HOSTNAME: String = Setting::required("SVC_MX_HOSTNAME");
    /// Base address of the control plane's internal listener.
    pub CORE_URL: Url = Setting::with_default("SVC_MX_CORE_URL", "http://127.0.0.1:8081");
    /// The node's credential for that listener, `svc_nod_…`, from `xtask node add --mail`.
    pub TOKEN: Secret = Setting::required("SVC_MX_TOKEN");
    /// The path of the certificate chain for STARTTLS, in PEM. Without it, the node offers no STARTTLS. The node reads
    /// a renewed certificate within a minute.
    pub TLS_CERT: Option<PathBuf> = Setting::optional("SVC_MX_TLS_CERT");
    /// The path of the certificate's private key, in PEM.
    pub TLS_KEY: Option<PathBuf> = Setting::optional("SVC_MX_TLS_KEY");
    /// `ip:port` of the name server for SPF (default: the system's name server).
    pub RESOLVER: Option<SocketAddr> = Setting::optional("SVC_MX_RESOLVER");
    /// The directory of the queue, which contains accepted mail until the control plane has received it. The directory
    /// must survive restarts, and only one process may use it.
    pub DIR: PathBuf = Setting::with_default("SVC_MX_DIR", "/var/lib/svc-mail");
    /// The address that serves `/metrics` for Prometheus and `/healthz` for health probes. Never expose it to the
    /// internet.
    pub INTERNAL_LISTEN: SocketAddr = Setting::with_default("SVC_MX_INTERNAL_LISTEN", "127.0.0.1:8095");
    /// The maximum number of concurrent connections.
    pub MAX_CONNECTIONS: usize = Setting::with_default("SVC_MX_MAX_CONNECTIONS", "1000");
    /// The maximum number of concurrent connections per client. A client is an IPv4 address or a /64 network of IPv6
    /// addresses.
    pub MAX_CONNECTIONS_PER_ADDRESS: usize = Setting::with_default("SVC_MX_MAX_CONNECTIONS_PER_ADDRESS", "20");
    /// The number of mails per minute that the node accepts from one client, on average.
    pub MAX_MAILS_PER_MINUTE: u32 = Setting::with_default("SVC_MX_MAX_MAILS_PER_MINUTE_PER_ADDRESS", "600");
    /// The log filter, in the syntax of `RUST_LOG`.
    pub LOG: EnvFilter = Setting::with_default("SVC_MX_LOG", "info,actix_server=warn,actix_http=off");
}

/// The node rejects unknown settings with this prefix.
pub const CLAIM: Claim = Claim { prefixes: &["SVC_MX_"], except: &[] };

/// The validated configuration of a mail node.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address on which the node accepts SMTP.
    pub listen: SocketAddr,
    /// The host name of the node.
    pub hostname: HostName,
    /// Base address of the control plane's internal listener, without a trailing slash.
    pub core_url: String,
    /// The `Authorization` header for the control plane; marked as sensitive, so `Debug` does not show it.
    pub authorization: HeaderValue,
    /// The files with the certificate and the key for STARTTLS.
    pub tls: Option<TlsFiles>,
    /// The name server for SPF; `None` for the system's name server.
    pub resolver: Option<SocketAddr>,
    /// The directory of the queue.
    pub dir: PathBuf,
    /// The address that serves the metrics.
    pub internal_listen: SocketAddr,
    /// The limits that apply to clients.
    pub limits: Limits,
}

/// The paths of a certificate and its private key.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub chain: PathBuf,
    pub key: PathBuf,
}

impl Config {
    /// Reads the configuration from the settings.
    ///
    /// # Errors
    /// Returns an error that names the missing or malformed setting.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let hostname = HostName::parse(&settings.get(&HOSTNAME)?);
        let tls = match (settings.opt(&TLS_CERT)?, settings.opt(&TLS_KEY)?) {
            (None, None) => None,
            (Some(chain), Some(key)) => Some(TlsFiles { chain, key }),
            (Some(_), None) => return Err(TLS_KEY.malformed("required with SVC_MX_TLS_CERT")),
            (None, Some(_)) => return Err(TLS_CERT.malformed("required with SVC_MX_TLS_KEY")),
        };
        let limits = Limits {
            connections: settings.get(&MAX_CONNECTIONS)?,
            connections_per_client: settings.get(&MAX_CONNECTIONS_PER_ADDRESS)?,
            mails_per_minute: settings.get(&MAX_MAILS_PER_MINUTE)?.max(1),
            ..Limits::default()
        };
        Ok(Self {
            listen: settings.get(&LISTEN)?,
            hostname: hostname.ok_or_else(|| HOSTNAME.malformed("it must be a host name"))?,
            core_url: daemon::base_address(&CORE_URL, &settings.get(&CORE_URL)?)?,
            authorization: daemon::bearer(&TOKEN, &settings.get(&TOKEN)?)?,
            tls,
            resolver: settings.opt(&RESOLVER)?,
            dir: settings.get(&DIR)?,
            internal_listen: settings.get(&INTERNAL_LISTEN)?,
            limits,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Result<Config, Error> {
        let required = [("SVC_MX_TOKEN", "svc_nod_hush"), ("SVC_MX_HOSTNAME", "MX.example.")];
        let given = given.iter().chain(required.iter().filter(|(name, _)| given.iter().all(|(it, _)| it != name)));
        let given = given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let settings = Settings::read(TABLE, &CLAIM, given)?;
        settings.get(&LOG)?;
        Config::new(&settings)
    }

    #[test]
    fn defaults_are_valid_and_debug_hides_the_credential() {
        let config = read(&[("SVC_LISTEN", "of another process")]).unwrap();
        assert_eq!((config.listen.port(), config.hostname.as_str()), (2525, "mx.example"));
        assert_eq!(config.dir, PathBuf::from("/var/lib/svc-mail"));
        assert!(config.tls.is_none() && !format!("{config:?}").contains("hush"));
    }

    #[test]
    fn malformed_setting_is_named_without_its_value() {
        for (name, value) in [
            ("SVC_MX_TOKEN", "hush\n"),
            ("SVC_MX_CORE_URL", "http://user:hush@core"),
            ("SVC_MX_HOSTNAME", "hush hush"),
            ("SVC_MX_LISTEN", "hush"),
            ("SVC_MX_INTERNAL_LISTEN", "hush"),
            ("SVC_MX_RESOLVER", "hush"),
            ("SVC_MX_MAX_CONNECTIONS", "hush"),
            ("SVC_MX_MAX_CONNECTIONS_PER_ADDRESS", "-1"),
            ("SVC_MX_MAX_MAILS_PER_MINUTE_PER_ADDRESS", "hush"),
            ("SVC_MX_LOG", "info,=hush="),
        ] {
            let line = read(&[(name, value)]).unwrap_err().to_string();
            assert!(line.starts_with(&format!("{name} is malformed: ")) && !line.contains("hush"), "{line}");
        }
        let line = read(&[("SVC_MX_TLS_CERT", "/cert.pem")]).unwrap_err().to_string();
        assert_eq!(line, "SVC_MX_TLS_KEY is malformed: required with SVC_MX_TLS_CERT");
        assert_eq!(
            read(&[("SVC_MX_COLOUR", "red")]).unwrap_err().to_string(),
            "SVC_MX_COLOUR is unknown: this process has no such setting"
        );
    }
}
