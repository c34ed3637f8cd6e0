//! The settings of a node.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::HeaderValue;
use settings::{ByteSize, Claim, Error, Networks, Secret, Setting, Settings};
use tracing_subscriber::EnvFilter;

use crate::worker::config::{Config as Workers, UidRange};

settings::table! {
    /// Where the front listens for visitors of the deployed projects.
    pub LISTEN: SocketAddr = Setting::with_default("SVC_EDGE_LISTEN", "127.0.0.1:8088");
    /// Networks of proxies before the front whose `X-Forwarded-For` is believed: CIDRs, separated by commas.
    pub PROXIES: Option<Networks> = Setting::optional("SVC_EDGE_TRUSTED_PROXIES");
    /// Base address of the control plane's internal listener.
    pub CORE_URL: Url = Setting::with_default("SVC_NODE_CORE_URL", "http://127.0.0.1:8081");
    /// The node's credential for that listener, `svc_nod_…`.
    pub TOKEN: Secret = Setting::required("SVC_NODE_TOKEN");
    /// The node's own directory, kept across restarts: the last desired state, and what it serves.
    pub DIR: PathBuf = Setting::required("SVC_NODE_DIR");
    /// How large the cache in that directory may grow, in bytes or with `KiB`, `MiB`, `GiB` or `TiB`. What is served stays, whatever its size.
    pub CACHE_BYTES: ByteSize = Setting::with_default("SVC_NODE_CACHE_BYTES", "10GiB");
    /// The program `workerd`, which runs worker code. Without it, a site answers 503 where its code would.
    pub WORKERD: Option<PathBuf> = Setting::optional("SVC_NODE_WORKERD");
    /// How much memory the process of a worker may have in use; `64MiB` at least, which is about what the program itself takes.
    pub WORKER_MEMORY: ByteSize = Setting::with_default("SVC_NODE_WORKER_MEMORY", "256MiB");
    /// User ids that nobody else has, for the processes of workers; used where the node runs as root.
    pub WORKER_UIDS: UidRange = Setting::with_default("SVC_NODE_WORKER_UIDS", "200000-265535");
    /// Which log lines are written, in the syntax of `RUST_LOG`.
    pub LOG: EnvFilter = Setting::with_default("SVC_NODE_LOG", "info,actix_server=warn");
}

/// The node answers for the names of its own and of its front, whoever else reads the same environment.
pub const CLAIM: Claim = Claim { prefixes: &["SVC_NODE_", "SVC_EDGE_"], except: &[] };

/// A worker that nobody asks anything for this long is ended until somebody does.
const IDLE: Duration = Duration::from_secs(15 * 60);
/// A worker that may have less would be ended as soon as it runs.
const LEAST_MEMORY: u64 = 64 << 20;

/// What a node needs to know, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the front listens.
    pub listen: SocketAddr,
    /// Whose word on where visitors come from is taken.
    pub proxies: Networks,
    /// Base address of the control plane's internal listener, without a trailing slash.
    pub core_url: String,
    /// The `Authorization` header for it; marked as sensitive, so `Debug` does not show it.
    pub authorization: HeaderValue,
    /// The node's directory.
    pub dir: PathBuf,
    /// How many bytes of contents the directory may hold, unless more are served.
    pub cache_bytes: u64,
    /// How worker code is run, if it is.
    pub workers: Option<Workers>,
}

impl Config {
    /// Takes the node's configuration out of its settings.
    ///
    /// # Errors
    /// A value that does not parse or cannot be used.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", settings.get(&TOKEN)?.reveal()))
            .map_err(|_| TOKEN.malformed("it holds a character that no header carries"))?;
        authorization.set_sensitive(true);
        Ok(Self {
            listen: settings.get(&LISTEN)?,
            proxies: settings.opt(&PROXIES)?.unwrap_or_default(),
            core_url: base_address(&settings.get(&CORE_URL)?)?,
            authorization,
            dir: settings.get(&DIR)?,
            cache_bytes: settings.get(&CACHE_BYTES)?.0,
            workers: workers(settings)?,
        })
    }
}

fn workers(settings: &Settings) -> Result<Option<Workers>, Error> {
    let (ByteSize(memory), uids) = (settings.get(&WORKER_MEMORY)?, settings.get(&WORKER_UIDS)?);
    if memory < LEAST_MEMORY {
        return Err(WORKER_MEMORY.malformed("less than 64MiB, with which no worker starts"));
    }
    let Some(workerd) = settings.opt(&WORKERD)? else { return Ok(None) };
    if !cfg!(target_os = "linux") {
        return Err(WORKERD.malformed("worker code runs on Linux alone"));
    }
    if !workerd.is_file() {
        return Err(WORKERD.malformed("there is no such file"));
    }
    // This very program, also when another has taken its place on the disk.
    let launcher = PathBuf::from("/proc/self/exe");
    Ok(Some(Workers { workerd, launcher, memory, uids, idle: IDLE }))
}

/// The address is logged, so it must not hold a password.
fn base_address(url: &Url) -> Result<String, Error> {
    let is_base = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if is_base {
        Ok(url.as_str().trim_end_matches('/').to_owned())
    } else {
        Err(CORE_URL.malformed("not an http or https address without credentials, query and fragment"))
    }
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
    fn the_defaults_are_good_and_debug_shows_no_credential() {
        let config = read(&[("SVC_LISTEN", "of another process")]).unwrap();
        assert_eq!((config.listen.port(), config.core_url.as_str()), (8088, "http://127.0.0.1:8081"));
        assert_eq!(config.cache_bytes, 10 << 30);
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (name, value) in [
            ("SVC_NODE_TOKEN", "hush\n"),
            ("SVC_NODE_CORE_URL", "http://user:hush@core"),
            ("SVC_NODE_CORE_URL", "file:///hush"),
            ("SVC_NODE_LOG", "info,=hush="),
            ("SVC_NODE_CACHE_BYTES", "much"),
            ("SVC_NODE_WORKERD", "/hush"),
            ("SVC_NODE_WORKER_MEMORY", "0"),
            ("SVC_NODE_WORKER_UIDS", "0-hush"),
        ] {
            let line = read(&[(name, value)]).unwrap_err().to_string();
            assert!(line.starts_with(&format!("{name} is malformed: ")) && !line.contains("hush"), "{line}");
        }
    }
}
