//! The HTTP client for configured external origins.
//!
//! It calls only the origins that settings name or a fixed rule allows, so that a response or a user cannot direct it
//! to this host or an internal network (SSRF). Operators may configure `http` and private addresses. `https` is always
//! verified. The client does not follow redirects, because they would forward credentials.

mod error;
mod exchange;

use std::time::Duration;

use kernel::{Secret, error_chain};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use rustls::RootCertStore;
use serde::de::DeserializeOwned;
use url::{Origin, Url, form_urlencoded};
use webhooks::sns::CertificateHosts;

use self::error::request_error;
use crate::tls;

pub use self::error::{OutboundConfigError, OutboundError};
pub(crate) use self::exchange::{Call, Credential, Exchange};

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
    limits: Limits,
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
        Ok(Self { purpose, allowed, limits, client })
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
            Ok(Exchange { status: response.status().as_u16(), body: self.read_body(response).await? })
        };
        self.log(exchange.await)
    }

    /// Sends a request with these headers, and returns the status, the headers and the body of the response, whatever
    /// its status. Does not repeat the request: the nonce of a certificate authority is valid only once.
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
            let mut response = self.accept(url, async { accept_json(request).send().await }).await?;
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

    /// Sends a request, repeats it once after a 429, and returns the response unless it is a redirect.
    async fn send_any(&self, url: &Url, request: RequestBuilder) -> Result<Response, OutboundError> {
        self.accept(url, retry::send(accept_json(request), self.limits.timeout)).await
    }

    /// Waits for the response if the origin is allowed. Accepts it unless it is a redirect.
    async fn accept(
        &self,
        url: &Url,
        response: impl Future<Output = reqwest::Result<Response>>,
    ) -> Result<Response, OutboundError> {
        if !self.allowed.contains(url) {
            return Err(OutboundError::NotAllowed);
        }
        let response = response.await.map_err(request_error)?;
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
            if chunk.len() > self.limits.max_body_bytes - body.len() {
                return Err(OutboundError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

fn accept_json(request: RequestBuilder) -> RequestBuilder {
    request.header(ACCEPT, "application/json")
}

/// Returns an http or https URL with these segments added to its path. An empty last segment is a trailing slash.
pub(crate) fn with_path(base: &Url, segments: impl IntoIterator<Item: AsRef<str>>) -> Url {
    let mut url = base.clone();
    // A URL that is http or https has path segments.
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
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
