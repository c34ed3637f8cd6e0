//! The settings of the control plane (contract section 12).

use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::str::FromStr;

use gateway::api::SignIns;
use gateway::{RateLimits, Site};
use ipnet::IpNet;
use kernel::{AllowList, Limits, seal};
use providers::{CodeHostConfig, Mailbox, SmtpConfig};
use serde::Deserialize;
use settings::{Claim, Error, Flag, Secret, Setting, Settings};
use tracing_subscriber::EnvFilter;

settings::table! {
    /// Postgres: `postgres://user:password@host/database?sslmode=verify-full`, or a unix socket as `postgres:///database?host=/folder&user=name`. `sslmode` is `disable` (the default) or `verify-full`; `sslrootcert` names a PEM file of roots.
    pub DATABASE_URL: Secret = Setting::required("SVC_DATABASE_URL");
    /// The most connections to Postgres.
    pub DATABASE_CONNECTIONS: NonZeroU16 = Setting::with_default("SVC_DATABASE_CONNECTIONS", "16");
    /// The public listener.
    pub LISTEN: SocketAddr = Setting::with_default("SVC_LISTEN", "127.0.0.1:8080");
    /// The internal listener: nodes and measurements. Never to be reached from outside.
    pub INTERNAL_LISTEN: SocketAddr = Setting::with_default("SVC_INTERNAL_LISTEN", "127.0.0.1:8081");
    /// Base address of this API, as clients see it.
    pub PUBLIC_URL: Url = Setting::required("SVC_PUBLIC_URL");
    /// Base address of the dashboard: the one origin that browsers may call from.
    pub DASHBOARD_URL: Url = Setting::required("SVC_DASHBOARD_URL");
    /// Registers the development login. Refused behind an https `SVC_PUBLIC_URL`.
    pub ENABLE_DEV_AUTH: Flag = Setting::with_default("SVC_ENABLE_DEV_AUTH", "off");
    /// Keys for sealed values: `id:base64,…` of 32 bytes each; the first seals, all open.
    pub SEALING_KEYS: Secret = Setting::required("SVC_SEALING_KEYS");
    /// Default hostnames lie under this domain.
    pub PLATFORM_DOMAIN: String = Setting::required("SVC_PLATFORM_DOMAIN");
    /// What the CNAME of a custom hostname points at.
    pub FALLBACK_ORIGIN: String = Setting::required("SVC_FALLBACK_ORIGIN");
    /// The platform's nameservers, separated by commas.
    pub NAMESERVERS: Option<String> = Setting::optional("SVC_NAMESERVERS");
    /// Domain of the projects' mail addresses.
    pub MAIL_DOMAIN: Option<String> = Setting::optional("SVC_MAIL_DOMAIN");
    /// Our client id at the code host. Without it nobody signs in there.
    pub CODEHOST_CLIENT_ID: Option<String> = Setting::optional("SVC_CODEHOST_CLIENT_ID");
    /// Our client secret at the code host.
    pub CODEHOST_CLIENT_SECRET: Option<Secret> = Setting::optional("SVC_CODEHOST_CLIENT_SECRET");
    /// Where the code host asks people whether they want to sign in here.
    pub CODEHOST_AUTHORIZE_URL: url::Url = Setting::with_default("SVC_CODEHOST_AUTHORIZE_URL", "https://github.com/login/oauth/authorize");
    /// Where it exchanges the code.
    pub CODEHOST_TOKEN_URL: url::Url = Setting::with_default("SVC_CODEHOST_TOKEN_URL", "https://github.com/login/oauth/access_token");
    /// Where it tells who signed in.
    pub CODEHOST_USER_URL: url::Url = Setting::with_default("SVC_CODEHOST_USER_URL", "https://api.github.com/user");
    /// Addresses, separated by commas, under which a browser may be sent on once it is signed in (default: `SVC_PUBLIC_URL`).
    pub CODEHOST_REDIRECTS: Option<AllowList> = Setting::optional("SVC_CODEHOST_REDIRECTS");
    /// The server that takes our mail: `smtp://user:password@host:port` (STARTTLS; required with credentials, unless the host is this one or `?tls=` says `opportunistic` or `none`) or `smtps://…`. Without it no mail is sent.
    pub SMTP_URL: Option<Secret> = Setting::optional("SVC_SMTP_URL");
    /// The sender of our mail: `Name <address>` or an address.
    pub MAIL_FROM: Option<Mailbox> = Setting::optional("SVC_MAIL_FROM");
    /// Where bundles are kept: `file:///folder`.
    pub BUNDLE_STORE: BundleStore = Setting::required("SVC_BUNDLE_STORE");
    /// What this deployment is called.
    pub SITE_NAME: String = Setting::with_default("SVC_SITE_NAME", "svc");
    /// Networks of proxies whose `X-Forwarded-For` is believed: CIDRs, separated by commas.
    pub TRUSTED_PROXIES: Option<Networks> = Setting::optional("SVC_TRUSTED_PROXIES");
    /// A TOML file with limits of plans (`[plans.free]`, `[plans.pro]`) and rates (`[rates]`) in place of the defaults.
    pub LIMITS: Option<PathBuf> = Setting::optional("SVC_LIMITS");
    /// Requests worked on at once; past that they are told to come back.
    pub IN_FLIGHT: NonZeroU16 = Setting::with_default("SVC_IN_FLIGHT", "512");
    /// Base address of an OTLP collector (http/protobuf) for traces: plain http, so a collector beside the process.
    pub OTLP_URL: Option<Url> = Setting::optional("SVC_OTLP_URL");
    /// Which log lines are written, in the syntax of `RUST_LOG`.
    pub LOG: EnvFilter = Setting::with_default("SVC_LOG", "info,actix_server=warn");
}

