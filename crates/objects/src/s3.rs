//! The connection to a bucket.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, ObjectStore, Result, RetryConfig};
use settings::Secret;

/// The bucket of S3, or of a server that implements its protocol, and the credentials for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Config {
    pub bucket: String,
    /// The path of all objects; empty for the root of the bucket.
    pub prefix: String,
    pub region: String,
    /// The URL of a server other than Amazon's. With an `http:` URL, the connection does not use TLS.
    pub endpoint: Option<String>,
    pub access_key_id: String,
    pub secret_access_key: Secret,
    pub session_token: Option<Secret>,
    pub timeouts: Timeouts,
}

/// The timeouts of requests to a bucket. A whole request has no timeout, because it may transfer a large object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// The longest wait for the next data of a response.
    pub read: Duration,
    /// A failed request is retried only during this time.
    pub retry: Duration,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl S3Config {
    pub(crate) fn connect(&self) -> Result<Arc<dyn ObjectStore>> {
        let plain = self.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http:"));
        let client = ClientOptions::new()
            .with_allow_http(plain)
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_read_timeout(self.timeouts.read)
            .with_timeout_disabled();
        let retry = RetryConfig { retry_timeout: self.timeouts.retry, max_retries: 5, ..RetryConfig::default() };
        let mut bucket = AmazonS3Builder::new()
            .with_bucket_name(&self.bucket)
            .with_region(&self.region)
            .with_access_key_id(&self.access_key_id)
            .with_secret_access_key(self.secret_access_key.reveal())
            .with_client_options(client)
            .with_retry(retry);
        if let Some(endpoint) = &self.endpoint {
            bucket = bucket.with_endpoint(endpoint);
        }
        if let Some(token) = &self.session_token {
            bucket = bucket.with_token(token.reveal());
        }
        Ok(Arc::new(PrefixStore::new(bucket.build()?, Path::parse(&self.prefix)?)))
    }
}
