//! The number of elements in the JSON of statements. It is counted before the JSON is parsed, because an element of two
//! bytes, such as `[]`, takes a multiple of its length in parsed form.

use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The number of elements of all arrays. An object counts as one more, because a statement is larger than a parameter,
/// and a string that the parser must copy also counts as one more.
#[derive(Debug, PartialEq, Eq)]
pub struct Elements(pub usize);

impl<'de> Deserialize<'de> for Elements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ElementsVisitor).map(Self)
    }
}

struct ElementsVisitor;

impl<'de> Visitor<'de> for ElementsVisitor {
    type Value = usize;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("statements or parameters")
    }

    fn visit_unit<E: Error>(self) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<usize, E> {
        // Bytes in base64 are decoded.
        Ok(usize::from(text.starts_with('b')))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<usize, E> {
        Ok(1)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<usize, A::Error> {
        let mut count = 0;
        while let Some(Elements(nested)) = sequence.next_element()? {
            count += 1 + nested;
        }
        Ok(count)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<usize, A::Error> {
        let mut count = 1;
        while let Some((IgnoredAny, Elements(nested))) = map.next_entry()? {
            count += nested;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_all_arrays_are_counted() {
        for (text, expected) in [
            ("[]", 0),
            ("null", 0),
            (r#""s[1, 2, 3]""#, 0),
            (r#""s\n""#, 1),
            (r#""bAA==""#, 1),
            (r#"[null, "sa,b,c", [], [[], ["n1"]]]"#, 7),
            (r#"[{ "text": "SELECT $1, $2", "params": ["n1", ["t", "s\n"]] }]"#, 7),
        ] {
            assert_eq!(serde_json::from_str::<Elements>(text).unwrap(), Elements(expected), "{text}");
        }
        for text in ["", "[", "1", "true", "[[[1]]]"] {
            assert!(serde_json::from_str::<Elements>(text).is_err(), "{text}");
        }
    }
}
