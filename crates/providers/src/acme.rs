//! Certificate authorities that implement ACME (RFC 8555), with renewal information (RFC 9773).
//!
//! The messages of an authority reach users, because they explain why it does not issue. They are truncated.

mod session;
mod transport;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use instant_acme::{Account, AccountCredentials, ExternalAccountKey, NewAccount};
use kernel::Secret;
use serde::Deserialize;
use url::Url;

pub use self::session::AcmeSession;
use self::transport::Transport;
use crate::{Limits, OutboundClient, OutboundConfigError, OutboundError};

/// The limits of a call. An operation needs up to four calls.
const LIMITS: Limits =
    Limits { connect_timeout: Duration::from_secs(3), timeout: Duration::from_secs(10), max_body_bytes: 256 * 1024 };

/// The configuration of an authority.
#[derive(Debug, Clone)]
pub struct AcmeConfig {
    /// The URL of the directory.
    pub directory: Url,
    /// The mail address that the authority may notify.
    pub contact: Option<String>,
    /// The binding to an account that exists outside ACME (RFC 8555 section 7.3.4).
    pub binding: Option<AccountBinding>,
    /// Certificate authorities that are trusted for the directory, in addition to those of the system. PEM.
    pub ca: Option<String>,
}

/// An external account binding.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountBinding {
    key_id: String,
    key: Vec<u8>,
}

impl AccountBinding {
    /// Creates a binding with an HMAC key in base64url. Returns `None` if the key is malformed or empty.
    #[must_use]
    pub fn new(key_id: String, key: &str) -> Option<Self> {
        let key = URL_SAFE_NO_PAD.decode(key.trim_end_matches('=')).ok().filter(|key| !key.is_empty())?;
        Some(Self { key_id, key })
    }
}

impl fmt::Debug for AccountBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountBinding").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AcmeError {
    /// No response, an invalid response, or an internal error of the authority.
    #[error("{0}")]
    Unavailable(String),
    /// The authority limits the rate of this request.
    #[error("{message}")]
    RateLimited {
        message: String,
        /// The seconds in `Retry-After`.
        retry_after: Option<i64>,
    },
    /// The authority accepts no requests at the moment: 503, or a limit of the rate of directories and nonces.
    #[error("{message}")]
    Overloaded {
        message: String,
        /// The seconds in `Retry-After`.
        retry_after: Option<i64>,
    },
    /// The authority does not know the account, or has deactivated or revoked it.
    #[error("{0}")]
    Account(String),
    /// The order does not exist.
    #[error("the order does not exist")]
    NoSuchOrder,
    /// The authority refused the request.
    #[error("{0}")]
    Refused(String),
}

/// The status of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcmeStatus {
    Pending,
    Ready,
    Processing,
    Valid,
    Invalid,
}

/// A type of challenge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcmeChallengeType {
    Dns01,
    Http01,
}

/// A challenge with its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeChallenge {
    pub kind: AcmeChallengeType,
    pub token: String,
    /// The TXT record of DNS-01, or the key authorization of HTTP-01.
    pub response: String,
    /// Whether the authority was not asked to validate it yet.
    pub is_pending: bool,
}

/// An order for one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeOrder {
    pub url: String,
    pub status: AcmeStatus,
    /// The challenges of its authorization. Empty if the authorization is already valid.
    pub challenges: Vec<AcmeChallenge>,
    /// The reason of [`AcmeStatus::Invalid`].
    pub error: Option<String>,
    /// The seconds after which the authority expects the next request for the order.
    pub retry_after: Option<i64>,
}

/// An authority. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Acme {
    config: Arc<AcmeConfig>,
    client: OutboundClient,
}

