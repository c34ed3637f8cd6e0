//! App user auth (specification, "App user auth"; contract section 9). No response contains a client secret.

use kernel::Secret;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use validator::Validate;

/// The maximum length of a client secret. Some providers use a signed token as the secret.
const MAX_SECRET_LENGTH: usize = 4096;

kernel::words! {
    /// An identity provider of end users, in the order of the sign-in page.
    pub enum AuthProvider {
        Codehost = "codehost",
        Webaccount = "webaccount",
        Messenger = "messenger",
    } example Codehost
}

kernel::text! {
    /// The name on the sign-in page.
    pub struct BrandName matches r"^[^\x00-\x20\x7f-\xa0](?:[^\x00-\x1f\x7f-\x9f]{0,98}[^\x00-\x20\x7f-\xa0])?$"
        means "1 to 100 characters without control characters, and without a space at the beginning or end"
        example "Acme"
}

kernel::text! {
    /// A color of the sign-in page.
    pub struct BrandColor matches "^#[0-9a-fA-F]{6}$" means "a colour as # and six hexadecimal digits" example "#0a7cff"
}

kernel::text! {
    /// The address of the logo on the sign-in page, which the browser of the visitor fetches.
    pub struct BrandLogoUrl
        matches "^https://[a-zA-Z0-9](?:[a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?(?::[0-9]{1,5})?(?:[/?][!$-;=?-Z_a-z~]{0,1000})?$"
        means "an https address without user and fragment, with at most 1000 characters of path and query"
        example "https://acme.example/logo.svg"
}

kernel::text! {
    /// The id of a client at an identity provider (RFC 6749, appendix A.1). The service rejects an empty one.
    pub struct AuthClientId matches "^[ -~]{0,512}$" means "1 to 512 printable ASCII characters"
        example "app-1234.clients.example"
}

/// The secret of a client at an identity provider (RFC 6749, appendix A.2). The service rejects an empty one. Neither its
/// `Debug` implementation nor the error of a malformed secret shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthClientSecret(Secret);

impl AuthClientSecret {
    /// Returns the plaintext.
    #[must_use]
    pub const fn secret(&self) -> &Secret {
        &self.0
    }
}

impl<'de> Deserialize<'de> for AuthClientSecret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // Replace serde's error, which shows a value of another type.
        let value = String::deserialize(from).map_err(|_| D::Error::custom("must be a string"))?;
        if value.len() > MAX_SECRET_LENGTH || !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Err(D::Error::custom(format!("must be 1 to {MAX_SECRET_LENGTH} printable ASCII characters")));
        }
        Ok(Self(Secret::new(value)))
    }
}

kernel::string_schema!(AuthClientSecret, |schema| schema
    .format(Some(openapi::SchemaFormat::KnownFormat(openapi::KnownFormat::Password)))
    .pattern(Some("^[ -~]*$"))
    .max_length(Some(MAX_SECRET_LENGTH))
    .description(Some("1 to 4096 printable ASCII characters"))
    .examples(["EXAMPLE"]));

/// The state of a project's app sign-in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({ "granted": true, "hosts": ["site-acme.example.app"] })))]
pub struct AuthStatus {
    /// Whether app sign-in is enabled.
    pub granted: bool,
    /// The settings, which stay while app sign-in is disabled.
    pub settings: AuthSettings,
    /// The registered providers, which stay while app sign-in is disabled.
    pub providers: Vec<RegisteredProvider>,
    /// The active hostnames, the default one first. At each provider, register the callback address
    /// `https://<host>/__svc/auth/callback/<provider>` for each host.
    pub hosts: Vec<String>,
}

/// The settings of a project's app sign-in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "sessionDays": 30 })))]
pub struct AuthSettings {
    /// A session ends after this many days without a request. 30 by default.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 365))]
    pub session_days: i32,
    /// The name on the sign-in page. Null for the hostname.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub brand_name: Option<BrandName>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub brand_color: Option<BrandColor>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub brand_logo_url: Option<BrandLogoUrl>,
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self { session_days: 30, brand_name: None, brand_color: None, brand_logo_url: None }
    }
}

/// A change of the settings. Absent fields keep their values, and null resets a brand field.
#[derive(Debug, Clone, Default, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "sessionDays": 7, "brandName": "Acme", "brandLogoUrl": null })))]
pub struct AuthSettingsPatch {
    #[serde(default, deserialize_with = "present")]
    #[cfg_attr(feature = "openapi", schema(value_type = i32, minimum = 1, maximum = 365))]
    #[validate(range(min = 1, max = 365))]
    pub session_days: Option<i32>,
    #[serde(default, deserialize_with = "present")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<BrandName>))]
    pub brand_name: Option<Option<BrandName>>,
    #[serde(default, deserialize_with = "present")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<BrandColor>))]
    pub brand_color: Option<Option<BrandColor>>,
    #[serde(default, deserialize_with = "present")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<BrandLogoUrl>))]
    pub brand_logo_url: Option<Option<BrandLogoUrl>>,
}

