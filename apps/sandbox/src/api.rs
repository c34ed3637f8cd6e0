//! Calls of the service's API, for the pages that use it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

/// The API of the service.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    /// The base URL.
    pub base: String,
    client: Client,
}

/// A call that failed, with a text for a page.
#[derive(Debug)]
pub(crate) struct ApiError(pub String);

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Api {
    pub fn new(base: &str) -> Self {
        // Trust no certificates: a service on a developer's machine is served without TLS.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let client = Client::builder().tls_backend_preconfigured(tls).timeout(Duration::from_secs(10));
        // A proxy of the environment cannot reach a service on this machine. A followed redirect would turn the POST of a
        // webhook into a GET.
        let client = client.no_proxy().redirect(Policy::none()).build().unwrap();
        Self { base: base.trim_end_matches('/').to_owned(), client }
    }

    /// Sends a GET for a path of the API or for an absolute URL.
    pub async fn get(&self, path: &str, bearer: Option<&str>) -> Result<Value, ApiError> {
        send(self.request(Method::GET, path, bearer)).await
    }

    /// Sends a POST with JSON.
    pub async fn post(&self, path: &str, bearer: Option<&str>, body: &Value) -> Result<Value, ApiError> {
        send(self.request(Method::POST, path, bearer).json(body)).await
    }

    /// Sends a POST with a form.
    pub async fn post_form(&self, path: &str, form: &[(&str, &str)]) -> Result<Value, ApiError> {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = self.request(Method::POST, path, None);
        send(request.header("content-type", "application/x-www-form-urlencoded").body(body)).await
    }

    /// Sends a POST with bytes to an absolute URL. Returns the status and the body, whatever the status.
    pub async fn post_bytes(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<(u16, String), ApiError> {
        let mut request = self.client.post(url).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let failed = |error: reqwest::Error| ApiError(format!("no response: {error}"));
        let response = request.send().await.map_err(failed)?;
        Ok((response.status().as_u16(), response.text().await.map_err(failed)?))
    }

    fn request(&self, method: Method, path: &str, bearer: Option<&str>) -> RequestBuilder {
        let url = if path.starts_with('/') { format!("{}{path}", self.base) } else { path.to_owned() };
        let request = self.client.request(method, url);
        match bearer {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }
}

/// Sends a request and returns the JSON of the response, which is null for an empty body.
async fn send(request: RequestBuilder) -> Result<Value, ApiError> {
    let unreachable = |error: reqwest::Error| ApiError(format!("The service did not respond: {error}"));
    let response = request.send().await.map_err(unreachable)?;
    let (status, body) = (response.status(), response.bytes().await.map_err(unreachable)?);
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    if status.is_success() {
        return Ok(value);
    }
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    let message = text("message").or_else(|| text("error_description")).unwrap_or_else(|| "no message".to_owned());
    let code = text("code").or_else(|| text("error")).unwrap_or_else(|| "no code".to_owned());
    Err(ApiError(format!("The service responded with status {}: {message} ({code})", status.as_u16())))
}
