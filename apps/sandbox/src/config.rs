//! The settings of `svc-sandbox`.

use std::net::SocketAddr;
use std::path::PathBuf;

use settings::{Claim, Error, Secret, Setting, Settings};

use crate::app::AppClient;

settings::table! {
    /// The address of the web pages and the code host.
    pub LISTEN: SocketAddr = Setting::with_default("SVC_SANDBOX_LISTEN", "127.0.0.1:8090");
    /// The address of the SMTP server.
    pub SMTP_LISTEN: SocketAddr = Setting::with_default("SVC_SANDBOX_SMTP_LISTEN", "127.0.0.1:8025");
    /// The address of the notification service, over HTTPS.
    pub SNS_LISTEN: SocketAddr = Setting::with_default("SVC_SANDBOX_SNS_LISTEN", "127.0.0.1:8091");
    /// The address of the mail server that receives mail for projects, for the form that sends mail to them.
    pub MX: SocketAddr = Setting::with_default("SVC_SANDBOX_MX", "127.0.0.1:2525");
    /// The address of the name server, over UDP and TCP.
    pub DNS_LISTEN: SocketAddr = Setting::with_default("SVC_SANDBOX_DNS_LISTEN", "127.0.0.1:8053");
    /// The nameserver of the platform's zones. The name server forwards queries for names with NS records, and for names
    /// below them, to it.
    pub DNS_NAMESERVER: Option<SocketAddr> = Setting::optional("SVC_SANDBOX_DNS_NAMESERVER");
    /// The address of the S3 server.
    pub S3_LISTEN: SocketAddr = Setting::with_default("SVC_SANDBOX_S3_LISTEN", "127.0.0.1:8092");
    /// The base URL at which browsers reach the web pages (default: that of their listener).
    pub URL: Option<String> = Setting::optional("SVC_SANDBOX_URL");
    /// The base URL of the service's API, for the connected app and the pages that replace those of a dashboard.
    pub API_URL: String = Setting::with_default("SVC_SANDBOX_API_URL", "http://127.0.0.1:8080");
    /// The client ID of the connected app.
    pub APP_CLIENT_ID: Option<String> = Setting::optional("SVC_SANDBOX_APP_CLIENT_ID");
    /// The client secret of the connected app, if it is confidential.
    pub APP_CLIENT_SECRET: Option<Secret> = Setting::optional("SVC_SANDBOX_APP_CLIENT_SECRET");
    /// The folder of the S3 server, with a folder for each bucket (default: a temporary folder).
    pub S3_DIR: Option<PathBuf> = Setting::optional("SVC_SANDBOX_S3_DIR");
}

/// The sandbox rejects unknown settings with this prefix.
pub const CLAIM: Claim = Claim { prefixes: &["SVC_SANDBOX_"], except: &[] };

/// The addresses of the listeners, and the folder of the S3 server.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    /// The base URL of the web pages. `None` for the URL of the listener.
    pub url: Option<String>,
    pub smtp_listen: SocketAddr,
    pub sns_listen: SocketAddr,
    pub mx: SocketAddr,
    pub dns_listen: SocketAddr,
    /// The nameserver of delegated names.
    pub dns_nameserver: Option<SocketAddr>,
    pub s3_listen: SocketAddr,
    /// The folder of the S3 server. `None` for a temporary folder.
    pub s3_dir: Option<PathBuf>,
    pub api_url: String,
    /// The registration of the connected app.
    pub app: Option<AppClient>,
}

impl Config {
    /// Reads the settings.
    ///
    /// # Errors
    /// Returns an error if a value does not parse.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let client_secret = settings.opt(&APP_CLIENT_SECRET)?.map(|secret| secret.reveal().to_owned());
        let app = settings.opt(&APP_CLIENT_ID)?.map(|client_id| AppClient { client_id, client_secret });
        Ok(Self {
            api_url: settings.get(&API_URL)?,
            app,
            listen: settings.get(&LISTEN)?,
            url: settings.opt(&URL)?,
            smtp_listen: settings.get(&SMTP_LISTEN)?,
            sns_listen: settings.get(&SNS_LISTEN)?,
            mx: settings.get(&MX)?,
            dns_listen: settings.get(&DNS_LISTEN)?,
            dns_nameserver: settings.opt(&DNS_NAMESERVER)?,
            s3_listen: settings.get(&S3_LISTEN)?,
            s3_dir: settings.opt(&S3_DIR)?,
        })
    }
}
