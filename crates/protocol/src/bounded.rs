//! Collections of limited length. The limit applies while they are parsed, so a short text such as a long list of empty
//! strings cannot take a multiple of its length in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The largest number of elements. It is far above the limits of the control plane, whose errors are more precise.
pub(crate) const MAX_ELEMENTS: usize = 1000;

struct Bounded<T>(PhantomData<T>);

/// Parses a list.
pub(crate) fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(Bounded::<Vec<T>>(PhantomData))
}

/// Parses an object of texts.
pub(crate) fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    from.deserialize_map(Bounded::<BTreeMap<String, String>>(PhantomData))
}

fn check<E: Error>(length: usize) -> Result<(), E> {
    if length > MAX_ELEMENTS { Err(E::custom(format!("more than {MAX_ELEMENTS} elements"))) } else { Ok(()) }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<Vec<T>> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of at most {MAX_ELEMENTS} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            list.push(element);
            check(list.len())?;
        }
        Ok(list)
    }
}

impl<'de> Visitor<'de> for Bounded<BTreeMap<String, String>> {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of at most {MAX_ELEMENTS} texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<BTreeMap<String, String>, A::Error> {
        let mut texts = BTreeMap::new();
        while let Some((name, text)) = entries.next_entry()? {
            texts.insert(name, text);
            check(texts.len())?;
        }
        Ok(texts)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::OutgoingMail;

    #[test]
    fn collections_of_a_mail_are_bounded() {
        let mail = |recipients: usize, headers: usize| {
            let headers: serde_json::Map<_, _> = (0..headers).map(|n| (format!("x-{n}"), json!(""))).collect();
            let mail = json!({
                "to": vec![""; recipients], "cc": [], "bcc": [], "subject": "", "headers": headers, "attachments": [],
            });
            serde_json::from_value::<OutgoingMail>(mail)
        };
        assert_eq!(mail(1000, 1000).map(|mail| (mail.to.len(), mail.headers.len())).ok(), Some((1000, 1000)));
        assert!(mail(1001, 0).is_err() && mail(0, 1001).is_err());
    }
}
