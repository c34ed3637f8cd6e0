//! A Rust client of the control API. The methods are generated from the OpenAPI document, one for each operation.
//!
//! ```no_run
//! # async fn example() -> Result<(), client::Error> {
//! use client::{Client, Secret, types::NewProject};
//!
//! let client = Client::new("https://api.example.org", "deployer/1.0")?.with_credential(Secret::new("svc_pat_…"));
//! let project = client.projects_create("acme", &NewProject { name: "site".into() }).send().await?;
//! println!("{}", project.hostname);
//! # Ok(())
//! # }
//! ```
//!
//! The client retries GET, PUT, and POST with an `Idempotency-Key`: after a broken connection, after a 429 or 503 whose
//! `Retry-After` is at most 10 s, and while an earlier attempt is in progress. It does not retry after a timeout, and
//! retries neither DELETE nor PATCH.

mod call;
mod credential;
mod error;
mod generated;
mod open_enum;
mod page;
mod secret;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use url::{Host, Url};

pub use call::{Call, Response};
use credential::Credential;
pub use credential::{CredentialSource, Renewal};
pub use error::Error;
pub use generated::types;
pub(crate) use open_enum::open_enum;
pub use page::{Page, Paging};
pub use reqwest::Method;
pub use secret::Secret;
pub use upload::Upload;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of one API. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    credential: Option<Credential>,
}

impl Client {
    /// Creates a client without a credential.
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] if `base` is not an http or https address, and [`Error::Setup`] if the HTTP
    /// client cannot be created.
    pub fn new(base: &str, user_agent: &str) -> Result<Self, Error> {
        let base = parse_base_url(base)?;
        // This fails if the program has already installed a crypto provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Follow no redirects, because they could forward the credential to another host.
        let mut http = reqwest::Client::builder()
            .user_agent(user_agent)
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(Duration::from_secs(15));
        if is_loopback(&base) {
            // Use no proxy, because a proxy would resolve a loopback address to its own host.
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| Error::Setup(error.without_url().to_string()))?;
        Ok(Self { http, base, credential: None })
    }

    /// Sets the credential: a login session or an access token.
    #[must_use]
    pub fn with_credential(self, credential: Secret) -> Self {
        Self { credential: Some(Credential::new(credential, None)), ..self }
    }

    /// Sets the credential, and the source of the next credential, which is used when the API rejects the current one.
    /// All clones of the client share the credential.
    #[must_use]
    pub fn with_credential_source(self, credential: Secret, source: Arc<dyn CredentialSource>) -> Self {
        Self { credential: Some(Credential::new(credential, Some(source))), ..self }
    }

    /// Returns the address of the API.
    #[must_use]
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// Returns whether the API is on this host, so that no network is involved.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.base)
    }

    /// Creates a call of an operation without a method. The segments of the path are percent-encoded.
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

/// Parses the address of an API and removes a trailing slash.
fn parse_base_url(text: &str) -> Result<Url, Error> {
    let invalid =
        || Error::InvalidArgument(format!("{text} is not an http or https address without user, query and fragment"));
    let mut url = Url::parse(text).map_err(|_| invalid())?;
    let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    if !matches!(url.scheme(), "http" | "https") || !is_plain || url.fragment().is_some() || !url.has_host() {
        return Err(invalid());
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}