/// The parts of a directory that the library does not read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Directory {
    renewal_info: Option<String>,
    meta: DirectoryMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DirectoryMeta {
    caa_identities: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RenewalInfo {
    suggested_window: Window,
}

#[derive(Debug, Deserialize)]
struct Window {
    start: DateTime<Utc>,
    end: DateTime<Utc>,
}

impl Acme {
    /// Creates the client of an authority. It calls only the origin of the directory.
    ///
    /// # Errors
    /// Returns an error for an address that is not http or https, and for a malformed certificate authority.
    pub fn new(config: AcmeConfig) -> Result<Self, OutboundConfigError> {
        let client = OutboundClient::with_ca("acme", &config.directory, config.ca.as_deref(), LIMITS)?;
        Ok(Self { config: Arc::new(config), client })
    }

    /// Returns the URL of the directory.
    #[must_use]
    pub fn directory(&self) -> &str {
        self.config.directory.as_str()
    }

    /// Creates an account, and agrees to the terms of service. Returns the credentials as JSON.
    ///
    /// # Errors
    /// Returns [`AcmeError`].
    pub async fn create_account(&self) -> Result<Secret, AcmeError> {
        let transport = self.transport();
        let contact: Vec<String> = self.config.contact.iter().map(|address| format!("mailto:{address}")).collect();
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let binding = self.config.binding.as_ref();
        let binding = binding.map(|binding| ExternalAccountKey::new(binding.key_id.clone(), &binding.key));
        let builder = Account::builder_with_http(Box::new(transport.clone()));
        let created = builder.create(&new, self.directory().to_owned(), binding.as_ref()).await;
        let (_, credentials) = created.map_err(|error| transport.classify(error))?;
        let credentials = serde_json::to_string(&credentials);
        credentials.map(Secret::new).map_err(|error| AcmeError::Unavailable(error.to_string()))
    }

    /// Starts a session with the credentials of [`Acme::create_account`].
    ///
    /// # Errors
    /// Returns [`AcmeError`].
    pub async fn open(&self, credentials: &Secret) -> Result<AcmeSession, AcmeError> {
        let transport = self.transport();
        let credentials: AccountCredentials = serde_json::from_str(credentials.reveal())
            .map_err(|_| AcmeError::Account("the stored credentials are malformed".to_owned()))?;
        let builder = Account::builder_with_http(Box::new(transport.clone()));
        let account = builder.from_credentials(credentials).await.map_err(|error| transport.classify(error))?;
        let caa_identities = self.read_directory().await?.meta.caa_identities;
        Ok(AcmeSession::new(account, transport, caa_identities))
    }

    /// Returns the begin and the end of the time range in which the certificate should be renewed. Returns `None` if
    /// the authority offers no renewal information.
    ///
    /// # Errors
    /// Returns [`AcmeError`].
    pub async fn renewal_window(&self, id: &str) -> Result<Option<(DateTime<Utc>, DateTime<Utc>)>, AcmeError> {
        let Some(url) = self.read_directory().await?.renewal_info else { return Ok(None) };
        let mut url: Url =
            url.parse().map_err(|_| AcmeError::Unavailable("the directory contains no URL".to_owned()))?;
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().push(id),
            Err(()) => return Ok(None),
        };
        let info: RenewalInfo = self.read(&url).await?;
        let Window { start, end } = info.suggested_window;
        Ok((start <= end).then_some((start, end)))
    }

    async fn read_directory(&self) -> Result<Directory, AcmeError> {
        self.read(&self.config.directory).await
    }

    async fn read<T: serde::de::DeserializeOwned>(&self, url: &Url) -> Result<T, AcmeError> {
        let body = self.client.get_bytes(url).await.map_err(|error| match error {
            OutboundError::Status(429 | 503) => AcmeError::Overloaded { message: error.to_string(), retry_after: None },
            error => AcmeError::Unavailable(error.to_string()),
        })?;
        serde_json::from_slice(&body)
            .map_err(|_| AcmeError::Unavailable("the response is not the expected JSON".into()))
    }

    fn transport(&self) -> Transport {
        Transport::new(self.client.clone())
    }
}
