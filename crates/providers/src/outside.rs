//! The one HTTP client for calls to the outside.
//!
//! It calls the origins that settings name and no other, so no answer and no user can point it somewhere else: not at
//! this machine, not at the network behind it. Where an operator names an `http` or a private address, that was their
//! choice; `https` is always verified. Redirects are not followed, since a credential would go along.

use std::error::Error;
use std::time::Duration;

use kernel::Secret;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use url::{Origin, Url, form_urlencoded};

use crate::tls;

/// How long a call may take, and how much may come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Until there is a connection, TLS included.
    pub connect: Duration,
    /// From the first look-up of the name to the last byte of the answer.
    pub whole: Duration,
    /// Bytes of the answer's body, counted as they come.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(3), whole: Duration::from_secs(10), body: 1024 * 1024 }
    }
}

/// A client for one purpose.
#[derive(Debug, Clone)]
pub struct Outside {
    purpose: &'static str,
    origins: Vec<Origin>,
    body: usize,
    client: Client,
}

/// Why there is no such client. Shows no address.
#[derive(Debug, thiserror::Error)]
pub enum InvalidOutside {
    /// Only these two are spoken.
    #[error("an address is neither http nor https")]
    Scheme,
    /// Credentials have settings of their own.
    #[error("an address holds a user or a password")]
    Userinfo,
    /// The libraries below could not be set up.
    #[error("no client: {0}")]
    Client(String),
}

/// What came of a call instead of an answer. Shows no address, credential or body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutsideError {
    /// The address is of no origin that the client was made for; nothing was sent.
    #[error("the address is of no origin that a setting names")]
    NotAllowed,
    /// No connection, no trust in its certificate, or it broke.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// It took longer than [`Limits`] allow.
    #[error("no answer in time")]
    Timeout,
    /// A status that is neither success nor a redirect.
    #[error("answered {0}")]
    Refused(u16),
    /// A redirect, which is not followed.
    #[error("answered with a redirect, {0}")]
    Redirected(u16),
    /// More than [`Limits::body`].
    #[error("the answer is too large")]
    TooLarge,
    /// Not JSON, or not of the shape that was asked for.
    #[error("the answer is not the JSON that was asked for")]
    NotJson,
}

impl Outside {
    /// A client that may call these addresses' origins (scheme, host and port), within the product's limits.
    ///
    /// # Errors
    /// An address that is not http or https, or holds credentials.
    pub fn new<'a>(purpose: &'static str, origins: impl IntoIterator<Item = &'a Url>) -> Result<Self, InvalidOutside> {
        Self::within(purpose, origins, Limits::default())
    }

    /// The same within other limits.
    ///
    /// # Errors
    /// Those of [`Outside::new`].
    pub fn within<'a>(
        purpose: &'static str,
        origins: impl IntoIterator<Item = &'a Url>,
        limits: Limits,
    ) -> Result<Self, InvalidOutside> {
        let origins = origins.into_iter().map(origin).collect::<Result<_, _>>()?;
        let tls = tls::client_config().map_err(|error| InvalidOutside::Client(error.to_string()))?;
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent("svc")
            .redirect(Policy::none())
            .no_proxy()
            .connect_timeout(limits.connect)
            .timeout(limits.whole)
            // Calls are rare and some must not be made twice: each has a connection of its own.
            .pool_max_idle_per_host(0)
            .retry(reqwest::retry::never())
            .build()
            .map_err(|error| InvalidOutside::Client(chain(&error)))?;
        Ok(Self { purpose, origins, body: limits.body, client })
    }

    /// Posts a form and reads JSON.
    ///
    /// # Errors
    /// Everything but a success whose body is a `T`.
    pub async fn post_form<T: DeserializeOwned>(&self, url: &Url, form: &[(&str, &str)]) -> Result<T, OutsideError> {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = self.client.post(url.clone()).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.call(url, request.body(body)).await
    }

    /// Gets JSON with a bearer token.
    ///
    /// # Errors
    /// Everything but a success whose body is a `T`.
    pub async fn get<T: DeserializeOwned>(&self, url: &Url, bearer: &Secret) -> Result<T, OutsideError> {
        self.call(url, self.client.get(url.clone()).bearer_auth(bearer.reveal())).await
    }

    async fn call<T: DeserializeOwned>(&self, url: &Url, request: RequestBuilder) -> Result<T, OutsideError> {
        let answer = self.answer(url, request).await;
        if let Err(error) = &answer {
            tracing::debug!(purpose = self.purpose, %error, "a call to the outside failed");
        }
        answer
    }

    async fn answer<T: DeserializeOwned>(&self, url: &Url, request: RequestBuilder) -> Result<T, OutsideError> {
        if !self.origins.contains(&url.origin()) {
            return Err(OutsideError::NotAllowed);
        }
        let response = request.header(ACCEPT, "application/json").send().await.map_err(failed)?;
        let status = response.status();
        if status.is_redirection() {
            return Err(OutsideError::Redirected(status.as_u16()));
        }
        if !status.is_success() {
            return Err(OutsideError::Refused(status.as_u16()));
        }
        let body = self.body(response).await?;
        serde_json::from_slice(&body).map_err(|_| OutsideError::NotJson)
    }

    /// Counted while it comes: the announced length is the other side's word.
    async fn body(&self, mut response: Response) -> Result<Vec<u8>, OutsideError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if chunk.len() > self.body - body.len() {
                return Err(OutsideError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// The origin of an address that may be named.
pub(crate) fn origin(url: &Url) -> Result<Origin, InvalidOutside> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(InvalidOutside::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(InvalidOutside::Userinfo);
    }
    Ok(url.origin())
}

fn failed(error: reqwest::Error) -> OutsideError {
    if error.is_timeout() { OutsideError::Timeout } else { OutsideError::Unreachable(chain(&error.without_url())) }
}

/// An error and what it came from, on one line.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
