//! A call: its request, retries and response.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Client, Error, Secret, Upload, types};

/// The delays after a broken connection, or while the previous attempt is in progress.
const RETRY_DELAYS: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// The longest `Retry-After` that the client waits for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(3600);
/// The characters to encode in a path segment: all but the unreserved characters of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A prepared call. [`Call::send`] sends it.
pub struct Call<T> {
    client: Client,
    /// The operation id of the OpenAPI document. Empty if it is unknown.
    operation: &'static str,
    method: Method,
    path: Result<String, Error>,
    query: Vec<(&'static str, String)>,
    headers: Vec<(&'static str, String)>,
    body: Body,
    is_idempotent: bool,
    timeout: Duration,
    response: PhantomData<fn() -> T>,
}

/// A successful response.
struct Success {
    status: u16,
    body: Vec<u8>,
}

enum Body {
    None,
    Json(Value),
    Form(String),
    Upload(&'static str, Upload),
}

/// A response: the parsed value, to which it dereferences, and the JSON as received.
#[derive(Clone, PartialEq)]
pub struct Response<T> {
    pub value: T,
    /// Null for a response without a body.
    pub json: Value,
}

impl<T> Deref for Response<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Omits the JSON, because only the type hides its secrets.
impl<T: fmt::Debug> fmt::Debug for Response<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("value", &self.value).finish_non_exhaustive()
    }
}

/// Omits path, headers and body, which can contain secrets.
impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Call");
        debug.field("method", &self.method).field("operation", &self.operation).finish_non_exhaustive()
    }
}

impl<T> Call<T> {
    pub(crate) fn new(client: Client, operation: &'static str, method: Method, segments: &[&str]) -> Self {
        let mut path = Ok(client.base().path().trim_end_matches('/').to_owned());
        for segment in segments {
            // HTTP intermediaries resolve an empty segment, `.` and `..`, and would request another path.
            if matches!(*segment, "" | "." | "..") {
                path = Err(Error::InvalidArgument(format!("{segment:?} is not a valid name")));
            }
            if let Ok(path) = &mut path {
                path.push('/');
                path.extend(utf8_percent_encode(segment, SEGMENT));
            }
        }
        let (query, headers) = (Vec::new(), Vec::new());
        Self {
            client,
            operation,
            method,
            path,
            query,
            headers,
            body: Body::None,
            is_idempotent: false,
            timeout: REQUEST_TIMEOUT,
            response: PhantomData,
        }
    }

    /// Declares that the operation accepts an `Idempotency-Key`, so that it can be retried.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.is_idempotent = true;
        self
    }

    /// Sets the timeout of an attempt without an upload. The default is a minute.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Adds a parameter of the query, unless the value is `None`.
    #[must_use]
    pub fn query(mut self, name: &'static str, value: Option<&impl Display>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// Adds a header, unless the value is `None`.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: Option<&impl Display>) -> Self {
        self.headers.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// Sets a JSON body.
    #[must_use]
    pub fn json(mut self, body: &impl Serialize) -> Self {
        match serde_json::to_value(body) {
            Ok(json) => self.body = Body::Json(json),
            Err(error) => self.path = Err(Error::InvalidArgument(error.to_string())),
        }
        self
    }

    /// Sets a form as the body.
    #[must_use]
    pub fn form(mut self, fields: &[(&str, &str)]) -> Self {
        let encoded = |text: &str| utf8_percent_encode(text, SEGMENT).to_string();
        let pairs = fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
        self.body = Body::Form(pairs.collect::<Vec<_>>().join("&"));
        self
    }

    /// Sets a body that is not JSON.
    #[must_use]
    pub fn upload(mut self, content_type: &'static str, body: Upload) -> Self {
        self.body = Body::Upload(content_type, body);
        self
    }
}

impl<T: DeserializeOwned> Call<T> {
    /// Sends the call, and retries it if that is safe and may succeed. If the API rejects the credential and the source
    /// has another one, sends the call again.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn send(self) -> Result<Response<T>, Error> {
        let Success { status, body } = self.execute().await?;
        let unexpected = |reason: String| Error::Unexpected { status, reason };
        let json = parse_json(&body).ok_or_else(|| unexpected("it is not JSON".to_owned()))?;
        let value = T::deserialize(&json).map_err(|error| unexpected(error.to_string()))?;
        Ok(Response { value, json })
    }
}

