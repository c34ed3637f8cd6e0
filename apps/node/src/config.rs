//! The settings of a node.

use std::net::SocketAddr;
use std::path::PathBuf;

use reqwest::Url;
use reqwest::header::HeaderValue;
use settings::{Claim, Error, Secret, Setting, Settings};
use tracing_subscriber::EnvFilter;

settings::table! {
    /// Where the front listens for visitors of the deployed projects.
    pub LISTEN: SocketAddr = Setting::with_default("SVC_EDGE_LISTEN", "127.0.0.1:8088");
    /// Base address of the control plane's internal listener.
    pub CORE_URL: Url = Setting::with_default("SVC_NODE_CORE_URL", "http://127.0.0.1:8081");
    /// The node's credential for that listener, `svc_nod_…`.
    pub TOKEN: Secret = Setting::required("SVC_NODE_TOKEN");
    /// The node's own directory, kept across restarts: the last desired state, and what it serves.
    pub DIR: PathBuf = Setting::required("SVC_NODE_DIR");
    /// Which log lines are written, in the syntax of `RUST_LOG`.
    pub LOG: EnvFilter = Setting::with_default("SVC_NODE_LOG", "info,actix_server=warn");
}

/// The node answers for the names of its own and of its front, whoever else reads the same environment.
pub const CLAIM: Claim = Claim { prefixes: &["SVC_NODE_", "SVC_EDGE_"], except: &[] };

/// What a node needs to know, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the front listens.
    pub listen: SocketAddr,
    /// Base address of the control plane's internal listener, without a trailing slash.
    pub core_url: String,
    /// The `Authorization` header for it; marked as sensitive, so `Debug` does not show it.
    pub authorization: HeaderValue,
    /// The node's directory.
    pub dir: PathBuf,
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
            core_url: base_address(&settings.get(&CORE_URL)?)?,
            authorization,
            dir: settings.get(&DIR)?,
        })
    }
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
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (name, value) in [
            ("SVC_NODE_TOKEN", "hush\n"),
            ("SVC_NODE_CORE_URL", "http://user:hush@core"),
            ("SVC_NODE_CORE_URL", "file:///hush"),
            ("SVC_NODE_LOG", "info,=hush="),
        ] {
            let line = read(&[(name, value)]).unwrap_err().to_string();
            assert!(line.starts_with(&format!("{name} is malformed: ")) && !line.contains("hush"), "{line}");
        }
    }
}
