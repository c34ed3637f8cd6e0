//! The settings of a node.

mod auth;
mod databases;
mod stores;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use daemon::{base_address, bearer};
use objects::StoreAddress;
use reqwest::Url;
use reqwest::header::HeaderValue;
use settings::{ByteSize, Claim, Error, Interval, Networks, Secret, Setting, Settings};
use tracing_subscriber::EnvFilter;

use crate::ai::config::AiConfig;
use crate::auth::config::{AuthConfig, ClientAuthentication};
use crate::database::config::DatabaseConfig;
use crate::storage::config::StorageConfig;
use crate::tls::config::TlsConfig;
use crate::worker::available_memory;
use crate::worker::config::{Config as Workers, EgressConfig, UidRange};

settings::table! {
    /// The address that the front listens on for visitors of the deployed projects.
    pub LISTEN: SocketAddr = Setting::with_default("SVC_EDGE_LISTEN", "127.0.0.1:8088");
    /// The address that the front listens on for visitors over TLS. Without it, a proxy terminates TLS.
    pub TLS_LISTEN: Option<SocketAddr> = Setting::optional("SVC_EDGE_TLS_LISTEN");
    /// A folder with the operator's own certificates: `<name>.crt` and `<name>.key`, or `<name>.pem` with both. They come
    /// before those that the control plane issues. The node reads changed files within seconds.
    pub CERTIFICATES: Option<PathBuf> = Setting::optional("SVC_EDGE_CERTIFICATES");
    /// Networks of proxies in front of the node whose `X-Forwarded-For` is trusted: CIDRs, separated by commas. If the
    /// node terminates TLS, their `X-Forwarded-Proto` is trusted too.
    pub PROXIES: Option<Networks> = Setting::optional("SVC_EDGE_TRUSTED_PROXIES");
    /// Base address of the control plane's internal listener.
    pub CORE_URL: Url = Setting::with_default("SVC_NODE_CORE_URL", "http://127.0.0.1:8081");
    /// The node's credential for the internal listener of the control plane, `svc_nod_…`.
    pub TOKEN: Secret = Setting::required("SVC_NODE_TOKEN");
    /// The node's directory, which must survive restarts. It contains the last desired state and the bundle cache.
    pub DIR: PathBuf = Setting::required("SVC_NODE_DIR");
    /// The limit of the disk space of the bundle cache, in bytes or with `KiB`, `MiB`, `GiB` or `TiB`. Served bundles
    /// are never evicted and may exceed it.
    pub CACHE_BYTES: ByteSize = Setting::with_default("SVC_NODE_CACHE_BYTES", "10GiB");
    /// The path of the program `workerd`, which runs worker code. Without it, requests for worker code receive 503.
    pub WORKERD: Option<PathBuf> = Setting::optional("SVC_NODE_WORKERD");
    /// The memory limit of a worker process; at least `64MiB`, which `workerd` itself needs.
    pub WORKER_MEMORY: ByteSize = Setting::with_default("SVC_NODE_WORKER_MEMORY", "256MiB");
    /// The limit on the memory of all worker processes together; at least `SVC_NODE_WORKER_MEMORY` (default: three
    /// quarters of the machine's memory, or of the limit of the node's control group if that is lower).
    pub WORKERS_MEMORY: Option<ByteSize> = Setting::optional("SVC_NODE_WORKERS_MEMORY");
    /// Unused user ids for worker processes; used only if the node runs as root.
    pub WORKER_UIDS: UidRange = Setting::with_default("SVC_NODE_WORKER_UIDS", "200000-265535");
    /// Networks that workers may connect to in addition to public addresses: CIDRs, separated by commas. For
    /// development and tests: every project can then reach them.
    pub EGRESS_ALLOW: Option<Networks> = Setting::optional("SVC_NODE_EGRESS_ALLOW");
    /// Networks that workers may not connect to, even if they are public: CIDRs, separated by commas.
    pub EGRESS_DENY: Option<Networks> = Setting::optional("SVC_NODE_EGRESS_DENY");
    /// `ip:port` of the name server for the connections of workers (default: the system's).
    pub EGRESS_RESOLVER: Option<SocketAddr> = Setting::optional("SVC_NODE_EGRESS_RESOLVER");
    /// The object store of the projects' objects: `file:///folder` or `s3://bucket/prefix`. Without it, `env.storage`
    /// fails with `storage_unavailable`.
    pub STORAGE: Option<StoreAddress> = Setting::optional("SVC_NODE_STORAGE");
    /// The access key ID of the bucket.
    pub STORAGE_ACCESS_KEY_ID: Option<String> = Setting::optional("SVC_NODE_STORAGE_ACCESS_KEY_ID");
    /// The secret access key of the bucket.
    pub STORAGE_SECRET_ACCESS_KEY: Option<Secret> = Setting::optional("SVC_NODE_STORAGE_SECRET_ACCESS_KEY");
    /// The session token of temporary credentials of the bucket. The node reads it at its start.
    pub STORAGE_SESSION_TOKEN: Option<Secret> = Setting::optional("SVC_NODE_STORAGE_SESSION_TOKEN");
    /// The region of the bucket.
    pub STORAGE_REGION: String = Setting::with_default("SVC_NODE_STORAGE_REGION", "us-east-1");
    /// The base URL of an S3 server other than Amazon's. The bucket is the first path segment. With an `http:` URL,
    /// requests are signed but not encrypted.
    pub STORAGE_ENDPOINT_URL: Option<Url> = Setting::optional("SVC_NODE_STORAGE_ENDPOINT_URL");
    /// The interval of reports on the storage that projects use.
    pub STORAGE_REPORT_INTERVAL: Interval = Setting::with_default("SVC_NODE_STORAGE_REPORT_INTERVAL", "60s");
    /// The object store of the databases' backups: `file:///folder` or `s3://bucket/prefix`. Keep it on another machine
    /// than the databases. Without it, databases have no backups, and cannot be exported or restored.
    pub BACKUPS: Option<StoreAddress> = Setting::optional("SVC_NODE_BACKUPS");
    /// The access key ID of the bucket of backups.
    pub BACKUPS_ACCESS_KEY_ID: Option<String> = Setting::optional("SVC_NODE_BACKUPS_ACCESS_KEY_ID");
    /// The secret access key of the bucket of backups.
    pub BACKUPS_SECRET_ACCESS_KEY: Option<Secret> = Setting::optional("SVC_NODE_BACKUPS_SECRET_ACCESS_KEY");
    /// The session token of temporary credentials of the bucket of backups. The node reads it at its start.
    pub BACKUPS_SESSION_TOKEN: Option<Secret> = Setting::optional("SVC_NODE_BACKUPS_SESSION_TOKEN");
    /// The region of the bucket of backups.
    pub BACKUPS_REGION: String = Setting::with_default("SVC_NODE_BACKUPS_REGION", "us-east-1");
    /// As `SVC_NODE_STORAGE_ENDPOINT_URL`, for the bucket of backups.
    pub BACKUPS_ENDPOINT_URL: Option<Url> = Setting::optional("SVC_NODE_BACKUPS_ENDPOINT_URL");
    /// The interval of scheduled backups. A database that did not change is not dumped again.
    pub BACKUP_INTERVAL: Interval = Setting::with_default("SVC_NODE_BACKUP_INTERVAL", "1h");
    /// The Postgres cluster of the projects' databases: `postgres://user:password@host:port/database?sslmode=…`, with a
    /// superuser. The node owns the cluster: do not share it. `sslmode` is `disable` or `verify-full`, with
    /// `sslrootcert` for a private authority. Without it, the node has no databases.
    pub DATABASE_URL: Option<Secret> = Setting::optional("SVC_NODE_DATABASE_URL");
    /// `host:port` at which clients reach the cluster.
    pub DATABASE_ADDRESS: Option<String> = Setting::optional("SVC_NODE_DATABASE_ADDRESS");
    /// The `sslmode` of clients: `disable`, `require` or `verify-full`.
    pub DATABASE_SSLMODE: String = Setting::with_default("SVC_NODE_DATABASE_SSLMODE", "require");
    /// The folder with `pg_dump` and `pg_restore`, of the same major version as the cluster (default: `PATH`).
    pub PG_BIN: Option<PathBuf> = Setting::optional("SVC_NODE_PG_BIN");
    /// The base URL of the upstream of `env.ai`, with its version: a server with OpenAI's API. Without it, calls fail with
    /// `no_upstream`.
    pub AI_URL: Option<Url> = Setting::optional("SVC_NODE_AI_URL");
    /// The API key of the upstream.
    pub AI_KEY: Option<Secret> = Setting::optional("SVC_NODE_AI_KEY");
    /// The authorization endpoint of the provider `codehost` of app user auth, with OAuth 2.0 as at GitHub. Endpoints of
    /// providers must use https, except on this machine.
    pub AUTH_CODEHOST_AUTHORIZE_URL: Url = Setting::with_default("SVC_NODE_AUTH_CODEHOST_AUTHORIZE_URL", "https://github.com/login/oauth/authorize");
    /// The token endpoint of `codehost`.
    pub AUTH_CODEHOST_TOKEN_URL: Url = Setting::with_default("SVC_NODE_AUTH_CODEHOST_TOKEN_URL", "https://github.com/login/oauth/access_token");
    /// The user endpoint of `codehost`.
    pub AUTH_CODEHOST_USER_URL: Url = Setting::with_default("SVC_NODE_AUTH_CODEHOST_USER_URL", "https://api.github.com/user");
    /// How clients authenticate at the token endpoint of `codehost`: `post` for the body, or `basic` for HTTP Basic.
    pub AUTH_CODEHOST_AUTH_METHOD: ClientAuthentication = Setting::with_default("SVC_NODE_AUTH_CODEHOST_AUTH_METHOD", "post");
    /// The name of `codehost` on sign-in pages (default: a general name in the visitor's language).
    pub AUTH_CODEHOST_NAME: Option<String> = Setting::optional("SVC_NODE_AUTH_CODEHOST_NAME");
    /// The authorization endpoint of the provider `webaccount` of app user auth, with OpenID Connect.
    pub AUTH_WEBACCOUNT_AUTHORIZE_URL: Url = Setting::with_default("SVC_NODE_AUTH_WEBACCOUNT_AUTHORIZE_URL", "https://accounts.google.com/o/oauth2/v2/auth");
    /// The token endpoint of `webaccount`.
    pub AUTH_WEBACCOUNT_TOKEN_URL: Url = Setting::with_default("SVC_NODE_AUTH_WEBACCOUNT_TOKEN_URL", "https://oauth2.googleapis.com/token");
    /// The userinfo endpoint of `webaccount`.
    pub AUTH_WEBACCOUNT_USER_URL: Url = Setting::with_default("SVC_NODE_AUTH_WEBACCOUNT_USER_URL", "https://openidconnect.googleapis.com/v1/userinfo");
    /// The issuer of the ID tokens of `webaccount`. With it and the keys, the node verifies their signatures.
    pub AUTH_WEBACCOUNT_ISSUER: Option<String> = Setting::optional("SVC_NODE_AUTH_WEBACCOUNT_ISSUER");
    /// The address of the keys that sign these ID tokens.
    pub AUTH_WEBACCOUNT_JWKS_URL: Option<Url> = Setting::optional("SVC_NODE_AUTH_WEBACCOUNT_JWKS_URL");
    /// How clients authenticate at the token endpoint of `webaccount`: `post` for the body, or `basic` for HTTP Basic.
    pub AUTH_WEBACCOUNT_AUTH_METHOD: ClientAuthentication = Setting::with_default("SVC_NODE_AUTH_WEBACCOUNT_AUTH_METHOD", "post");
    /// The name of `webaccount` on sign-in pages (default: a general name in the visitor's language).
    pub AUTH_WEBACCOUNT_NAME: Option<String> = Setting::optional("SVC_NODE_AUTH_WEBACCOUNT_NAME");
    /// The authorization endpoint of the provider `messenger` of app user auth, with OpenID Connect. Without it, the
    /// provider is off.
    pub AUTH_MESSENGER_AUTHORIZE_URL: Option<Url> = Setting::optional("SVC_NODE_AUTH_MESSENGER_AUTHORIZE_URL");
    /// The token endpoint of `messenger`.
    pub AUTH_MESSENGER_TOKEN_URL: Option<Url> = Setting::optional("SVC_NODE_AUTH_MESSENGER_TOKEN_URL");
    /// The userinfo endpoint of `messenger`.
    pub AUTH_MESSENGER_USER_URL: Option<Url> = Setting::optional("SVC_NODE_AUTH_MESSENGER_USER_URL");
    /// The issuer of the ID tokens of `messenger`. With it and the keys, the node verifies their signatures.
    pub AUTH_MESSENGER_ISSUER: Option<String> = Setting::optional("SVC_NODE_AUTH_MESSENGER_ISSUER");
    /// The address of the keys that sign these ID tokens.
    pub AUTH_MESSENGER_JWKS_URL: Option<Url> = Setting::optional("SVC_NODE_AUTH_MESSENGER_JWKS_URL");
    /// How clients authenticate at the token endpoint of `messenger`: `post` for the body, or `basic` for HTTP Basic.
    pub AUTH_MESSENGER_AUTH_METHOD: ClientAuthentication = Setting::with_default("SVC_NODE_AUTH_MESSENGER_AUTH_METHOD", "post");
    /// The name of `messenger` on sign-in pages (default: a general name in the visitor's language).
    pub AUTH_MESSENGER_NAME: Option<String> = Setting::optional("SVC_NODE_AUTH_MESSENGER_NAME");
    /// The address at which Prometheus finds `/metrics`. Never expose it to the internet. Without it, the node serves
    /// no metrics.
    pub METRICS_LISTEN: Option<SocketAddr> = Setting::optional("SVC_NODE_METRICS_LISTEN");
    /// The log filter, in the syntax of `RUST_LOG`.
    pub LOG: EnvFilter = Setting::with_default("SVC_NODE_LOG", "info,actix_server=warn,actix_http=off");
}

