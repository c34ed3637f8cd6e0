//! The settings of the control plane's address, and of the credential for it.

use reqwest::Url;
use reqwest::header::HeaderValue;
use settings::{Error, Secret, Setting};

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
