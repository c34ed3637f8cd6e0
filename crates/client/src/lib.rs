//! The control API for Rust programs: a method for each operation, written from the OpenAPI document.
//!
//! ```no_run
//! # async fn example() -> Result<(), client::Error> {
//! use client::{Client, Secret, types::NewProject};
//!
//! let client = Client::new("https://api.example.org", "deployer/1.0")?.with_credential(Secret::new("svc_pat_…"));
//! let project = client.projects_create("acme", &NewProject { name: "site".into() }).send().await?;
//! println!("http://{}", project.hostname);
//! # Ok(())
//! # }
//! ```
//!
//! A call that may safely be sent again is, a few times: after a broken connection and while the API says that it is too
//! busy, but not after a time-out. A POST is made safe by its `Idempotency-Key`, which every call draws for itself.

mod call;
mod error;
mod generated;
mod page;
mod secret;
mod upload;
mod words;

use std::time::Duration;

use reqwest::redirect::Policy;
use url::{Host, Url};

pub use call::{Answer, Call};
pub use error::Error;
pub use generated::types;
pub use page::{Page, Paging};
pub use reqwest::Method;
pub use secret::Secret;
pub use upload::Upload;
pub(crate) use words::words;

const CONNECT: Duration = Duration::from_secs(10);

/// A connection to one API.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    credential: Option<Secret>,
}

impl Client {
    /// A client of the API at this address, as nobody in particular.
    ///
    /// # Errors
    /// [`Error::Argument`] for what is no http or https address.
    pub fn new(base: &str, user_agent: &str) -> Result<Self, Error> {
        let base = address(base)?;
        // Only the first of a process counts, and that may be the program's own.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The credential goes to this address alone: no redirect takes it elsewhere.
        let mut http = reqwest::Client::builder()
            .user_agent(user_agent)
            .redirect(Policy::none())
            .connect_timeout(CONNECT)
            .tcp_keepalive(Duration::from_secs(15));
        if is_loopback(&base) {
            // To a proxy, that would be another machine.
            http = http.no_proxy();
        }
        let http = http.build().map_err(Error::unreachable)?;
        Ok(Self { http, base, credential: None })
    }

    /// The same client as whoever this credential belongs to: a login session or an access token.
    #[must_use]
    pub fn with_credential(self, credential: Secret) -> Self {
        Self { credential: Some(credential), ..self }
    }

    /// The API's address.
    #[must_use]
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// Whether the API is on this machine, so that nobody is in between.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.base)
    }

    /// A call of an operation that has no method here. Each segment of the path is taken as it is.
    #[must_use]
    pub fn call<T>(&self, method: Method, path: &[&str]) -> Call<T> {
        self.operation("", method, path)
    }

    pub(crate) fn operation<T>(&self, operation: &'static str, method: Method, path: &[&str]) -> Call<T> {
        Call::new(self.clone(), operation, method, path)
    }
}

fn is_loopback(address: &Url) -> bool {
    match address.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// An API's address, without the slash at its end.
fn address(text: &str) -> Result<Url, Error> {
    let refused = || Error::Argument(format!("{text}: not an http or https address without user, query and fragment"));
    let mut url = Url::parse(text).map_err(|_| refused())?;
    let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    if !matches!(url.scheme(), "http" | "https") || !plain || url.fragment().is_some() || !url.has_host() {
        return Err(refused());
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}