/// The control plane answers for every name of the product but the node's.
pub const CLAIM: Claim = Claim { prefixes: &["SVC_"], except: &["SVC_NODE_", "SVC_EDGE_"] };

/// What the control plane needs to know, checked.
#[derive(Debug, Clone)]
pub struct Config {
    pub database: store::Config,
    pub listen: SocketAddr,
    pub internal_listen: SocketAddr,
    pub bundle_store: BundleStore,
    pub limits: Limits,
    pub code_host: Option<CodeHostLogin>,
    pub mail: Option<MailConfig>,
    pub gateway: gateway::Config,
    pub otlp_url: Option<String>,
}

/// Signing in at a code host.
#[derive(Debug, Clone)]
pub struct CodeHostLogin {
    pub host: CodeHostConfig,
    pub redirects: AllowList,
}

/// Sending mail.
#[derive(Debug, Clone)]
pub struct MailConfig {
    pub server: SmtpConfig,
    pub from: Mailbox,
}

/// An http or https address, without a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url(String);

/// Where bundles are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleStore {
    /// A folder of this machine.
    Folder(PathBuf),
}

/// Networks, separated by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

/// The file that `SVC_LIMITS` names.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LimitsFile {
    plans: Limits,
    rates: RateLimits,
}

impl Config {
    /// Takes the configuration out of the settings.
    ///
    /// # Errors
    /// A value that does not parse, cannot be used, or would make the deployment insecure.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let public_url = settings.get(&PUBLIC_URL)?.0;
        let Flag(dev_auth) = settings.get(&ENABLE_DEV_AUTH)?;
        if dev_auth && public_url.starts_with("https:") {
            return Err(ENABLE_DEV_AUTH.malformed("the development login lets anyone in; it is refused behind https"));
        }
        let keys = settings.get(&SEALING_KEYS)?;
        let keys = seal::Keys::parse(keys.reveal()).map_err(|error| SEALING_KEYS.malformed(error))?;
        let LimitsFile { plans, rates } = limits(settings)?;
        let otlp_url = settings.opt(&OTLP_URL)?.map(|Url(url)| url);
        if otlp_url.as_ref().is_some_and(|url| url.starts_with("https:")) {
            return Err(OTLP_URL.malformed("only plain http is spoken to the collector; put one beside the process"));
        }
        let code_host = code_host(settings, &public_url)?;
        let words = |list: Option<String>| {
            list.map_or_else(Vec::new, |list| list.split(',').map(|word| word.trim().to_owned()).collect())
        };
        let site = Site {
            name: settings.get(&SITE_NAME)?,
            public_url,
            dashboard_url: settings.get(&DASHBOARD_URL)?.0,
            platform_domain: settings.get(&PLATFORM_DOMAIN)?,
            mail_domain: settings.opt(&MAIL_DOMAIN)?,
            nameservers: words(settings.opt(&NAMESERVERS)?),
            fallback_origin: settings.get(&FALLBACK_ORIGIN)?,
            git_url: None,
            ssh_host: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let url = kernel::Secret::new(settings.get(&DATABASE_URL)?.reveal().to_owned());
        let database = store::Config {
            connections: settings.get(&DATABASE_CONNECTIONS)?.get().into(),
            keys,
            ..store::Config::new(url, "svc-server")
        };
        Ok(Self {
            database,
            listen: settings.get(&LISTEN)?,
            internal_listen: settings.get(&INTERNAL_LISTEN)?,
            bundle_store: settings.get(&BUNDLE_STORE)?,
            limits: plans,
            gateway: gateway::Config {
                sign_ins: SignIns { dev: dev_auth, code_host: code_host.is_some() },
                site,
                trusted_proxies: settings.opt(&TRUSTED_PROXIES)?.map(|Networks(networks)| networks).unwrap_or_default(),
                rate_limits: rates,
                in_flight: settings.get(&IN_FLIGHT)?.get().into(),
            },
            code_host,
            mail: mail(settings)?,
            otlp_url,
        })
    }
}

