//! Parses JSON by the same rules as request bodies: no duplicate keys, at most 64 levels, no U+0000.
//!
//! `serde_json::Value` keeps the last of two equal keys; other parsers keep the first. Postgres cannot store U+0000 in
//! `text` or `jsonb`.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::Reason;

const MAX_DEPTH: u32 = 64;

pub(crate) fn parse(text: &[u8]) -> Result<Value, Reason> {
    let reason = Cell::new(Reason::ManifestNotJson);
    let mut json = serde_json::Deserializer::from_slice(text);
    let strict = Strict { levels: MAX_DEPTH, reason: &reason };
    let value = strict.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    value.map_err(|_| reason.get())
}

/// A strict deserializer. Serde errors carry only text, so `reason` returns the [`Reason`] separately.
#[derive(Clone, Copy)]
struct Strict<'a> {
    /// The remaining nesting depth.
    levels: u32,
    reason: &'a Cell<Reason>,
}

impl Strict<'_> {
    fn fail<T, E: de::Error>(self, reason: Reason) -> Result<T, E> {
        self.reason.set(reason);
        Err(E::custom(reason))
    }

    fn descend<E: de::Error>(self) -> Result<Self, E> {
        match self.levels.checked_sub(1) {
            Some(levels) => Ok(Self { levels, ..self }),
            None => self.fail(Reason::ManifestTooDeep),
        }
    }

    fn check_text<E: de::Error>(self, text: String) -> Result<String, E> {
        if text.contains('\0') { self.fail(Reason::ManifestNul) } else { Ok(text) }
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
        self.check_text(value.to_owned()).map(Value::String)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.descend()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.descend()?;
        let mut object = Map::new();
        while let Some(key) = members.next_key()? {
            let key = self.check_text(key)?;
            if object.contains_key(&key) {
                return self.fail(Reason::ManifestDuplicateKey);
            }
            object.insert(key, members.next_value_seed(inner)?);
        }
        Ok(Value::Object(object))
    }
}