/// The node rejects unknown settings with these prefixes. Other programs may share its environment.
pub const CLAIM: Claim = Claim { prefixes: &["SVC_NODE_", "SVC_EDGE_"], except: &[] };

/// A worker process without requests for this long is stopped until the next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// A worker process without requests for this long may be stopped to free memory.
const MIN_IDLE: Duration = Duration::from_secs(10);
/// The limit of requests and WebSockets of a worker process in flight.
const MAX_IN_FLIGHT: usize = 1000;
/// The limit of connections of one owner's worker processes to the bindings: an eighth of those that the node accepts.
const MAX_CONNECTIONS: usize = 4096;
/// The timeout until a worker starts to respond, from the last chunk of the request body that it took.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(100);
/// The time for a call of `email()`. With the start of the process, it must end before the lease of the mail.
const EMAIL_TIMEOUT: Duration = Duration::from_secs(30);
/// A visitor who pauses a download for longer must resume it with a range request.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// `workerd` itself needs about this much memory.
const MIN_MEMORY: u64 = 64 << 20;

/// The validated configuration of a node.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address that the front listens on.
    pub listen: SocketAddr,
    /// The TLS listener, if the node terminates TLS.
    pub tls: Option<TlsConfig>,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub proxies: Networks,
    /// Base address of the control plane's internal listener, without a trailing slash.
    pub core_url: String,
    /// The `Authorization` header for the control plane; marked as sensitive, so `Debug` does not show it.
    pub authorization: HeaderValue,
    /// The node's directory.
    pub dir: PathBuf,
    /// The size limit of the cache in bytes.
    pub cache_bytes: u64,
    /// The address that the metrics are served at.
    pub metrics_listen: Option<SocketAddr>,
    /// The configuration of workers; `None` if the node does not run worker code.
    pub workers: Option<Workers>,
    /// The configuration of the object storage, if the node has one.
    pub storage: Option<StorageConfig>,
    /// The configuration of the databases, if the node has a Postgres cluster for them.
    pub databases: Option<DatabaseConfig>,
    /// The upstream of `env.ai`, if the node has one.
    pub ai: Option<AiConfig>,
    /// The identity providers of app user auth.
    pub auth: AuthConfig,
    /// How long a visitor may read nothing of a response before it ends.
    pub write_timeout: Duration,
}