fn code_host(settings: &Settings, public_url: &str) -> Result<Option<CodeHostLogin>, Error> {
    let secret = settings.opt(&CODEHOST_CLIENT_SECRET)?;
    let Some(client_id) = settings.opt(&CODEHOST_CLIENT_ID)? else { return Ok(None) };
    let secret = secret.ok_or_else(|| CODEHOST_CLIENT_SECRET.malformed("needed with SVC_CODEHOST_CLIENT_ID"))?;
    let redirects = match settings.opt(&CODEHOST_REDIRECTS)? {
        Some(redirects) => redirects,
        None => public_url.parse().map_err(|error| PUBLIC_URL.malformed(error))?,
    };
    let host = CodeHostConfig {
        client_id,
        client_secret: kernel::Secret::new(secret.reveal().to_owned()),
        authorize_url: settings.get(&CODEHOST_AUTHORIZE_URL)?,
        token_url: settings.get(&CODEHOST_TOKEN_URL)?,
        user_url: settings.get(&CODEHOST_USER_URL)?,
    };
    Ok(Some(CodeHostLogin { host, redirects }))
}

fn mail(settings: &Settings) -> Result<Option<MailConfig>, Error> {
    let from = settings.opt(&MAIL_FROM)?;
    let Some(url) = settings.opt(&SMTP_URL)? else { return Ok(None) };
    let server = url.reveal().parse().map_err(|error: providers::InvalidSmtp| SMTP_URL.malformed(error))?;
    let from = from.ok_or_else(|| MAIL_FROM.malformed("needed with SVC_SMTP_URL"))?;
    Ok(Some(MailConfig { server, from }))
}

fn limits(settings: &Settings) -> Result<LimitsFile, Error> {
    let Some(path) = settings.opt(&LIMITS)? else {
        return Ok(LimitsFile::default());
    };
    let text = fs::read_to_string(&path).map_err(|error| LIMITS.malformed(format!("{}: {error}", path.display())))?;
    toml::from_str(&text).map_err(|error| LIMITS.malformed(format!("{}: {error}", path.display())))
}

impl FromStr for Url {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        match rest {
            Some(rest) if !rest.is_empty() && !rest.contains(['@', '?', '#', '*', ' ']) && !rest.starts_with('/') => {
                Ok(Self(text.trim_end_matches('/').to_owned()))
            }
            _ => Err("not an http or https address without credentials, query and fragment"),
        }
    }
}

impl FromStr for BundleStore {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("file://") {
            Some(path) if path.starts_with('/') => Ok(Self::Folder(path.into())),
            _ => Err("not file:///folder"),
        }
    }
}

impl FromStr for Networks {
    type Err = ipnet::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split(',').map(|network| network.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}