impl AuthSettingsPatch {
    /// Returns the changed settings.
    #[must_use]
    pub fn apply(self, settings: AuthSettings) -> AuthSettings {
        let Self { session_days, brand_name, brand_color, brand_logo_url } = self;
        AuthSettings {
            session_days: session_days.unwrap_or(settings.session_days),
            brand_name: brand_name.unwrap_or(settings.brand_name),
            brand_color: brand_color.unwrap_or(settings.brand_color),
            brand_logo_url: brand_logo_url.unwrap_or(settings.brand_logo_url),
        }
    }
}

/// Distinguishes null from an absent field.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The client of a project at an identity provider. It replaces a registered client.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthProviderPut {
    pub client_id: AuthClientId,
    pub client_secret: AuthClientSecret,
}

/// A registered client, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RegisteredProvider {
    pub provider: AuthProvider,
    pub client_id: AuthClientId,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn brand_names_have_no_control_characters_and_no_outer_spaces() {
        for name in ["A", "Acme", "Acme Shop", "日本", "é", &"é".repeat(100)] {
            assert!(name.parse::<BrandName>().is_ok(), "{name}");
        }
        for name in ["", " ", " a", "a ", "a\n", "a\nb", "a\u{7f}b", "a\u{85}b", "\u{a0}", &"a".repeat(101)] {
            assert!(name.parse::<BrandName>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn colors_have_six_digits() {
        for color in ["#000000", "#a0B1c2"] {
            assert!(color.parse::<BrandColor>().is_ok(), "{color}");
        }
        for color in ["", "000000", "#fff", "#0000000", "#00000g", "red", "#000000\n", "#000000;"] {
            assert!(color.parse::<BrandColor>().is_err(), "{color:?}");
        }
    }

    #[test]
    fn logos_have_https_addresses_that_every_parser_reads_alike() {
        for url in [
            "https://acme.example",
            "https://acme.example/",
            "https://acme.example:8443/a/b.svg?v=1&w=2",
            "https://acme.example?x",
            "https://xn--bcher-kva.example/%20.png",
            "https://192.0.2.1/a",
        ] {
            assert!(url.parse::<BrandLogoUrl>().is_ok(), "{url}");
        }
        for url in [
            "",
            "http://acme.example/a",
            "HTTPS://acme.example/a",
            "//acme.example/a",
            "https:/acme.example",
            "https:///a",
            "https://user@acme.example/a",
            "https://user:word@acme.example/a",
            "https://acme.example\\@other.example",
            "https://acme.example/a b",
            "https://acme.example/a\"b",
            "https://acme.example/a<b",
            "https://acme.example/a#b",
            "https://acme.example/a\n",
            "https://bücher.example/",
            "https://acme.example; img-src *",
            "data:image/png;base64,AA",
            "javascript:alert(1)",
            &format!("https://acme.example/{}", "a".repeat(1001)),
        ] {
            assert!(url.parse::<BrandLogoUrl>().is_err(), "{url:?}");
        }
    }

    #[test]
    fn patch_distinguishes_null_from_an_absent_field() {
        let apply =
            |patch: Value, settings| serde_json::from_value::<AuthSettingsPatch>(patch).unwrap().apply(settings);
        assert_eq!(apply(json!({}), AuthSettings::default()), AuthSettings::default());
        let all = json!({ "sessionDays": 7, "brandName": "Acme", "brandColor": "#0a7cff", "brandLogoUrl": "https://a.example" });
        let set = apply(all.clone(), AuthSettings::default());
        assert_eq!(serde_json::to_value(&set).unwrap(), all);
        assert_eq!(apply(json!({}), set.clone()), set);
        let reset = apply(json!({ "brandName": null, "brandColor": null, "brandLogoUrl": null }), set);
        assert_eq!(reset, AuthSettings { session_days: 7, ..AuthSettings::default() });
        assert!(serde_json::from_value::<AuthSettingsPatch>(json!({ "sessionDays": null })).is_err());
    }

    #[test]
    fn session_days_are_limited() {
        for (days, is_valid) in [(0, false), (1, true), (365, true), (366, false), (-1, false)] {
            let patch = AuthSettingsPatch { session_days: Some(days), ..AuthSettingsPatch::default() };
            assert_eq!(patch.validate().is_ok(), is_valid, "{days}");
        }
    }

    #[test]
    fn neither_debug_nor_errors_show_client_secrets() {
        let put = |secret: Value| {
            serde_json::from_value::<AuthProviderPut>(json!({ "clientId": "id", "clientSecret": secret }))
        };
        let accepted = put(json!("hush 4711")).unwrap();
        assert!(!format!("{accepted:?}").contains("4711"));
        assert_eq!(accepted.client_secret.secret().reveal(), "hush 4711");
        for secret in [json!(4711), json!(["4711"]), json!("4711\n"), json!("4711é"), json!("4711".repeat(1025))] {
            let error = put(secret).unwrap_err();
            assert!(!error.to_string().contains("4711"), "{error}");
        }
    }
}
