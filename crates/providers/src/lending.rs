//! The model-lending service, which receives a report of each ended grant.

use std::fmt;

use kernel::Time;
use serde_json::json;
use url::Url;
use webhooks::SigningKey;

use crate::outbound::{Limits, OutboundClient, OutboundConfigError, OutboundError};

/// The client of the model-lending service.
pub struct Lending {
    url: Url,
    key: SigningKey,
    client: OutboundClient,
}

impl Lending {
    /// Creates a client. `url` is the base URL of the service.
    ///
    /// # Errors
    /// Returns an error for an address that is not http or https, or contains credentials.
    pub fn new(url: &Url, key: SigningKey) -> Result<Self, OutboundConfigError> {
        Self::with_limits(url, key, Limits::default())
    }

    /// Creates a client with custom limits.
    ///
    /// # Errors
    /// Returns the errors of [`Lending::new`].
    pub fn with_limits(url: &Url, key: SigningKey, limits: Limits) -> Result<Self, OutboundConfigError> {
        let client = OutboundClient::with_limits("model lending", [url], limits)?;
        let mut url = url.clone();
        let path = format!("{}/revocations", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Ok(Self { url, key, client })
    }

    /// Reports the end of a grant. `message_id` is the same in every attempt.
    ///
    /// # Errors
    /// Returns an error unless the service responds with a 2xx status.
    pub async fn revoke(&self, message_id: &str, sid: &str, now: Time) -> Result<(), OutboundError> {
        let body = json!({ "sid": sid }).to_string();
        let timestamp = now.unix_seconds().to_string();
        let signature = self.key.sign(message_id, &timestamp, body.as_bytes());
        let headers = [
            ("webhook-id", message_id),
            ("webhook-timestamp", timestamp.as_str()),
            ("webhook-signature", signature.as_str()),
        ];
        self.client.post_json(&self.url, &headers, body.into_bytes()).await
    }
}

impl fmt::Debug for Lending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lending").finish_non_exhaustive()
    }
}
