//! The settings of the git node.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use daemon::{base_address, bearer};
use reqwest::Url;
use reqwest::header::HeaderValue;
use settings::{ByteSize, Claim, Error, Networks, Secret, Setting, Settings};
use tracing_subscriber::EnvFilter;

use crate::limits::ClientLimits;
use crate::storage::PushLimits;

settings::table! {
    /// The address on which the node accepts git over HTTP. A proxy in front of it terminates TLS.
    pub LISTEN: SocketAddr = Setting::with_default("SVC_GIT_LISTEN", "127.0.0.1:8093");
    /// The address on which the node accepts git over SSH.
    pub SSH_LISTEN: SocketAddr = Setting::with_default("SVC_GIT_SSH_LISTEN", "127.0.0.1:2222");
    /// The address of the internal listener: the control plane reads the contents of repositories from it, and
    /// Prometheus reads `/metrics`. Never expose it to the internet.
    pub INTERNAL_LISTEN: SocketAddr = Setting::with_default("SVC_GIT_INTERNAL_LISTEN", "127.0.0.1:8094");
    /// The URL at which the control plane reaches the internal listener (default: `http://` and its address).
    pub INTERNAL_URL: Option<Url> = Setting::optional("SVC_GIT_INTERNAL_URL");
    /// Base address of the control plane's internal listener.
    pub CORE_URL: Url = Setting::with_default("SVC_GIT_CORE_URL", "http://127.0.0.1:8081");
    /// The node's credential for the internal listener of the control plane, `svc_nod_…`, from `xtask node add --git`.
    pub TOKEN: Secret = Setting::required("SVC_GIT_TOKEN");
    /// The directory with the repositories, the SSH host key and the journal of ref updates. Back it up. Only one
    /// process may use it.
    pub DIR: PathBuf = Setting::required("SVC_GIT_DIR");
    /// The networks of the proxies in front of the HTTP listener, whose `X-Forwarded-For` is trusted: CIDRs, separated
    /// by commas.
    pub TRUSTED_PROXIES: Option<Networks> = Setting::optional("SVC_GIT_TRUSTED_PROXIES");
    /// The maximum number of git processes that run for one user at the same time. Further ones wait.
    pub MAX_PROGRAMS_PER_USER: NonZeroU32 = Setting::with_default("SVC_GIT_MAX_PROGRAMS_PER_USER", "8");
    /// The maximum number of git processes that run for the anonymous clients of one address at the same time. Further
    /// ones wait.
    pub MAX_PROGRAMS_PER_ADDRESS: NonZeroU32 = Setting::with_default("SVC_GIT_MAX_PROGRAMS_PER_ADDRESS", "4");
    /// The maximum number of authenticated SSH connections of one user. Further ones can run no command.
    pub MAX_CONNECTIONS_PER_USER: NonZeroU32 = Setting::with_default("SVC_GIT_MAX_CONNECTIONS_PER_USER", "32");
    /// The maximum number of requests per minute that the node sends to the control plane for the clients of one
    /// address, on average. Each HTTP request of a client and each SSH command is one. Further ones are refused.
    pub MAX_REQUESTS_PER_ADDRESS: NonZeroU32 =
        Setting::with_default("SVC_GIT_MAX_REQUESTS_PER_MINUTE_PER_ADDRESS", "3000");
    /// The maximum size of a push: the compressed objects that the client sends.
    pub MAX_PUSH: ByteSize = Setting::with_default("SVC_GIT_MAX_PUSH", "2GiB");
    /// Pushes are refused while the file system of `SVC_GIT_DIR` has less free space than this. Repacks leave it free.
    pub MIN_FREE: ByteSize = Setting::with_default("SVC_GIT_MIN_FREE", "1GiB");
    /// The log filter, in the syntax of `RUST_LOG`.
    pub LOG: EnvFilter = Setting::with_default("SVC_GIT_LOG", "info,actix_server=warn,actix_http=off");
}

/// The node rejects unknown settings with this prefix, except the settings of the control plane.
pub const CLAIM: Claim = Claim { prefixes: &["SVC_GIT_"], except: &["SVC_GIT_URL", "SVC_GIT_SSH_HOST"] };

/// The validated configuration of a git node.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address for git over HTTP.
    pub listen: SocketAddr,
    /// The address for git over SSH.
    pub ssh_listen: SocketAddr,
    /// The address of the internal listener, for the control plane and Prometheus.
    pub internal_listen: SocketAddr,
    /// The URL of the internal listener. `None` if it consists of `http://` and the address.
    pub internal_url: Option<String>,
    /// Base address of the control plane's internal listener, without a trailing slash.
    pub core_url: String,
    /// The `Authorization` header for the control plane; marked as sensitive, so `Debug` does not show it.
    pub authorization: HeaderValue,
    /// The node's directory.
    pub dir: PathBuf,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Networks,
    /// The limits of a client.
    pub client_limits: ClientLimits,
    /// The limits of the storage of a push.
    pub push_limits: PushLimits,
}

impl Config {
    /// Reads the configuration from the settings.
    ///
    /// # Errors
    /// Returns an error that names the missing or malformed setting.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let count = |setting: &Setting<NonZeroU32>| {
            Ok::<_, Error>(usize::try_from(settings.get(setting)?.get()).unwrap_or(usize::MAX))
        };
        Ok(Self {
            listen: settings.get(&LISTEN)?,
            ssh_listen: settings.get(&SSH_LISTEN)?,
            internal_listen: settings.get(&INTERNAL_LISTEN)?,
            internal_url: settings.opt(&INTERNAL_URL)?.map(|url| base_address(&INTERNAL_URL, &url)).transpose()?,
            core_url: base_address(&CORE_URL, &settings.get(&CORE_URL)?)?,
            authorization: bearer(&TOKEN, &settings.get(&TOKEN)?)?,
            dir: settings.get(&DIR)?,
            trusted_proxies: settings.opt(&TRUSTED_PROXIES)?.unwrap_or_default(),
            client_limits: ClientLimits {
                programs_per_user: count(&MAX_PROGRAMS_PER_USER)?,
                programs_per_address: count(&MAX_PROGRAMS_PER_ADDRESS)?,
                connections_per_user: count(&MAX_CONNECTIONS_PER_USER)?,
                requests_per_address: settings.get(&MAX_REQUESTS_PER_ADDRESS)?.get(),
            },
            push_limits: PushLimits {
                max_bytes: settings.get(&MAX_PUSH)?.0,
                min_free_bytes: settings.get(&MIN_FREE)?.0,
            },
        })
    }
}
