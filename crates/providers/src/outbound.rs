//! The HTTP client for configured external origins.
//!
//! It calls only the origins that settings name or a fixed rule allows, so that a response or a user cannot direct it to
//! this host or an internal network (SSRF). Operators may configure `http` and private addresses. `https` is always verified. The
//! client does not follow redirects, because they would forward credentials.

use std::time::Duration;

use chrono::DateTime;
use kernel::{Secret, error_chain};
use reqwest::header::{ACCEPT, CONTENT_TYPE, DATE, HeaderMap, HeaderName, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use rustls::RootCertStore;
use serde::de::DeserializeOwned;
use url::{Origin, Url, form_urlencoded};
use webhooks::sns::CertificateHosts;

use crate::tls;

/// The longest `Retry-After` of a 429 after which a client repeats a call.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(2);

/// The limits of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The timeout of a connection, including TLS.
    pub connect_timeout: Duration,
    /// The timeout of a call, from the DNS lookup to the last byte of the response.
    pub timeout: Duration,
    /// The maximum size of a response body.
    pub max_body_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect_timeout: Duration::from_secs(3), timeout: Duration::from_secs(10), max_body_bytes: 1024 * 1024 }
    }
}

/// An HTTP client for the origins of one external service.
#[derive(Debug, Clone)]
pub struct OutboundClient {
    purpose: &'static str,
    allowed: Allowed,
    max_body_bytes: usize,
    client: Client,
}

/// The origins that a client may call.
#[derive(Debug, Clone)]
enum Allowed {
    Origins(Vec<Origin>),
    Notifications(CertificateHosts),
}

impl Allowed {
    fn contains(&self, url: &Url) -> bool {
        match self {
            Self::Origins(origins) => origins.contains(&url.origin()),
            Self::Notifications(hosts) => hosts.allow(url),
        }
    }
}

/// The reason why a client cannot be created. Contains no address.
#[derive(Debug, thiserror::Error)]
pub enum OutboundConfigError {
    /// An address is neither http nor https.
    #[error("an address is neither http nor https")]
    Scheme,
    /// An address contains credentials, which must be in their own settings.
    #[error("an address contains a user or a password")]
    Userinfo,
    /// An address is https, but the system has no CA certificates.
    #[error("no CA certificate to verify https servers with; install the system's or set SSL_CERT_FILE")]
    NoRoots,
    /// An additional CA certificate is not a certificate.
    #[error("the additional CA certificate is not a PEM certificate")]
    Ca,
    /// The HTTP library could not be set up.
    #[error("failed to create the HTTP client: {0}")]
    Client(String),
}

/// An error of a call. Contains no address, credential or body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutboundError {
    /// The origin is not allowed. Nothing was sent.
    #[error("the origin is not configured")]
    NotAllowed,
    /// The connection failed or broke, or its certificate is not trusted.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The call took longer than [`Limits::timeout`].
    #[error("timed out")]
    Timeout,
    /// The status is neither a success nor a redirect.
    #[error("responded with status {0}")]
    Status(u16),
    /// The response is a redirect, which is not followed.
    #[error("responded with a redirect, status {0}")]
    Redirect(u16),
    /// The body is larger than [`Limits::max_body_bytes`].
    #[error("the response is too large")]
    TooLarge,
    /// The body is not JSON of the expected type.
    #[error("the response is not the expected JSON")]
    NotJson,
}

