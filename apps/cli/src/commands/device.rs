//! Sign-in on a machine without a browser (RFC 8628), and the refresh of its access tokens.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::{Client, CredentialSource, Error, Method, Renewal, Secret};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::config::{Config, StoredGrant};
use crate::error::CliError;
use crate::polling::is_transient;
use crate::svc::{Svc, uses_stored_credential};

const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// The increase of the interval after `slow_down` (RFC 8628 section 3.5).
const SLOW_DOWN: Duration = Duration::from_secs(5);
/// An access token that expires within this time is refreshed before it is used.
const MARGIN_SECONDS: u64 = 120;

#[derive(Deserialize)]
struct Metadata {
    svc_cli_client_id: Option<String>,
    device_authorization_endpoint: Option<String>,
}

#[derive(Deserialize)]
struct DeviceAuthorization {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: String,
    expires_in: u64,
    interval: u64,
}

#[derive(Deserialize)]
struct Tokens {
    access_token: Secret,
    refresh_token: Secret,
    expires_in: u64,
}

impl Tokens {
    fn into_grant(self, client_id: String) -> (Secret, StoredGrant) {
        let expires_at = now() + self.expires_in;
        (self.access_token, StoredGrant { client_id, refresh_token: self.refresh_token, expires_at })
    }
}

/// Shows a code, and waits until the user approved it in a browser.
pub async fn sign_in(svc: &Svc<'_>, client_id: Option<String>) -> Result<(Secret, StoredGrant), CliError> {
    let metadata: Metadata =
        svc.anonymous.call(Method::GET, &[".well-known", "oauth-authorization-server"]).send().await?.value;
    if metadata.device_authorization_endpoint.is_none() {
        return Err(CliError::Other(format!("sign-in of devices is disabled at {}", svc.api)));
    }
    let client_id = client_id.or(metadata.svc_cli_client_id).ok_or_else(|| {
        CliError::Usage(format!("{} offers no client for svc: ask its operator, and pass --client-id", svc.api))
    })?;
    let form = [("client_id", client_id.as_str())];
    let device: DeviceAuthorization =
        svc.anonymous.call(Method::POST, &["oauth", "device"]).form(&form).send().await?.value;
    svc.out.info(format!(
        "Open this URL in a browser on any machine:\n\n  {}\n\nor enter the code {} at {}\n",
        device.verification_uri_complete, device.user_code, device.verification_uri
    ));
    svc.out.info(format!("Waiting for the approval, at most {} minutes", device.expires_in / 60));
    let form =
        [("grant_type", GRANT_TYPE), ("device_code", device.device_code.as_str()), ("client_id", client_id.as_str())];
    let expires_at = Instant::now() + Duration::from_secs(device.expires_in);
    let mut interval = Duration::from_secs(device.interval);
    loop {
        tokio::time::sleep(interval).await;
        if Instant::now() >= expires_at {
            return Err(CliError::Other("nobody approved the code in time; run the command again".to_owned()));
        }
        match svc.anonymous.call::<Tokens>(Method::POST, &["oauth", "token"]).form(&form).send().await {
            Ok(tokens) => return Ok(tokens.value.into_grant(client_id)),
            Err(error) => {
                // For example, a proxy responds with 502 while the API restarts.
                interval = next_interval(interval, error.code(), is_transient(&error)).ok_or(error)?;
            }
        }
    }
}

/// Returns the interval after a failed poll (RFC 8628 section 3.5); `None` if polling must end.
fn next_interval(interval: Duration, code: Option<&str>, is_transient: bool) -> Option<Duration> {
    match code {
        Some("authorization_pending") => Some(interval),
        Some("slow_down" | "temporarily_unavailable") => Some(interval + SLOW_DOWN),
        _ if is_transient => Some((interval * 2).max(Duration::from_secs(1))),
        _ => None,
    }
}

