//! Secrets (specification, "Secrets"; contract section 9). No response contains a value.

use std::collections::BTreeMap;

use kernel::{Secret, Time, UserId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use validator::Validate;

/// The maximum size of a value, in bytes of UTF-8.
const MAX_VALUE_BYTES: usize = 64 * 1024;

/// The maximum number of names in one request. It is enough to replace all secrets by others.
pub(crate) const MAX_CHANGES: usize = 400;

kernel::text! {
    /// The name of a secret, which worker code reads as `env.<NAME>`.
    pub struct SecretName matches "^[A-Z][A-Z0-9_]{0,127}$"
        means "1 to 128 characters of A-Z, 0-9 and _, beginning with a letter" example "API_KEY"
}

impl SecretName {
    /// Returns whether the platform reserves the name. The names of bindings, such as `env.storage`, are in lower case,
    /// so they cannot collide with the name of a secret.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        matches!(self.as_str(), "DB" | "ASSETS") || self.as_str().starts_with("SVC_")
    }
}

/// The value of a secret in a request. Neither its `Debug` implementation nor the error of a malformed value shows it.
#[derive(Debug, Clone)]
pub struct SecretValue(Secret);

impl SecretValue {
    /// Returns the plaintext.
    #[must_use]
    pub fn reveal(&self) -> &str {
        self.0.reveal()
    }
}

impl<'de> Deserialize<'de> for SecretValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // Replace serde's error, which shows a value of another type.
        let value = String::deserialize(from).map_err(|_| D::Error::custom("must be a string"))?;
        if value.is_empty() || value.len() > MAX_VALUE_BYTES {
            return Err(D::Error::custom(format!("must have 1 to {MAX_VALUE_BYTES} bytes in UTF-8")));
        }
        if value.contains('\0') {
            return Err(D::Error::custom("must not contain U+0000"));
        }
        Ok(Self(Secret::new(value)))
    }
}

kernel::string_schema!(SecretValue, describe_value);

#[cfg(feature = "openapi")]
fn describe_value(schema: utoipa::openapi::ObjectBuilder) -> utoipa::openapi::ObjectBuilder {
    schema
        .format(Some(utoipa::openapi::SchemaFormat::KnownFormat(utoipa::openapi::KnownFormat::Password)))
        .min_length(Some(1))
        .max_length(Some(MAX_VALUE_BYTES))
        .extensions(Some([("x-max-bytes", MAX_VALUE_BYTES)].into_iter().collect()))
        .description(Some("the value of a secret: 1 byte to 64 KiB in UTF-8"))
        .examples(["EXAMPLE"])
}

/// A change of a secret.
#[derive(Debug, Clone)]
pub enum SecretChange {
    /// A new value.
    Set(SecretValue),
    /// The deletion of the secret, which is null in JSON.
    Delete,
}

impl<'de> Deserialize<'de> for SecretChange {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(from)?.map_or(Self::Delete, Self::Set))
    }
}

kernel::string_schema!(SecretChange, |schema| describe_value(schema)
    .schema_type(openapi::schema::SchemaType::from_iter([openapi::schema::Type::String, openapi::schema::Type::Null]))
    .description(Some("the new value of a secret: 1 byte to 64 KiB in UTF-8; null to delete the secret")));

/// A new value of a secret.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewSecretValue {
    pub value: SecretValue,
}

/// Changes of several secrets, which are applied together.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "secrets": { "API_KEY": "EXAMPLE", "OLD_KEY": null } })))]
pub struct SecretChanges {
    /// The new value of each secret, or null to delete it. Other secrets keep their values. At most 400 names.
    #[cfg_attr(feature = "openapi", schema(schema_with = describe_changes))]
    pub secrets: BTreeMap<SecretName, SecretChange>,
}

/// Describes the changes, because a derived schema cannot state the maximum number of names.
#[cfg(feature = "openapi")]
fn describe_changes() -> utoipa::openapi::schema::Object {
    use utoipa::PartialSchema as _;
    utoipa::openapi::ObjectBuilder::new()
        .property_names(Some(SecretName::schema()))
        .additional_properties(Some(SecretChange::schema()))
        .max_properties(Some(MAX_CHANGES))
        .description(Some("The new value of each secret, or null to delete it. Other secrets keep their values."))
        .build()
}

/// A secret without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "version": 1 })))]
pub struct SecretMeta {
    pub name: SecretName,
    /// Increases with each new value. A secret that is set again after its deletion has version 1.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub version: i32,
    pub updated_at: Time,
    /// The user who set the value.
    pub updated_by: UserId,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn platform_names_are_reserved() {
        for (name, reserved) in
            [("DB", true), ("ASSETS", true), ("SVC_", true), ("SVC_X", true), ("DBX", false), ("SVC", false)]
        {
            assert_eq!(name.parse::<SecretName>().unwrap().is_reserved(), reserved, "{name}");
        }
    }

    #[test]
    fn names_have_the_documented_pattern() {
        for name in ["A", "API_KEY", "A1_", &"A".repeat(128)] {
            assert!(name.parse::<SecretName>().is_ok(), "{name}");
        }
        for name in ["", "a", "1A", "_A", "A-B", "Ä", "A\n", " A", &"A".repeat(129)] {
            assert!(name.parse::<SecretName>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn size_of_value_is_limited_in_bytes() {
        let parse = |value: serde_json::Value| serde_json::from_value::<SecretValue>(value);
        for value in ["x".to_owned(), "x".repeat(MAX_VALUE_BYTES), "é".repeat(MAX_VALUE_BYTES / 2)] {
            assert_eq!(parse(json!(value)).unwrap().reveal(), value);
        }
        for value in [String::new(), "x".repeat(MAX_VALUE_BYTES + 1), "é".repeat(MAX_VALUE_BYTES / 2 + 1)] {
            assert!(parse(json!(value)).is_err());
        }
        assert!(parse(json!("a\u{0}b")).is_err());
    }

    #[test]
    fn neither_debug_nor_errors_show_values() {
        let changes = json!({ "secrets": { "API_KEY": "hush", "OLD": null } });
        let changes: SecretChanges = serde_json::from_value(changes).unwrap();
        assert!(!format!("{changes:?}").contains("hush"));
        for value in [json!(4711), json!(["4711"]), json!({ "x": 4711 }), json!("4711\u{0}"), json!(4711.5)] {
            let error = serde_json::from_value::<NewSecretValue>(json!({ "value": value })).unwrap_err();
            assert!(!error.to_string().contains("4711"), "{error}");
        }
    }
}
