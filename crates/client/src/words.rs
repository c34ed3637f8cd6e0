//! Enumerations of words, to which a newer API may have added some.

/// An enumeration that keeps a word it does not know, so that one new word does not spoil a whole list.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $(#[doc = concat!("`", $word, "`")] #[serde(rename = $word)] $variant,)+
            /// A word that was not known when this was written.
            #[serde(untagged)]
            Other(String),
        }

        impl $name {
            /// The words that were known.
            pub const KNOWN: &[&str] = &[$($word),+];

            /// The word.
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

pub(crate) use words;
