//! The slugs of organizations.

use std::str::FromStr;

use kernel::InvalidText;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

kernel::text! {
    /// An organization's name in paths and hostnames. It is a DNS label and cannot be changed.
    pub struct Slug matches "^[a-z0-9][a-z0-9-]{0,38}[a-z0-9]$"
        means "2 to 40 characters of a-z, 0-9 and -, beginning and ending with a letter or a digit"
        example "acme"
}

/// Slugs that the platform uses or may use.
const RESERVED: &[&str] =
    &["www", "api", "app", "admin", "dashboard", "docs", "mail", "auth", "login", "static", "status", "support", "svc"];

/// The slug of a new organization: one that the platform does not reserve and that does not begin like an
/// internationalized label (RFC 5890 section 2.3.2.1), because it becomes a label of mail addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSlug(Slug);

/// The text is not the slug of a new organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNewSlug {
    #[error(transparent)]
    Malformed(#[from] InvalidText),
    #[error("is reserved for the platform; choose another")]
    Reserved,
    #[error("must not begin with xn--, as internationalized names do")]
    PunycodePrefix,
}

impl From<NewSlug> for Slug {
    fn from(NewSlug(slug): NewSlug) -> Self {
        slug
    }
}

impl FromStr for NewSlug {
    type Err = InvalidNewSlug;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let slug: Slug = text.parse()?;
        if RESERVED.contains(&text) {
            Err(InvalidNewSlug::Reserved)
        } else if text.starts_with("xn--") {
            Err(InvalidNewSlug::PunycodePrefix)
        } else {
            Ok(Self(slug))
        }
    }
}

impl<'de> Deserialize<'de> for NewSlug {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// The schema of a slug, with a format for the additional rule.
#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for NewSlug {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::{RefOr, Schema, SchemaFormat};

        let mut schema = <Slug as utoipa::PartialSchema>::schema();
        if let RefOr::T(Schema::Object(slug)) = &mut schema {
            slug.format = Some(SchemaFormat::Custom("new-slug".to_owned()));
        }
        schema
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for NewSlug {
    fn name() -> std::borrow::Cow<'static, str> {
        "NewSlug".into()
    }
}
