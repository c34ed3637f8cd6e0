//! The part `auth` of the desired state, from the values of `resources`.

use protocol::{Auth, AuthBrand, AuthProviderKind, SecretValue};
use resources::{AuthClient, AuthGrant, AuthProvider, AuthSettings};
use store::Error;

/// Returns the part for the nodes.
pub(super) fn part(grant: AuthGrant) -> store::Result<Auth> {
    let AuthGrant { number, settings, provider_revision, mut clients } = grant;
    let AuthSettings { session_days, brand_name, brand_color, brand_logo_url } = settings;
    clients.sort_unstable_by_key(|client| client.provider);
    Ok(Auth {
        grant: number,
        session_days: session_days.try_into().map_err(Error::inconsistent)?,
        brand: AuthBrand {
            name: brand_name.map(|name| name.to_string()),
            color: brand_color.map(|color| color.as_str().to_ascii_lowercase()),
            logo_url: brand_logo_url.map(|url| url.to_string()),
        },
        provider_revision,
        providers: clients.into_iter().map(provider).collect(),
    })
}

fn provider(client: AuthClient) -> protocol::AuthProvider {
    let AuthClient { provider, registration, client_id, client_secret } = client;
    protocol::AuthProvider {
        provider: match provider {
            AuthProvider::Codehost => AuthProviderKind::Codehost,
            AuthProvider::Webaccount => AuthProviderKind::Webaccount,
            AuthProvider::Messenger => AuthProviderKind::Messenger,
        },
        registration,
        client_id: client_id.to_string(),
        client_secret: SecretValue::new(client_secret.reveal().to_owned()),
    }
}
