//! The identity providers of a node.

use protocol::AuthProviderKind;
use reqwest::Url;
use settings::{Error, Setting, Settings, is_loopback_host};

use super::{
    AUTH_CODEHOST_AUTH_METHOD, AUTH_CODEHOST_AUTHORIZE_URL, AUTH_CODEHOST_NAME, AUTH_CODEHOST_TOKEN_URL,
    AUTH_CODEHOST_USER_URL, AUTH_MESSENGER_AUTH_METHOD, AUTH_MESSENGER_AUTHORIZE_URL, AUTH_MESSENGER_ISSUER,
    AUTH_MESSENGER_JWKS_URL, AUTH_MESSENGER_NAME, AUTH_MESSENGER_TOKEN_URL, AUTH_MESSENGER_USER_URL,
    AUTH_WEBACCOUNT_AUTH_METHOD, AUTH_WEBACCOUNT_AUTHORIZE_URL, AUTH_WEBACCOUNT_ISSUER, AUTH_WEBACCOUNT_JWKS_URL,
    AUTH_WEBACCOUNT_NAME, AUTH_WEBACCOUNT_TOKEN_URL, AUTH_WEBACCOUNT_USER_URL,
};
use crate::auth::config::{AuthConfig, ProviderConfig, SignatureConfig};

pub(super) fn auth(settings: &Settings) -> Result<AuthConfig, Error> {
    let get = |setting: &Setting<Url>| endpoint(setting, settings.get(setting)?);
    let code_host = ProviderConfig {
        authorize_url: get(&AUTH_CODEHOST_AUTHORIZE_URL)?,
        token_url: get(&AUTH_CODEHOST_TOKEN_URL)?,
        user_url: get(&AUTH_CODEHOST_USER_URL)?,
        authentication: settings.get(&AUTH_CODEHOST_AUTH_METHOD)?,
        signatures: None,
        name: settings.opt(&AUTH_CODEHOST_NAME)?,
    };
    let web_account = ProviderConfig {
        authorize_url: get(&AUTH_WEBACCOUNT_AUTHORIZE_URL)?,
        token_url: get(&AUTH_WEBACCOUNT_TOKEN_URL)?,
        user_url: get(&AUTH_WEBACCOUNT_USER_URL)?,
        authentication: settings.get(&AUTH_WEBACCOUNT_AUTH_METHOD)?,
        signatures: signatures(settings, &AUTH_WEBACCOUNT_ISSUER, &AUTH_WEBACCOUNT_JWKS_URL)?,
        name: settings.opt(&AUTH_WEBACCOUNT_NAME)?,
    };
    let providers = [(AuthProviderKind::Codehost, Some(code_host)), (AuthProviderKind::Webaccount, Some(web_account))];
    let providers = providers.into_iter().chain([(AuthProviderKind::Messenger, messenger(settings)?)]);
    Ok(AuthConfig { providers: providers.filter_map(|(kind, provider)| Some((kind, provider?))).collect() })
}

/// Returns the messenger, which is off unless its endpoints are set.
fn messenger(settings: &Settings) -> Result<Option<ProviderConfig>, Error> {
    let get = |setting| optional_endpoint(settings, setting);
    let signatures = signatures(settings, &AUTH_MESSENGER_ISSUER, &AUTH_MESSENGER_JWKS_URL)?;
    let (authentication, name) = (settings.get(&AUTH_MESSENGER_AUTH_METHOD)?, settings.opt(&AUTH_MESSENGER_NAME)?);
    let [authorize_url, token_url, user_url] =
        [get(&AUTH_MESSENGER_AUTHORIZE_URL)?, get(&AUTH_MESSENGER_TOKEN_URL)?, get(&AUTH_MESSENGER_USER_URL)?];
    let missing =
        |setting: &Setting<Option<Url>>| setting.malformed("required with the other endpoints of the messenger");
    match (authorize_url, token_url, user_url) {
        (None, None, None) => Ok(None),
        (Some(authorize_url), Some(token_url), Some(user_url)) => {
            Ok(Some(ProviderConfig { authorize_url, token_url, user_url, authentication, signatures, name }))
        }
        (None, ..) => Err(missing(&AUTH_MESSENGER_AUTHORIZE_URL)),
        (_, None, _) => Err(missing(&AUTH_MESSENGER_TOKEN_URL)),
        (_, _, None) => Err(missing(&AUTH_MESSENGER_USER_URL)),
    }
}

fn signatures(
    settings: &Settings,
    issuer: &Setting<Option<String>>,
    jwks_url: &Setting<Option<Url>>,
) -> Result<Option<SignatureConfig>, Error> {
    match (settings.opt(issuer)?, optional_endpoint(settings, jwks_url)?) {
        (None, None) => Ok(None),
        (Some(issuer), Some(jwks_url)) => Ok(Some(SignatureConfig { issuer, jwks_url })),
        (None, Some(_)) => Err(jwks_url.malformed("it requires the issuer")),
        (Some(_), None) => Err(issuer.malformed("it requires the address of the keys")),
    }
}

fn optional_endpoint(settings: &Settings, setting: &Setting<Option<Url>>) -> Result<Option<Url>, Error> {
    settings.opt(setting)?.map(|url| endpoint(setting, url)).transpose()
}

/// Returns the address of an endpoint. It is logged, so it must not contain credentials. Without TLS, others could read
/// secrets and tokens, and could sign in as anyone.
fn endpoint<T>(setting: &Setting<T>, url: Url) -> Result<Url, Error> {
    let is_endpoint = (url.scheme() == "https"
        || url.scheme() == "http" && url.host_str().is_some_and(is_loopback_host))
        && url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none();
    if is_endpoint {
        Ok(url)
    } else {
        Err(setting.malformed("it must be an https URL without credentials and fragment; http only for loopback"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_use_https_except_on_this_machine() {
        for (url, is_endpoint) in [
            ("https://id.example/token", true),
            ("http://127.0.0.1:4000/token", true),
            ("http://[::1]:4000/token", true),
            ("http://id.localhost/token", true),
            ("http://id.example/token", false),
            ("http://10.0.0.1/token", false),
            ("http://localhost.example/token", false),
            ("http://127.0.0.1.example/token", false),
        ] {
            assert_eq!(endpoint(&AUTH_CODEHOST_TOKEN_URL, url.parse().unwrap()).is_ok(), is_endpoint, "{url}");
        }
    }
}