impl OutboundClient {
    /// Creates a client that may call the origins (scheme, host and port) of these addresses, with the default limits.
    ///
    /// # Errors
    /// Returns an error for an address that is not http or https, or that contains credentials. Also returns an error
    /// for an https address on a system without CA certificates.
    pub fn new<'a>(
        purpose: &'static str,
        origins: impl IntoIterator<Item = &'a Url>,
    ) -> Result<Self, OutboundConfigError> {
        Self::with_limits(purpose, origins, Limits::default())
    }

    /// Creates a client with custom limits.
    ///
    /// # Errors
    /// Returns the errors of [`OutboundClient::new`].
    pub fn with_limits<'a>(
        purpose: &'static str,
        origins: impl IntoIterator<Item = &'a Url>,
        limits: Limits,
    ) -> Result<Self, OutboundConfigError> {
        let origins: Vec<Origin> = origins.into_iter().map(origin).collect::<Result<_, _>>()?;
        let uses_tls = origins.iter().any(|origin| matches!(origin, Origin::Tuple(scheme, ..) if scheme == "https"));
        let roots = if uses_tls { tls::roots(None)? } else { RootCertStore::empty() };
        Self::build(purpose, Allowed::Origins(origins), roots, limits)
    }

    /// Creates a client for the origin of one address, with these additional certificate authorities (PEM).
    ///
    /// # Errors
    /// Returns the errors of [`OutboundClient::new`], and [`OutboundConfigError::Ca`] for a malformed `ca`.
    pub(crate) fn with_ca(
        purpose: &'static str,
        address: &Url,
        ca: Option<&str>,
        limits: Limits,
    ) -> Result<Self, OutboundConfigError> {
        Self::build(purpose, Allowed::Origins(vec![origin(address)?]), tls::roots(ca)?, limits)
    }

    /// Creates a client that may call the hosts of the notification service. `ca` is a PEM text of certificate
    /// authorities that it trusts in addition to those of the system.
    pub(crate) fn for_notifications(
        purpose: &'static str,
        hosts: CertificateHosts,
        ca: Option<&str>,
        limits: Limits,
    ) -> Result<Self, OutboundConfigError> {
        Self::build(purpose, Allowed::Notifications(hosts), tls::roots(ca)?, limits)
    }

    fn build(
        purpose: &'static str,
        allowed: Allowed,
        roots: RootCertStore,
        limits: Limits,
    ) -> Result<Self, OutboundConfigError> {
        let tls = tls::client_config(roots).map_err(|error| OutboundConfigError::Client(error.to_string()))?;
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent("svc")
            .redirect(Policy::none())
            .no_proxy()
            .connect_timeout(limits.connect_timeout)
            .timeout(limits.timeout)
            // Calls are rare, and some must not be repeated. So each call uses its own connection.
            .pool_max_idle_per_host(0)
            .retry(reqwest::retry::never())
            .build()
            .map_err(|error| OutboundConfigError::Client(error_chain(&error).to_string()))?;
        Ok(Self { purpose, allowed, max_body_bytes: limits.max_body_bytes, client })
    }

    /// Sends a GET and returns the body.
    ///
    /// # Errors
    /// Returns an error unless the status is a success.
    pub(crate) async fn get_bytes(&self, url: &Url) -> Result<Vec<u8>, OutboundError> {
        let body = async { self.read_body(self.send(url, self.client.get(url.clone())).await?).await };
        self.log(body.await)
    }

    /// Sends a GET. Ignores the body of the response.
    ///
    /// # Errors
    /// Returns an error unless the status is a success.
    pub(crate) async fn visit(&self, url: &Url) -> Result<(), OutboundError> {
        self.log(self.send(url, self.client.get(url.clone())).await.map(drop))
    }

    /// Sends a form with POST and parses the JSON response.
    ///
    /// # Errors
    /// Returns an error unless the status is a success and the body is a `T`.
    pub async fn post_form<T: DeserializeOwned>(&self, url: &Url, form: &[(&str, &str)]) -> Result<T, OutboundError> {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = self.client.post(url.clone()).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.call(url, request.body(body)).await
    }

    /// Sends a GET with a bearer token and parses the JSON response.
    ///
    /// # Errors
    /// Returns an error unless the status is a success and the body is a `T`.
    pub async fn get<T: DeserializeOwned>(&self, url: &Url, bearer: &Secret) -> Result<T, OutboundError> {
        self.call(url, self.client.get(url.clone()).bearer_auth(bearer.reveal())).await
    }

    /// Sends JSON with POST and these headers. Ignores the body of the response.
    ///
    /// # Errors
    /// Returns an error unless the status is a success.
    pub async fn post_json(&self, url: &Url, headers: &[(&str, &str)], body: Vec<u8>) -> Result<(), OutboundError> {
        let mut request = self.client.post(url.clone()).header(CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let result = self.send(url, request.body(body)).await.map(drop);
        self.log(result)
    }

    /// Sends a request, and returns the response, whatever its status.
    ///
    /// # Errors
    /// Returns an error for a redirect, and if the response is incomplete.
    pub(crate) async fn exchange(&self, call: Call<'_>) -> Result<Exchange, OutboundError> {
        let request = self.client.request(call.method, call.url.clone());
        let mut request = match call.credential {
            Credential::Bearer(token) => request.bearer_auth(token.reveal()),
            Credential::Basic { user, password } => request.basic_auth(user, Some(password.reveal())),
        };
        if let Some((name, value)) = call.header {
            request = request.header(name, value);
        }
        if let Some(body) = call.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_owned());
        }
        let exchange = async {
            let response = self.send_any(call.url, request).await?;
            let (status, retry_after) = (response.status().as_u16(), retry_after(response.headers()));
            Ok(Exchange { status, retry_after, body: self.read_body(response).await? })
        };
        self.log(exchange.await)
    }

    /// Sends a request with these headers, and returns the status, the headers and the body of the response, whatever its
    /// status.
    ///
    /// # Errors
    /// Returns an error for a redirect, and if the response is incomplete.
    pub(crate) async fn relay(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<(StatusCode, HeaderMap, Vec<u8>), OutboundError> {
        let exchange = async {
            let request = self.client.request(method, url.clone()).headers(headers).body(body);
            let mut response = self.send_any(url, request).await?;
            let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
            Ok((status, headers, self.read_body(response).await?))
        };
        self.log(exchange.await)
    }

    async fn call<T: DeserializeOwned>(&self, url: &Url, request: RequestBuilder) -> Result<T, OutboundError> {
        let response = self.execute(url, request).await;
        self.log(response)
    }

    fn log<T>(&self, result: Result<T, OutboundError>) -> Result<T, OutboundError> {
        if let Err(error) = &result {
            tracing::debug!(purpose = self.purpose, error = %error_chain(error), "outbound request failed");
        }
        result
    }

    async fn execute<T: DeserializeOwned>(&self, url: &Url, request: RequestBuilder) -> Result<T, OutboundError> {
        let response = self.send(url, request).await?;
        let body = self.read_body(response).await?;
        serde_json::from_slice(&body).map_err(|_| OutboundError::NotJson)
    }

    /// Sends a request, and returns the response if it is successful.
    async fn send(&self, url: &Url, request: RequestBuilder) -> Result<Response, OutboundError> {
        let response = self.send_any(url, request).await?;
        let status = response.status();
        if status.is_success() { Ok(response) } else { Err(OutboundError::Status(status.as_u16())) }
    }

    /// Sends a request, and returns the response unless it is a redirect.
    async fn send_any(&self, url: &Url, request: RequestBuilder) -> Result<Response, OutboundError> {
        if !self.allowed.contains(url) {
            return Err(OutboundError::NotAllowed);
        }
        let response = request.header(ACCEPT, "application/json").send().await.map_err(request_error)?;
        let status = response.status();
        if status.is_redirection() {
            return Err(OutboundError::Redirect(status.as_u16()));
        }
        Ok(response)
    }

    /// Reads the body and checks its actual size, because `Content-Length` is untrusted.
    async fn read_body(&self, mut response: Response) -> Result<Vec<u8>, OutboundError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(request_error)? {
            if chunk.len() > self.max_body_bytes - body.len() {
                return Err(OutboundError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// A request with a credential.
#[derive(Debug, Clone)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a Url,
    pub(crate) credential: Credential<'a>,
    /// An additional header.
    pub(crate) header: Option<(&'static str, &'a str)>,
    /// JSON.
    pub(crate) body: Option<&'a str>,
}

/// The credential of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Credential<'a> {
    Bearer(&'a Secret),
    /// HTTP Basic (RFC 7617).
    Basic {
        user: &'a str,
        password: &'a Secret,
    },
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) status: u16,
    /// The wait that `Retry-After` states.
    retry_after: Option<Duration>,
    body: Vec<u8>,
}

impl Exchange {
    /// Parses the body of a successful response.
    ///
    /// # Errors
    /// Returns [`OutboundError::Status`] or [`OutboundError::NotJson`].
    pub(crate) fn success<T: DeserializeOwned>(&self) -> Result<T, OutboundError> {
        if (200..300).contains(&self.status) { self.parse() } else { Err(OutboundError::Status(self.status)) }
    }

    /// Parses the body, whatever the status.
    ///
    /// # Errors
    /// Returns [`OutboundError::NotJson`].
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, OutboundError> {
        serde_json::from_slice(&self.body).map_err(|_| OutboundError::NotJson)
    }

    /// Returns the delay after which the request is repeated once. Only a 429 with a short `Retry-After` is repeated.
    pub(crate) fn retry_delay(&self) -> Option<Duration> {
        self.retry_after.filter(|wait| self.status == 429 && *wait <= MAX_RETRY_AFTER)
    }
}

/// Returns the wait that `Retry-After` states: a number of seconds, or a time, which is compared with the header `Date`
/// (RFC 9110 section 10.2.3). A time in the past is zero.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let value = text(RETRY_AFTER)?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let (until, now) = (DateTime::parse_from_rfc2822(value).ok()?, DateTime::parse_from_rfc2822(text(DATE)?).ok()?);
    Some((until - now).to_std().unwrap_or_default())
}

/// Returns the origin of a valid address.
pub(crate) fn origin(url: &Url) -> Result<Origin, OutboundConfigError> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(OutboundConfigError::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(OutboundConfigError::Userinfo);
    }
    Ok(url.origin())
}

fn request_error(error: reqwest::Error) -> OutboundError {
    if error.is_timeout() {
        OutboundError::Timeout
    } else {
        OutboundError::Unreachable(error_chain(&error.without_url()).to_string())
    }
}
