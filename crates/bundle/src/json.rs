//! JSON as the rest of the service takes it from clients: no key twice in one object, 64 levels, no U+0000.
//!
//! A plain `serde_json::Value` would keep the last of two equal keys, and another reader the first. Postgres has no
//! place for U+0000 in `text` or `jsonb`.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::Reason;

const MAX_DEPTH: u32 = 64;

pub(crate) fn parse(text: &[u8]) -> Result<Value, Reason> {
    let refused = Cell::new(Reason::ManifestNotJson);
    let mut json = serde_json::Deserializer::from_slice(text);
    let strict = Strict { levels: MAX_DEPTH, refused: &refused };
    let value = strict.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    value.map_err(|_| refused.get())
}

/// Serde's errors are text, so the reason travels beside them.
#[derive(Clone, Copy)]
struct Strict<'a> {
    /// How many more levels a value here may open.
    levels: u32,
    refused: &'a Cell<Reason>,
}

impl Strict<'_> {
    fn refuse<T, E: de::Error>(self, reason: Reason) -> Result<T, E> {
        self.refused.set(reason);
        Err(E::custom(reason))
    }

    fn inner<E: de::Error>(self) -> Result<Self, E> {
        match self.levels.checked_sub(1) {
            Some(levels) => Ok(Self { levels, ..self }),
            None => self.refuse(Reason::ManifestTooDeep),
        }
    }

    fn text<E: de::Error>(self, text: String) -> Result<String, E> {
        if text.contains('\0') { self.refuse(Reason::ManifestNul) } else { Ok(text) }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        self.text(value.to_owned()).map(Value::String)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut object = Map::new();
        while let Some(key) = members.next_key()? {
            let key = self.text(key)?;
            if object.contains_key(&key) {
                return self.refuse(Reason::ManifestDuplicateKey);
            }
            object.insert(key, members.next_value_seed(inner)?);
        }
        Ok(Value::Object(object))
    }
}
