//! Validated text: newtypes over `String`, and enums with a fixed set of words.
//!
//! Each type states its rule once. The parser, the database column and the OpenAPI schema follow from it.

use std::sync::LazyLock;

use regex::Regex;

/// The rule that a text violates, as the end of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidText {
    #[error("must be {0}")]
    Malformed(&'static str),
    #[error("must not {0}")]
    Forbidden(&'static str),
}

/// The pattern of names that users choose and other users read. A name has a visible character, no control characters,
/// and no characters that change the direction of the text around it. White space, the default ignorable characters
/// of Unicode and the blank Braille pattern (U+2800) are not visible.
pub const NAME_PATTERN: &str = concat!(
    r"^[ \xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028\u2029\u202f\u205f-\u2065",
    r"\u206a-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8]*",
    r"[^\x00-\x20\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f",
    r"\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8]",
    r"[^\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]*$",
);

/// Returns whether a text matches [`NAME_PATTERN`].
#[must_use]
pub fn is_name(text: &str) -> bool {
    static RULE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(NAME_PATTERN).ok());
    RULE.as_ref().is_some_and(|rule| rule.is_match(text))
}

/// Declares a validated text: `text! { /// docs  pub struct Slug matches "^…$" means "2 to 40 …" example "acme" }`.
///
/// `matches` is a regular expression in the common subset of Rust and ECMA-262, or a constant that contains one.
/// `up to 100 characters` can follow it. `means` completes the sentence "must be …". `format "…" checked by function`
/// adds a rule that the expression cannot state, and names it in the schema. A type that the API uses needs an
/// example, which becomes part of its schema.
#[macro_export]
macro_rules! text {
    ($(#[$meta:meta])* pub struct $name:ident matches $pattern:tt $(up to $max:literal characters)? means $rule:literal
     $(format $format:literal checked by $check:ident)? $(example $example:literal)?) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive($crate::macro_support::diesel::AsExpression, $crate::macro_support::diesel::FromSqlRow)]
        #[diesel(sql_type = $crate::macro_support::diesel::sql_types::Text)]
        pub struct $name(String);

        impl $name {
            /// Returns the text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::InvalidText;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                static RULE: std::sync::LazyLock<Option<$crate::macro_support::regex::Regex>> =
                    std::sync::LazyLock::new(|| $crate::macro_support::regex::Regex::new($pattern).ok());
                match &*RULE {
                    Some(rule) if rule.is_match(text) $(&& text.chars().count() <= $max)? => {
                        $($check(text)?;)?
                        Ok(Self(text.to_owned()))
                    }
                    _ => Err($crate::InvalidText::Malformed($rule)),
                }
            }
        }

        $crate::string_like!($name);
        $crate::string_schema!($name, |schema| schema
            .pattern(Some($pattern))
            .description(Some($rule))
            $(.format(Some(openapi::SchemaFormat::Custom($format.to_owned()))))?
            $(.max_length(Some($max)))?
            $(.examples([$example]))?);
    };
}

/// Declares an enum whose values are words: `words! { /// docs  pub enum Plan { Free = "free", Pro = "pro" } example
/// Free }`.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal),+ $(,)? }
     $(example $example:ident)?) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive($crate::macro_support::diesel::AsExpression, $crate::macro_support::diesel::FromSqlRow)]
        #[diesel(sql_type = $crate::macro_support::diesel::sql_types::Text)]
        pub enum $name { $($(#[$doc])* $variant),+ }

        impl $name {
            /// Every value, in ascending order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the word of the value on the wire and in the database.
            #[must_use]
            pub const fn as_str(&self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::InvalidText;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::InvalidText::Malformed(concat!("one of:", $(" ", $word),+))),
                }
            }
        }

        $crate::string_like!($name);
        $crate::string_schema!($name, |schema| schema
            .enum_values(Some([$($word),+]))
            $(.examples([$name::$example.as_str()]))?);
    };
}

/// Implements serde, `Display` and the column type for a type with `as_str` and `FromStr`.
#[doc(hidden)]
#[macro_export]
macro_rules! string_like {
    ($name:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl $crate::macro_support::serde::Serialize for $name {
            fn serialize<S: $crate::macro_support::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl<'de> $crate::macro_support::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::macro_support::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                text.parse().map_err($crate::macro_support::serde::de::Error::custom)
            }
        }

        const _: () = {
            use $crate::macro_support::diesel::{deserialize, pg, serialize, sql_types::Text};

            impl serialize::ToSql<Text, pg::Pg> for $name {
                fn to_sql<'b>(&'b self, out: &mut serialize::Output<'b, '_, pg::Pg>) -> serialize::Result {
                    serialize::ToSql::<Text, pg::Pg>::to_sql(self.as_str(), out)
                }
            }

            impl deserialize::FromSql<Text, pg::Pg> for $name {
                fn from_sql(bytes: pg::PgValue<'_>) -> deserialize::Result<Self> {
                    let text = <String as deserialize::FromSql<Text, pg::Pg>>::from_sql(bytes)?;
                    text.parse().map_err(|rule| format!("stored {} {text:?} {rule}", stringify!($name)).into())
                }
            }
        };
    };
}

/// The OpenAPI schema of a text: a string, refined by the closure.
#[doc(hidden)]
#[cfg(feature = "openapi")]
#[macro_export]
macro_rules! string_schema {
    ($name:ident, $refine:expr) => {
        const _: () = {
            use $crate::macro_support::utoipa::{self, openapi};

            impl utoipa::PartialSchema for $name {
                fn schema() -> openapi::RefOr<openapi::Schema> {
                    let schema = openapi::ObjectBuilder::new().schema_type(openapi::schema::Type::String);
                    let refine: fn(openapi::ObjectBuilder) -> openapi::ObjectBuilder = $refine;
                    refine(schema).into()
                }
            }

            impl utoipa::ToSchema for $name {
                fn name() -> std::borrow::Cow<'static, str> {
                    stringify!($name).into()
                }
            }
        };
    };
}

/// Does nothing: without the feature `openapi`, types need no schema.
#[doc(hidden)]
#[cfg(not(feature = "openapi"))]
#[macro_export]
macro_rules! string_schema {
    ($name:ident, $refine:expr) => {};
}
