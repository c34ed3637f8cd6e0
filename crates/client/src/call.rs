//! One call: what is sent, how often, and what comes back.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Client, Error, Upload, types};

/// How long to wait before each further attempt, where the API does not say.
const AGAIN: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// The longest that the API's own word for it is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(60);
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(3600);
/// What RFC 3986 leaves unreserved.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A call that can be sent. Nothing happens before [`Call::send`].
pub struct Call<T> {
    client: Client,
    /// As the API's document calls it; empty where that is not known.
    operation: &'static str,
    method: Method,
    path: Result<String, Error>,
    query: Vec<(&'static str, String)>,
    headers: Vec<(&'static str, String)>,
    body: Body,
    once: bool,
    answer: PhantomData<fn() -> T>,
}

enum Body {
    None,
    Json(Value),
    Upload(&'static str, Upload),
}

/// What the API answered: as the type that was known, to which this dereferences, and as it came.
#[derive(Clone, PartialEq)]
pub struct Answer<T> {
    pub value: T,
    /// Null for an answer without a body.
    pub json: Value,
}

impl<T> Deref for Answer<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// What came may hold secrets that only the type knows of.
impl<T: fmt::Debug> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("value", &self.value).finish_non_exhaustive()
    }
}

/// Path, headers and body may hold secrets.
impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Call");
        shown.field("method", &self.method).field("operation", &self.operation).finish_non_exhaustive()
    }
}

impl<T> Call<T> {
    pub(crate) fn new(client: Client, operation: &'static str, method: Method, segments: &[&str]) -> Self {
        let mut path = Ok(client.base().path().trim_end_matches('/').to_owned());
        for segment in segments {
            // A client in the middle would resolve these, and ask for something else.
            if matches!(*segment, "" | "." | "..") {
                path = Err(Error::Argument(format!("{segment:?} is no name")));
            }
            if let Ok(path) = &mut path {
                path.push('/');
                path.extend(utf8_percent_encode(segment, SEGMENT));
            }
        }
        let (query, headers) = (Vec::new(), Vec::new());
        Self { client, operation, method, path, query, headers, body: Body::None, once: false, answer: PhantomData }
    }

    /// Whether the operation takes an `Idempotency-Key`: then it may be sent again.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }

    pub(crate) fn query(mut self, name: &'static str, value: Option<&impl Display>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: Option<&impl Display>) -> Self {
        self.headers.extend(value.map(|value| (name, value.to_string())));
        self
    }

    pub(crate) fn json(mut self, body: &impl Serialize) -> Self {
        match serde_json::to_value(body) {
            Ok(json) => self.body = Body::Json(json),
            Err(error) => self.path = Err(Error::Argument(error.to_string())),
        }
        self
    }

    pub(crate) fn upload(mut self, content_type: &'static str, body: Upload) -> Self {
        self.body = Body::Upload(content_type, body);
        self
    }
}

impl<T: DeserializeOwned> Call<T> {
    /// Sends it, again where that is safe and may help.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn send(mut self) -> Result<Answer<T>, Error> {
        let path = std::mem::replace(&mut self.path, Ok(String::new()))?;
        let key = if self.once { Some(key()?) } else { None };
        let repeatable = self.once || matches!(self.method, Method::GET | Method::PUT);
        for (attempt, pause) in AGAIN.into_iter().enumerate() {
            let outcome = self.attempt(&path, key.as_deref()).await;
            let wait = outcome.as_ref().err().filter(|_| repeatable).and_then(|error| again(error, attempt, pause));
            let Some(wait) = wait else { return outcome };
            tokio::time::sleep(wait).await;
        }
        self.attempt(&path, key.as_deref()).await
    }

    async fn attempt(&self, path: &str, key: Option<&str>) -> Result<Answer<T>, Error> {
        let mut url = self.client.base.clone();
        url.set_path(path);
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        let mut request = self.client.http.request(self.method.clone(), url).timeout(TIMEOUT);
        if let Some(credential) = &self.client.credential {
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
            Body::Upload(content_type, upload) => request
                .timeout(UPLOAD_TIMEOUT)
                .header(CONTENT_TYPE, *content_type)
                .header(CONTENT_LENGTH, upload.bytes())
                .body(upload.open().map_err(Error::File)?),
        };
        read(request.send().await.map_err(Error::unreachable)?).await
    }
}

/// A key that nobody else draws.
fn key() -> Result<String, Error> {
    let mut bytes = [0; 18];
    getrandom::fill(&mut bytes).map_err(|error| Error::Argument(format!("no randomness: {error}")))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// How long to wait before the call is sent again; none for one that is over.
fn again(error: &Error, attempt: usize, pause: Duration) -> Option<Duration> {
    match error {
        // Nobody is there: the next attempt tells the same, unless somebody was there a moment ago.
        Error::Unreachable(error) if error.is_connect() && attempt == 0 => None,
        // Whoever waited that long is not to wait as long again, a few times.
        Error::Unreachable(error) if error.is_timeout() || error.is_builder() => None,
        Error::Unreachable(_) => Some(pause),
        Error::Refused { status: 503, retry_after, .. } => (*retry_after).filter(|wait| *wait <= PATIENCE),
        // The attempt before, whose connection broke, is still being carried out.
        Error::Refused { status: 409, envelope, .. } if envelope.code == "idempotency_in_progress" => Some(pause),
        _ => None,
    }
}

async fn read<T: DeserializeOwned>(response: Response) -> Result<Answer<T>, Error> {
    let status = response.status();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let bytes = response.bytes().await.map_err(Error::unreachable)?;
    let unexpected = |what: String| Error::Unexpected { status: status.as_u16(), what };
    let json = if bytes.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&bytes).map_err(|_| unexpected("it is not JSON".to_owned()))?
    };
    if status.is_success() {
        let value = T::deserialize(&json).map_err(|error| unexpected(error.to_string()))?;
        return Ok(Answer { value, json });
    }
    let envelope = serde_json::from_value::<types::Error>(json.clone());
    let envelope = Box::new(envelope.map_err(|_| unexpected("it is no failure of this API".to_owned()))?);
    let retry_after = retry_after.map(Duration::from_secs);
    Err(Error::Refused { status: status.as_u16(), envelope, json, retry_after })
}
