//! String enums that accept values of newer API releases.

/// A string enum that preserves unknown values, so that one new value does not make a whole response unreadable.
macro_rules! open_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $(#[doc = concat!("`", $word, "`")] #[serde(rename = $word)] $variant,)+
            /// A value that this release does not know.
            #[serde(untagged)]
            Other(String),
        }

        impl $name {
            /// The known values.
            pub const KNOWN: &[&str] = &[$($word),+];

            /// Returns the value.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

pub(crate) use open_enum;