impl<T> Call<T> {
    /// Sends the call like [`Call::send`], and returns the body of any content type.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn send_raw(self) -> Result<Vec<u8>, Error> {
        Ok(self.execute().await?.body)
    }

    async fn execute(mut self) -> Result<Success, Error> {
        let path = std::mem::replace(&mut self.path, Ok(String::new()))?;
        let key = if self.is_idempotent { Some(new_idempotency_key()?) } else { None };
        let can_retry = self.is_idempotent || matches!(self.method, Method::GET | Method::PUT);
        let mut sender = Sender { call: &self, path: &path, key: key.as_deref(), is_renewed: false };
        for (attempt, pause) in RETRY_DELAYS.into_iter().enumerate() {
            let outcome = sender.send().await;
            let wait =
                outcome.as_ref().err().filter(|_| can_retry).and_then(|error| retry_delay(error, attempt, pause));
            let Some(wait) = wait else { return outcome };
            tokio::time::sleep(wait).await;
        }
        sender.send().await
    }

    async fn attempt(&self, path: &str, key: Option<&str>, credential: Option<&Secret>) -> Result<Success, Error> {
        let mut url = self.client.base.clone();
        url.set_path(path);
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        let mut request = self.client.http.request(self.method.clone(), url).timeout(self.timeout);
        if let Some(credential) = credential {
            request = request.bearer_auth(credential.reveal());
        }
        for (name, value) in self.headers.iter().map(|(name, value)| (*name, value.as_str())) {
            request = request.header(name, value);
        }
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        request = match &self.body {
            Body::None => request,
            Body::Json(json) => request.json(json),
            Body::Form(form) => request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form.clone()),
            Body::Upload(content_type, upload) => request
                .timeout(UPLOAD_TIMEOUT)
                .header(CONTENT_TYPE, *content_type)
                .header(CONTENT_LENGTH, upload.bytes())
                .body(upload.open().map_err(Error::File)?),
        };
        read_response(request.send().await.map_err(Error::from_send)?).await
    }
}

/// Sends the attempts of a call.
struct Sender<'a, T> {
    call: &'a Call<T>,
    path: &'a str,
    key: Option<&'a str>,
    is_renewed: bool,
}

impl<T> Sender<'_, T> {
    /// Sends an attempt. If the API rejects the credential, renews it and repeats the attempt, once per call. This is
    /// safe for every method, because the API did not execute the request.
    async fn send(&mut self) -> Result<Success, Error> {
        let Self { call, path, key, .. } = *self;
        let Some(credential) = &call.client.credential else { return call.attempt(path, key, None).await };
        let present = credential.present();
        let outcome = call.attempt(path, key, Some(&present)).await;
        let is_rejected = outcome.as_ref().err().and_then(Error::status) == Some(401);
        if self.is_renewed || !is_rejected {
            return outcome;
        }
        let renewed = credential.renew(&present).await?;
        self.is_renewed = true;
        match renewed {
            Some(renewed) => call.attempt(path, key, Some(&renewed)).await,
            None => outcome,
        }
    }
}

/// Generates a random idempotency key.
fn new_idempotency_key() -> Result<String, Error> {
    let mut bytes = [0; 18];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::Setup(format!("no random bytes for an idempotency key: {error}")))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Returns the delay before a retry, or `None` if the call must not be retried.
fn retry_delay(error: &Error, attempt: usize, pause: Duration) -> Option<Duration> {
    match error {
        // The API does not accept connections. Retry only if an earlier attempt reached the API, because the API may
        // then be restarting.
        Error::Unreachable(error) if error.is_connect() && attempt == 0 => None,
        // A retry would wait for the same timeout again.
        Error::Unreachable(error) if error.is_timeout() => None,
        Error::Unreachable(_) => Some(pause),
        Error::Api { status: 429 | 503, retry_after, .. } => (*retry_after).filter(|wait| *wait <= MAX_RETRY_AFTER),
        // The previous attempt, whose connection broke, is still in progress.
        Error::Api { status: 409, envelope, .. } if envelope.code == "idempotency_in_progress" => Some(pause),
        _ => None,
    }
}

/// Converts the error body of OAuth (RFC 6749 section 5.2) to the envelope of the other operations.
fn oauth_error(json: &Value) -> Option<Value> {
    let code = json.get("error")?.as_str()?;
    let message = json.get("error_description").and_then(Value::as_str).unwrap_or(code);
    Some(serde_json::json!({ "code": code, "message": message, "details": null, "requestId": "" }))
}

async fn read_response(response: reqwest::Response) -> Result<Success, Error> {
    let status = response.status();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let body = Vec::from(response.bytes().await.map_err(Error::unreachable)?);
    if status.is_success() {
        return Ok(Success { status: status.as_u16(), body });
    }
    let unexpected = |reason: &str| Error::Unexpected { status: status.as_u16(), reason: reason.to_owned() };
    let json = parse_json(&body).ok_or_else(|| unexpected("it is not JSON"))?;
    let envelope = serde_json::from_value::<types::Error>(oauth_error(&json).unwrap_or_else(|| json.clone()));
    let envelope = Box::new(envelope.map_err(|_| unexpected("it is not an error envelope of this API"))?);
    let retry_after = retry_after.map(Duration::from_secs);
    Err(Error::Api { status: status.as_u16(), envelope, json, retry_after })
}

/// Parses a body, which may be absent.
fn parse_json(body: &[u8]) -> Option<Value> {
    if body.is_empty() { Some(Value::Null) } else { serde_json::from_slice(body).ok() }
}
