//! The address of the control plane, the credential for it, and the client.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};
use settings::{Error, Secret, Setting};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the base address in a URL, without a trailing slash. It is logged, so the URL must not contain credentials.
///
/// # Errors
/// Returns an error if the URL is not an http or https URL, or has more parts than a base address.
pub fn base_address<T>(setting: &Setting<T>, url: &Url) -> Result<String, Error> {
    let is_base = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if is_base {
        Ok(url.as_str().trim_end_matches('/').to_owned())
    } else {
        Err(setting.malformed("it must be an http or https URL without credentials, query and fragment"))
    }
}

/// Returns the `Authorization` header with a credential. It is marked as sensitive, so `Debug` does not show it.
///
/// # Errors
/// Returns an error if a header cannot contain the credential.
pub fn bearer<T>(setting: &Setting<T>, credential: &Secret) -> Result<HeaderValue, Error> {
    let mut header = HeaderValue::from_str(&format!("Bearer {}", credential.reveal()))
        .map_err(|_| setting.malformed("it contains a character that is not allowed in a header"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Returns the builder of a client that sends this `Authorization` header. It follows no redirects and uses no proxy,
/// so that the credential is sent only to the configured address. The caller sets the timeouts of requests.
pub fn client_builder(authorization: HeaderValue) -> ClientBuilder {
    Client::builder()
        .default_headers(HeaderMap::from_iter([(AUTHORIZATION, authorization)]))
        .redirect(Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
}
