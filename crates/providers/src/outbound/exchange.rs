//! Requests with a credential, and their responses.

use kernel::Secret;
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use url::Url;

use super::error::OutboundError;

/// A request with a credential.
#[derive(Debug)]
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
#[derive(Debug)]
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
    pub(super) body: Vec<u8>,
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

    /// Parses the body as an object, whatever the status. Rejects arrays, because serde also deserializes structures
    /// from arrays: an empty array would be read as an object without records.
    ///
    /// # Errors
    /// Returns [`OutboundError::NotJson`].
    pub(crate) fn object<T: DeserializeOwned>(&self) -> Result<T, OutboundError> {
        let json: Box<RawValue> = self.parse()?;
        let json = Some(json.get()).filter(|json| json.starts_with('{')).ok_or(OutboundError::NotJson)?;
        serde_json::from_str(json).map_err(|_| OutboundError::NotJson)
    }
}