/// Refreshes the stored access token if it expires soon.
pub async fn refresh(svc: &Svc<'_>) -> Result<(), CliError> {
    if !uses_stored_credential() || !Config::read()?.grants.get(&svc.api).is_some_and(expires_soon) {
        return Ok(());
    }
    let tokens = StoredTokens { api: svc.api.clone(), anonymous: svc.anonymous.clone() };
    tokens.refresh(|_, grant| expires_soon(grant)).await.map(drop)
}

/// The stored tokens of the device flow at an API.
pub struct StoredTokens {
    pub api: String,
    pub anonymous: Client,
}

impl StoredTokens {
    /// Refreshes the stored access token if `is_due` returns true for it. If another `svc` process is refreshing, waits
    /// for that process and uses its new token. Returns the access token that is then stored; `None` without a grant.
    async fn refresh(&self, is_due: impl Fn(&Secret, &StoredGrant) -> bool) -> Result<Option<Secret>, CliError> {
        let _lock = Config::lock()?;
        let mut config = Config::read()?;
        let stored = config.credentials.get(&self.api).zip(config.grants.get(&self.api));
        let Some((credential, grant)) = stored else { return Ok(None) };
        if !is_due(credential, grant) {
            return Ok(Some(credential.clone()));
        }
        let client_id = grant.client_id.clone();
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", grant.refresh_token.reveal()),
            ("client_id", client_id.as_str()),
        ];
        match self.anonymous.call::<Tokens>(Method::POST, &["oauth", "token"]).form(&form).send().await {
            Ok(tokens) => {
                let (credential, grant) = tokens.value.into_grant(client_id);
                config.credentials.insert(self.api.clone(), credential.clone());
                config.grants.insert(self.api.clone(), grant);
                config.write()?;
                Ok(Some(credential))
            }
            // The user ended the grant, it expired without use, or the operator removed the client.
            Err(error) if matches!(error.code(), Some("invalid_grant" | "invalid_client")) => {
                config.credentials.remove(&self.api);
                config.grants.remove(&self.api);
                config.write()?;
                Err(CliError::NotSignedIn(self.api.clone()))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl CredentialSource for StoredTokens {
    /// Refreshes the token in the middle of a command, unless another process has refreshed it.
    fn renew<'a>(&'a self, rejected: &'a Secret) -> Renewal<'a> {
        Box::pin(async move {
            match self.refresh(|credential, _| credential == rejected).await {
                Ok(renewed) => Ok(renewed.filter(|renewed| renewed != rejected)),
                Err(CliError::Api(error)) => Err(error),
                // Without a renewal, the API's 401 is shown, which tells the user what to do.
                Err(CliError::NotSignedIn(_)) => Ok(None),
                Err(error) => Err(Error::Setup(error.to_string())),
            }
        })
    }
}

/// Ends a grant that this machine no longer uses.
pub async fn revoke(svc: &Svc<'_>, grant: &StoredGrant) {
    let form = [("token", grant.refresh_token.reveal()), ("client_id", grant.client_id.as_str())];
    if let Err(error) = svc.anonymous.call::<Value>(Method::POST, &["oauth", "revoke"]).form(&form).send().await {
        svc.out.warn(format!("the API did not end the grant, see `svc apps list`: {error}"));
    }
}

fn expires_soon(grant: &StoredGrant) -> bool {
    grant.expires_at < now() + MARGIN_SECONDS
}

/// Returns the seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "svc does not depend on kernel; tests change the stored time instead")]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_grows_after_slow_down_and_failed_connections() {
        let seconds = Duration::from_secs;
        for (code, is_transient, expected) in [
            (Some("authorization_pending"), false, Some(seconds(5))),
            (Some("slow_down"), false, Some(seconds(10))),
            (Some("temporarily_unavailable"), false, Some(seconds(10))),
            (None, true, Some(seconds(10))),
            (Some("server_error"), true, Some(seconds(10))),
            (None, false, None),
            (Some("access_denied"), false, None),
            (Some("expired_token"), false, None),
            (Some("invalid_client"), false, None),
        ] {
            assert_eq!(next_interval(seconds(5), code, is_transient), expected, "{code:?}");
        }
        assert_eq!(next_interval(Duration::ZERO, None, true), Some(seconds(1)));
    }
}
