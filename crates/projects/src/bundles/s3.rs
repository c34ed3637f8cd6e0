//! A bucket.

use std::sync::Arc;
use std::time::Duration;

use kernel::Secret;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, ObjectStore, Result, RetryConfig};

/// A bucket of S3 or of a server that speaks its protocol, and who asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3 {
    pub bucket: String,
    /// Objects lie under this path; empty for the whole bucket.
    pub prefix: String,
    pub region: String,
    /// Another server than Amazon's. Only where it says `http:` is plain http spoken.
    pub endpoint: Option<String>,
    pub access_key_id: String,
    pub secret_access_key: Secret,
    pub session_token: Option<Secret>,
}

/// How long the other side may say nothing. A whole answer may take as long as it likes: it may be a large bundle.
const SILENCE: Duration = Duration::from_secs(60);

/// For how long a request that failed on the other side is tried again.
const RETRY: Duration = Duration::from_secs(30);

impl S3 {
    pub(super) fn connect(&self) -> Result<Arc<dyn ObjectStore>> {
        let plain = self.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http:"));
        let client = ClientOptions::new()
            .with_allow_http(plain)
            .with_connect_timeout(Duration::from_secs(5))
            .with_read_timeout(SILENCE)
            .with_timeout_disabled();
        let retry = RetryConfig { retry_timeout: RETRY, max_retries: 5, ..RetryConfig::default() };
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
