//! The settings of the control plane (contract section 12).

mod parts;
mod values;

use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::thread;

use dns::Hosting;
use dns::primary::PrimaryConfig;
use gateway::SignIns;
use kernel::{AllowList, Limits, seal};
use projects::{S3, SiteUrl};
use providers::{CodeHostConfig, Mailbox, SmtpConfig};
use settings::{Claim, Error, Flag, Networks, Secret, Setting, Settings};
use tracing_subscriber::EnvFilter;

use self::parts::{LimitsFile, Zones, bundle_store, code_host, limits, mail, own_domains, site, zones};

pub use self::values::{Addresses, BundleAddress, CoreLink, Sockets, Url};

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
    /// The address of a deployed project, with `{hostname}` in place of its name: `https://{hostname}`, or with a port, or `http`, as a laptop needs it.
    pub SITE_URL: SiteUrl = Setting::with_default("SVC_SITE_URL", "https://{hostname}");
    /// The link to the nodes: `embedded`, through this Postgres, or `off`, with which whatever nodes carry out answers `no_core`.
    pub CORE: CoreLink = Setting::with_default("SVC_CORE", "embedded");
    /// What the CNAME of a custom hostname points at.
    pub FALLBACK_ORIGIN: String = Setting::required("SVC_FALLBACK_ORIGIN");
    /// Where names are pointed at that cannot be a CNAME, the zones' own: addresses of the fallback origin, separated by commas. Without them such a name is connected and its records are left to its owner.
    pub FALLBACK_ADDRESSES: Option<Addresses> = Setting::optional("SVC_FALLBACK_ADDRESSES");
    /// The platform's nameservers, separated by commas. Without them no zones are hosted.
    pub NAMESERVERS: Option<String> = Setting::optional("SVC_NAMESERVERS");
    /// Domain of the projects' mail addresses.
    pub MAIL_DOMAIN: Option<String> = Setting::optional("SVC_MAIL_DOMAIN");
    /// `ip:port` of the name server that is asked for proofs of ownership (default: the system's).
    pub DNS_RESOLVER: Option<SocketAddr> = Setting::optional("SVC_DNS_RESOLVER");
    /// Where zones are transferred from, over UDP and TCP: a hidden primary for the platform's own nameservers, never to be reached by others. Without it nameservers learn of nothing.
    pub DNS_LISTEN: Option<SocketAddr> = Setting::optional("SVC_DNS_LISTEN");
    /// The key that transfers and notices are signed with: `name:algorithm:base64` with `hmac-sha256`, `hmac-sha384` or `hmac-sha512`.
    pub DNS_TSIG: Option<Secret> = Setting::optional("SVC_DNS_TSIG");
    /// The nameservers that transfer zones: `ip:port,…`, where they take notices. Only from these addresses are questions answered.
    pub DNS_SECONDARIES: Option<Sockets> = Setting::optional("SVC_DNS_SECONDARIES");
    /// What the catalog zone is called, from which nameservers learn which zones there are (RFC 9432).
    pub DNS_CATALOG: String = Setting::with_default("SVC_DNS_CATALOG", "catalog.invalid");
    /// `ip:port` of the nameserver that signs, which is looked at for its keys and serials.
    pub DNS_SIGNER: Option<SocketAddr> = Setting::optional("SVC_DNS_SIGNER");
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
    /// Addresses, separated by commas, under which a browser may be sent on once it is signed in (default: `SVC_PUBLIC_URL`). `http://127.0.0.1` without a port means each of its ports, where `svc login` waits for the browser.
    pub CODEHOST_REDIRECTS: Option<AllowList> = Setting::optional("SVC_CODEHOST_REDIRECTS");
    /// The server that takes our mail: `smtp://user:password@host:port` (STARTTLS; required with credentials, unless the host is this one or `?tls=` says `opportunistic` or `none`) or `smtps://…`. Without it no mail is sent.
    pub SMTP_URL: Option<Secret> = Setting::optional("SVC_SMTP_URL");
    /// The sender of our mail: `Name <address>` or an address.
    pub MAIL_FROM: Option<Mailbox> = Setting::optional("SVC_MAIL_FROM");
    /// Where bundles are kept: `file:///folder`, or `s3://bucket` or `s3://bucket/prefix`, which the settings `AWS_…` belong to.
    pub BUNDLE_STORE: BundleAddress = Setting::required("SVC_BUNDLE_STORE");
    /// Who reads and writes the bucket. Only the environment gives this and the other `AWS_…`.
    pub AWS_ACCESS_KEY_ID: Option<String> = Setting::optional("AWS_ACCESS_KEY_ID");
    /// The secret that belongs to it.
    pub AWS_SECRET_ACCESS_KEY: Option<Secret> = Setting::optional("AWS_SECRET_ACCESS_KEY");
    /// The token that belongs to a temporary one. It is read at the start alone: past its end, bundles are away.
    pub AWS_SESSION_TOKEN: Option<Secret> = Setting::optional("AWS_SESSION_TOKEN");
    /// The bucket's region (default: `AWS_DEFAULT_REGION`).
    pub AWS_REGION: Option<String> = Setting::optional("AWS_REGION");
    /// The bucket's region where `AWS_REGION` is not given (default: `us-east-1`).
    pub AWS_DEFAULT_REGION: Option<String> = Setting::optional("AWS_DEFAULT_REGION");
    /// Base address of a server other than Amazon's that speaks S3 (default: `AWS_ENDPOINT_URL`).
    pub AWS_ENDPOINT_URL_S3: Option<Url> = Setting::optional("AWS_ENDPOINT_URL_S3");
    /// The same for every service, of which there is one. Buckets are the first segment of the path. An `http:` address is taken at its word: what passes is signed and not secret to those in between.
    pub AWS_ENDPOINT_URL: Option<Url> = Setting::optional("AWS_ENDPOINT_URL");
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

