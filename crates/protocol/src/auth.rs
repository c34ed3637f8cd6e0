//! The part `auth`: the sign-in of a project's end users, which a node serves at `/__svc/auth/*`.

use serde::{Deserialize, Serialize};

use crate::desired::DesiredPart;
use crate::secrets::SecretValue;

/// The sign-in of a project's end users (specification, "App user auth"). The context `resources` owns this part, and
/// removes it when auth is disabled. The users are only in the project's database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    /// Increases each time auth is enabled. Sessions of an earlier grant have ended.
    pub grant: i64,
    /// A session ends after this many days without a request.
    pub session_days: u16,
    pub brand: AuthBrand,
    /// Increases each time a provider is set. A new `registration` is the next value, so a registration above this value
    /// belongs to a newer state. 0 in a state that an earlier release saved: all registrations are above it.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub provider_revision: i64,
    /// The providers that the project registered, each at most once. Users of another provider cannot sign in.
    pub providers: Vec<AuthProvider>,
}

impl DesiredPart for Auth {
    const NAME: &'static str = "auth";
}

/// The appearance of the sign-in page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AuthBrand {
    /// null for the hostname.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub name: Option<String>,
    /// `#rrggbb` in lowercase.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub color: Option<String>,
    /// An https address.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub logo_url: Option<String>,
}

/// A client of a project at an identity provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AuthProvider {
    pub provider: AuthProviderKind,
    /// Changes when the provider is deleted and registered again, but not when its client is replaced. Identities and
    /// sessions of an earlier registration have ended.
    pub registration: i64,
    pub client_id: String,
    pub client_secret: SecretValue,
}

/// An identity provider of end users (spec/providers.md, section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum AuthProviderKind {
    Codehost,
    Webaccount,
    Messenger,
}

impl AuthProviderKind {
    /// All providers, in the order of the sign-in page.
    pub const ALL: [Self; 3] = [Self::Codehost, Self::Webaccount, Self::Messenger];

    /// Returns the name on the wire and in addresses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Codehost => "codehost",
            Self::Webaccount => "webaccount",
            Self::Messenger => "messenger",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_an_earlier_release_is_readable() {
        let saved = r#"{ "grant": 1, "sessionDays": 30, "brand": { "name": null, "color": null, "logoUrl": null },
            "providers": [] }"#;
        let auth: Auth = serde_json::from_str(saved).unwrap();
        assert_eq!((auth.grant, auth.provider_revision), (1, 0));
    }
}
