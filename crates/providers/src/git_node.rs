//! The internal listener of the git node, which reads the contents of repositories.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kernel::Secret;
use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use crate::outbound::{Call, Credential, Limits, OutboundClient, with_path};

const LIMITS: Limits = Limits {
    connect_timeout: Duration::from_secs(2),
    timeout: Duration::from_secs(8),
    // The node limits each list to 8 MiB of JSON, and a response has at most two. A file of 1 MiB needs at most 6 MiB,
    // even if each byte becomes an escape sequence in JSON.
    max_body_bytes: 20 * 1024 * 1024,
};

/// A client of the git node, whose address may change.
#[derive(Debug, Default)]
pub struct GitNodeClient {
    last: Mutex<Option<(Url, OutboundClient)>>,
}

/// An error of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GitNodeError {
    /// The repository has no such ref.
    #[error("no such ref")]
    NoRef,
    /// The commit has no such path.
    #[error("no such path")]
    NoPath,
    /// The node did not respond as expected.
    #[error("{0}")]
    Unreachable(String),
}

#[derive(Deserialize)]
struct Refusal {
    code: String,
}

impl GitNodeClient {
    /// Requests a path with these query parameters.
    ///
    /// # Errors
    /// Returns an error unless the node responds with a `T`.
    pub async fn get<T: DeserializeOwned>(
        &self,
        base: &str,
        secret: &Secret,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, GitNodeError> {
        let base = Url::parse(base).map_err(unreachable)?;
        let client = self.client(&base)?;
        let mut url = with_path(&base, path);
        url.query_pairs_mut().extend_pairs(query);
        let credential = Credential::Bearer(secret);
        let call = Call { method: Method::GET, url: &url, credential, header: None, body: None };
        let exchange = client.exchange(call).await.map_err(unreachable)?;
        if exchange.status == 404 {
            return Err(match exchange.parse::<Refusal>().map_err(unreachable)?.code.as_str() {
                "no_ref" => GitNodeError::NoRef,
                "no_path" => GitNodeError::NoPath,
                other => unreachable(format!("responded with 404 and the code {other}")),
            });
        }
        exchange.success().map_err(unreachable)
    }

    /// Returns the client of this address.
    fn client(&self, base: &Url) -> Result<OutboundClient, GitNodeError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((url, client)) = &*last
            && url == base
        {
            return Ok(client.clone());
        }
        let client = OutboundClient::with_limits("git node", [base], LIMITS).map_err(unreachable)?;
        *last = Some((base.clone(), client.clone()));
        Ok(client)
    }
}

fn unreachable(reason: impl ToString) -> GitNodeError {
    GitNodeError::Unreachable(reason.to_string())
}
