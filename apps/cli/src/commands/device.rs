//! Sign-in on a machine without a browser (RFC 8628), and the refresh of its access tokens.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::{Error, Method, Secret};
use serde::Deserialize;
use serde_json::Value;

use crate::config::{Config, StoredGrant};
use crate::error::CliError;
use crate::svc::Svc;

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
    let mut interval = Duration::from_secs(device.interval);
    loop {
        tokio::time::sleep(interval).await;
        match svc.anonymous.call::<Tokens>(Method::POST, &["oauth", "token"]).form(&form).send().await {
            Ok(tokens) => return Ok(tokens.value.into_grant(client_id)),
            Err(error) => match error.code() {
                Some("authorization_pending") => {}
                Some("slow_down") => interval += SLOW_DOWN,
                // RFC 8628 section 3.5: wait longer after a failed connection.
                None if matches!(error, Error::Unreachable(_)) => interval *= 2,
                Some("temporarily_unavailable") => interval += SLOW_DOWN,
                _ => return Err(error.into()),
            },
        }
    }
}

/// Refreshes the stored access token if it expires soon. Other `svc` processes wait, and then use the new token.
pub async fn refresh(svc: &Svc<'_>) -> Result<(), CliError> {
    if !svc.uses_stored_credential() || !Config::read()?.grants.get(&svc.api).is_some_and(expires_soon) {
        return Ok(());
    }
    let _lock = Config::lock()?;
    let mut config = Config::read()?;
    let Some(grant) = config.grants.get(&svc.api).filter(|grant| expires_soon(grant)) else { return Ok(()) };
    let client_id = grant.client_id.clone();
    let form = [
        ("grant_type", "refresh_token"),
        ("refresh_token", grant.refresh_token.reveal()),
        ("client_id", client_id.as_str()),
    ];
    match svc.anonymous.call::<Tokens>(Method::POST, &["oauth", "token"]).form(&form).send().await {
        Ok(tokens) => {
            let (credential, grant) = tokens.value.into_grant(client_id);
            config.credentials.insert(svc.api.clone(), credential);
            config.grants.insert(svc.api.clone(), grant);
            config.write()
        }
        // The user ended the grant, or it expired without use.
        Err(error) if error.code() == Some("invalid_grant") => {
            config.credentials.remove(&svc.api);
            config.grants.remove(&svc.api);
            config.write()?;
            Err(CliError::NotSignedIn(svc.api.clone()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Ends the grant of a sign-out.
pub async fn revoke(svc: &Svc<'_>, grant: &StoredGrant) {
    let form = [("token", grant.refresh_token.reveal()), ("client_id", grant.client_id.as_str())];
    if let Err(error) = svc.anonymous.call::<Value>(Method::POST, &["oauth", "revoke"]).form(&form).send().await {
        svc.out.warn(format!("the API did not end the grant, see `svc apps list`: {error}"));
    }
}

fn expires_soon(grant: &StoredGrant) -> bool {
    grant.expires_at < now() + MARGIN_SECONDS
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "svc does not depend on kernel; tests change the stored time instead")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