impl Config {
    /// Reads the configuration from the settings.
    ///
    /// # Errors
    /// Returns an error that names the missing or malformed setting.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        Ok(Self {
            listen: settings.get(&LISTEN)?,
            tls: tls(settings)?,
            proxies: settings.opt(&PROXIES)?.unwrap_or_default(),
            core_url: base_address(&CORE_URL, &settings.get(&CORE_URL)?)?,
            authorization: bearer(&TOKEN, &settings.get(&TOKEN)?)?,
            dir: settings.get(&DIR)?,
            cache_bytes: settings.get(&CACHE_BYTES)?.0,
            metrics_listen: settings.opt(&METRICS_LISTEN)?,
            workers: workers(settings)?,
            storage: stores::storage(settings)?,
            databases: databases::databases(settings)?,
            ai: ai(settings)?,
            auth: auth::auth(settings)?,
            write_timeout: WRITE_TIMEOUT,
        })
    }
}

/// Returns the TLS listener.
fn tls(settings: &Settings) -> Result<Option<TlsConfig>, Error> {
    match (settings.opt(&TLS_LISTEN)?, settings.opt(&CERTIFICATES)?) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(TLS_LISTEN.malformed("required with SVC_EDGE_CERTIFICATES")),
        (Some(listen), files) => Ok(Some(TlsConfig { listen, files })),
    }
}