/// The control plane owns all `SVC_` names except those of the node, the command line and the sandbox.
pub const CLAIM: Claim = Claim { prefixes: &["SVC_"], except: &["SVC_NODE_", "SVC_EDGE_", "SVC_CLI_", "SVC_SANDBOX_"] };

/// What the control plane needs to know, checked.
#[derive(Debug, Clone)]
pub struct Config {
    pub database: store::Config,
    pub listen: SocketAddr,
    pub internal_listen: SocketAddr,
    pub bundle_store: BundleStore,
    pub limits: Limits,
    pub core: CoreLink,
    pub site_url: SiteUrl,
    pub dns_resolver: Option<SocketAddr>,
    /// How zones are hosted; none where they are not.
    pub dns: Option<Hosting>,
    /// What nameservers transfer from.
    pub primary: Option<PrimaryConfig>,
    /// Who signs.
    pub signer: Option<SocketAddr>,
    /// Names under which no project may claim one, lowercase.
    pub own_domains: Vec<String>,
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

/// Where bundles are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleStore {
    /// A folder of this machine.
    Folder(PathBuf),
    /// A bucket.
    S3(S3),
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
        let site_url = settings.get(&SITE_URL)?;
        if public_url.starts_with("https:") && !site_url.is_https() {
            return Err(SITE_URL.malformed("plain http is for development; it is refused behind https"));
        }
        let site = site(settings, public_url, &site_url)?;
        let own_domains = own_domains(&site);
        let Zones { hosting: dns, primary, signer } = zones(settings, &site, &own_domains)?;
        let url = kernel::Secret::new(settings.get(&DATABASE_URL)?.reveal().to_owned());
        let database = store::Config {
            connections: settings.get(&DATABASE_CONNECTIONS)?.get().into(),
            threads: thread::available_parallelism().map_or(1, NonZeroUsize::get),
            keys,
            ..store::Config::new(url, "svc-server")
        };
        Ok(Self {
            database,
            listen: settings.get(&LISTEN)?,
            internal_listen: settings.get(&INTERNAL_LISTEN)?,
            bundle_store: bundle_store(settings)?,
            limits: plans,
            gateway: gateway::Config {
                sign_ins: SignIns { dev: dev_auth, code_host: code_host.is_some() },
                site,
                trusted_proxies: settings.opt(&TRUSTED_PROXIES)?.unwrap_or_default(),
                rate_limits: rates,
                in_flight: settings.get(&IN_FLIGHT)?.get().into(),
            },
            core: settings.get(&CORE)?,
            site_url,
            dns_resolver: settings.opt(&DNS_RESOLVER)?,
            dns,
            primary,
            signer,
            own_domains,
            code_host,
            mail: mail(settings)?,
            otlp_url,
        })
    }
}
