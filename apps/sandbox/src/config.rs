//! The settings of `svc-sandbox`.

use std::net::SocketAddr;

use settings::{Claim, Error, Setting, Settings};

settings::table! {
    /// The address of the web pages and the code host.
    pub LISTEN: SocketAddr = Setting::with_default("SVC_SANDBOX_LISTEN", "127.0.0.1:8090");
    /// The address of the SMTP server.
    pub SMTP_LISTEN: SocketAddr = Setting::with_default("SVC_SANDBOX_SMTP_LISTEN", "127.0.0.1:8025");
    /// The address of the name server, over UDP and TCP.
    pub DNS_LISTEN: SocketAddr = Setting::with_default("SVC_SANDBOX_DNS_LISTEN", "127.0.0.1:8053");
}

pub const CLAIM: Claim = Claim { prefixes: &["SVC_SANDBOX_"], except: &[] };

/// The addresses of the listeners.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub listen: SocketAddr,
    pub smtp_listen: SocketAddr,
    pub dns_listen: SocketAddr,
}

impl Config {
    /// Reads the settings.
    ///
    /// # Errors
    /// Returns an error if a value is not an address.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        Ok(Self {
            listen: settings.get(&LISTEN)?,
            smtp_listen: settings.get(&SMTP_LISTEN)?,
            dns_listen: settings.get(&DNS_LISTEN)?,
        })
    }
}