/// Returns the upstream of the AI models.
fn ai(settings: &Settings) -> Result<Option<AiConfig>, Error> {
    match (settings.opt(&AI_URL)?, settings.opt(&AI_KEY)?) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(AI_KEY.malformed("required with SVC_NODE_AI_URL")),
        (None, Some(_)) => Err(AI_URL.malformed("required with SVC_NODE_AI_KEY")),
        (Some(url), Some(key)) => Ok(Some(AiConfig::new(base_address(&AI_URL, &url)?, bearer(&AI_KEY, &key)?))),
    }
}

fn workers(settings: &Settings) -> Result<Option<Workers>, Error> {
    let egress = EgressConfig {
        allow: settings.opt(&EGRESS_ALLOW)?.unwrap_or_default(),
        deny: settings.opt(&EGRESS_DENY)?.unwrap_or_default(),
        resolver: settings.opt(&EGRESS_RESOLVER)?,
    };
    let (ByteSize(memory), uids) = (settings.get(&WORKER_MEMORY)?, settings.get(&WORKER_UIDS)?);
    if memory < MIN_MEMORY {
        return Err(WORKER_MEMORY.malformed("it must be at least 64MiB"));
    }
    let total_memory = match settings.opt(&WORKERS_MEMORY)? {
        Some(ByteSize(total)) if total < memory => {
            return Err(WORKERS_MEMORY.malformed("it must be at least SVC_NODE_WORKER_MEMORY"));
        }
        Some(ByteSize(total)) => total,
        None => (available_memory() / 4 * 3).max(memory),
    };
    let Some(workerd) = settings.opt(&WORKERD)? else { return Ok(None) };
    if !cfg!(target_os = "linux") {
        return Err(WORKERD.malformed("workers run only on Linux"));
    }
    if !workerd.is_file() {
        return Err(WORKERD.malformed("the file does not exist"));
    }
    // The running executable, even if the file on disk was replaced.
    let launcher = PathBuf::from("/proc/self/exe");
    Ok(Some(Workers {
        workerd,
        launcher,
        memory,
        total_memory,
        uids,
        idle: IDLE_TIMEOUT,
        min_idle: MIN_IDLE,
        max_in_flight: MAX_IN_FLIGHT,
        max_connections: MAX_CONNECTIONS,
        response_timeout: RESPONSE_TIMEOUT,
        email_timeout: EMAIL_TIMEOUT,
        egress,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Result<Config, Error> {
        let required = [("SVC_NODE_TOKEN", "svc_nod_hush"), ("SVC_NODE_DIR", "/d")];
        let given = required.iter().chain(given).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let settings = Settings::read(TABLE, &CLAIM, given)?;
        settings.get(&LOG)?;
        Config::new(&settings)
    }

    #[test]
    fn defaults_are_valid_and_debug_hides_the_credential() {
        let config = read(&[("SVC_LISTEN", "of another process")]).unwrap();
        assert_eq!((config.listen.port(), config.core_url.as_str()), (8088, "http://127.0.0.1:8081"));
        assert_eq!(config.cache_bytes, 10 << 30);
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_of_all_workers_suffices_for_one_and_is_a_part_of_the_machine() {
        let total = |given: &[(&str, &str)]| {
            let program = [("SVC_NODE_WORKERD", "/proc/self/exe")];
            read(&[&program, given].concat()).unwrap().workers.unwrap().total_memory
        };
        assert!((64 << 20..available_memory()).contains(&total(&[("SVC_NODE_WORKER_MEMORY", "64MiB")])));
        assert_eq!(total(&[("SVC_NODE_WORKER_MEMORY", "900TiB")]), 900 << 40);
        assert_eq!(total(&[("SVC_NODE_WORKERS_MEMORY", "256MiB")]), 256 << 20);
    }

    #[test]
    fn malformed_setting_is_named_without_its_value() {
        for (name, value) in [
            ("SVC_NODE_TOKEN", "hush\n"),
            ("SVC_NODE_CORE_URL", "http://user:hush@core"),
            ("SVC_NODE_CORE_URL", "file:///hush"),
            ("SVC_NODE_LOG", "info,=hush="),
            ("SVC_NODE_CACHE_BYTES", "much"),
            ("SVC_NODE_WORKERD", "/hush"),
            ("SVC_NODE_WORKER_MEMORY", "0"),
            ("SVC_NODE_WORKERS_MEMORY", "255MiB"),
            ("SVC_NODE_WORKER_UIDS", "0-hush"),
            ("SVC_NODE_EGRESS_ALLOW", "hush/8"),
            ("SVC_NODE_EGRESS_DENY", "10.0.0.0/33,hush"),
            ("SVC_NODE_EGRESS_RESOLVER", "hush"),
            ("SVC_NODE_METRICS_LISTEN", "hush"),
            ("SVC_NODE_STORAGE", "s3://user:hush@bucket"),
            ("SVC_NODE_STORAGE_ENDPOINT_URL", "http://user:hush@s3"),
            ("SVC_NODE_STORAGE_REPORT_INTERVAL", "hush"),
            ("SVC_NODE_DATABASE_URL", "postgres://root:hush@db/postgres?sslmode=prefer"),
            ("SVC_NODE_DATABASE_ADDRESS", "hush"),
            ("SVC_NODE_DATABASE_SSLMODE", "hush"),
            ("SVC_NODE_PG_BIN", "/hush"),
            ("SVC_NODE_BACKUPS", "s3://user:hush@bucket"),
            ("SVC_NODE_BACKUPS_ENDPOINT_URL", "http://user:hush@s3"),
            ("SVC_NODE_BACKUP_INTERVAL", "hush"),
            ("SVC_NODE_AUTH_CODEHOST_AUTHORIZE_URL", "ftp://hush"),
            ("SVC_NODE_AUTH_CODEHOST_AUTH_METHOD", "hush"),
            ("SVC_NODE_AUTH_WEBACCOUNT_TOKEN_URL", "https://user:hush@id.example/"),
            ("SVC_NODE_AUTH_WEBACCOUNT_JWKS_URL", "https://id.example/hush"),
            ("SVC_NODE_AUTH_CODEHOST_USER_URL", "http://hush.example/user"),
            ("SVC_NODE_AUTH_MESSENGER_USER_URL", "https://id.example/#hush"),
        ] {
            let line = read(&[(name, value)]).unwrap_err().to_string();
            assert!(line.starts_with(&format!("{name} is malformed: ")) && !line.contains("hush"), "{line}");
        }
    }
}
