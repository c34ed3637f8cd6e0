//! A strict JSON parser: no duplicate keys, at most 64 levels (security rules, "HTTP"), and at most 100,000 values. A
//! parsed value takes more memory than its text: up to 32 bytes for two.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The largest nesting depth.
const MAX_DEPTH: u8 = 64;

/// The largest number of values.
const MAX_VALUES: usize = 100_000;

/// Parses one JSON value without trailing text.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let values = Cell::new(0);
    let value = reader.deserialize_any(Strict { depth: MAX_DEPTH, values: &values })?;
    reader.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Strict<'a> {
    /// The levels that are left.
    depth: u8,
    /// The number of values so far.
    values: &'a Cell<usize>,
}

impl Strict<'_> {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| E::custom(format!("more than {MAX_DEPTH} levels")))?;
        Ok(Self { depth, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        self.values.update(|values| values + 1);
        if self.values.get() > MAX_VALUES {
            return Err(de::Error::custom(format!("more than {MAX_VALUES} values")));
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        if let Some(integer) = as_integer(value) {
            return Ok(Value::Number(integer.into()));
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(inner)?;
            if object.insert(key.clone(), value).is_some() {
                return Err(de::Error::custom(format!("duplicate key {key:?}")));
            }
        }
        Ok(Value::Object(object))
    }
}

/// Returns the integer that a number with a fraction or an exponent equals: `1.0` and `1e0` are 1 (JSON Schema 2020-12,
/// section 6.1.1). Does not convert numbers from 2^53 on, because they may have lost digits.
fn as_integer(value: f64) -> Option<i64> {
    let is_integer = value.trunc() == value && value.abs() < 9_007_199_254_740_992.0;
    is_integer.then(|| value.to_string().parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn integers_with_fraction_or_exponent_are_accepted() {
        for text in ["106.0", "1.06e2", "1060E-1"] {
            assert_eq!(parse(text.as_bytes()).expect("a number"), 106, "{text}");
        }
        assert_eq!(parse(b"-0.0").expect("a number"), 0);
        assert!(parse(b"106.5").expect("a number").is_f64());
    }

    #[test]
    fn duplicate_keys_deep_nesting_and_trailing_text_are_rejected() {
        let text = r#"{"a":[1,-2,3.5,1e+300,true,null,"x"],"b":{}}"#;
        assert_eq!(parse(text.as_bytes()).expect("a value").to_string(), text);
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(nested(64).as_bytes()).is_ok());
        for wrong in [r#"{"a":1,"a":1}"#, &nested(65), "1 2", "", "{", "\"\u{1}\"", "1e999", "[1,]", "nul"] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(parse(b"\"\xff\"").is_err());
    }

    #[test]
    fn values_are_limited() {
        let list = |values: usize| format!("[[1],{}0]", "0,".repeat(values));
        assert!(parse(list(100_000 - 3).as_bytes()).is_ok());
        assert!(parse(list(100_000 - 2).as_bytes()).is_err());
    }
}
