//! The parameters of statements, as the module of the binding writes them.
//!
//! A parameter is JSON: null, an array of parameters, or a string whose first character is the kind of the rest: `s` a
//! string, `n` a number or bigint, `t` or `f` a boolean, `b` bytes in base64, `d` a date in ISO 8601, `j` another
//! object as JSON.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A value of worker code.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter<'a> {
    Null,
    Text(Cow<'a, str>),
    /// A number, as JavaScript prints it.
    Number(Cow<'a, str>),
    Bool(bool),
    Bytes(Vec<u8>),
    Date(Cow<'a, str>),
    /// JSON text.
    Object(Cow<'a, str>),
    Array(Vec<Self>),
}

impl Parameter<'_> {
    /// Returns the kind, as messages name it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Text(_) => "a string",
            Self::Number(_) => "a number",
            Self::Bool(_) => "a boolean",
            Self::Bytes(_) => "binary data",
            Self::Date(_) => "a Date",
            Self::Object(_) => "an object",
            Self::Array(_) => "an array",
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Parameter<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ParameterVisitor)
    }
}

struct ParameterVisitor;

impl<'de> Visitor<'de> for ParameterVisitor {
    type Value = Parameter<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a parameter")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Parameter::Null)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        scalar(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        scalar(Cow::Owned(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = sequence.next_element()? {
            elements.push(element);
        }
        // The smallest capacity is that of four elements.
        elements.shrink_to_fit();
        Ok(Parameter::Array(elements))
    }
}

fn scalar<E: Error>(text: Cow<'_, str>) -> Result<Parameter<'_>, E> {
    let Some(kind) = text.chars().next() else { return Err(E::custom("a parameter has no kind")) };
    let value = match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.get(kind.len_utf8()..).unwrap_or_default()),
        Cow::Owned(mut text) => {
            text.remove(0);
            Cow::Owned(text)
        }
    };
    Ok(match kind {
        's' => Parameter::Text(value),
        'n' => Parameter::Number(value),
        't' => Parameter::Bool(true),
        'f' => Parameter::Bool(false),
        'b' => Parameter::Bytes(STANDARD.decode(value.as_bytes()).map_err(E::custom)?),
        'd' => Parameter::Date(value),
        'j' => Parameter::Object(value),
        _ => return Err(E::custom("unknown kind of parameter")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read() {
        let text = r#"["sa", "s\n", "n1e+21", "t", "f", "b/w==", "d2024", "j{\"a\":1}", null, [], ["s", [null]]]"#;
        let read: Parameter<'_> = serde_json::from_str(text).unwrap();
        let expected = vec![
            Parameter::Text("a".into()),
            Parameter::Text("\n".into()),
            Parameter::Number("1e+21".into()),
            Parameter::Bool(true),
            Parameter::Bool(false),
            Parameter::Bytes(vec![255]),
            Parameter::Date("2024".into()),
            Parameter::Object(r#"{"a":1}"#.into()),
            Parameter::Null,
            Parameter::Array(Vec::new()),
            Parameter::Array(vec![Parameter::Text("".into()), Parameter::Array(vec![Parameter::Null])]),
        ];
        assert_eq!(read, Parameter::Array(expected));
        for text in [r#""""#, r#""x""#, r#""b=""#, "1", "true", "{}"] {
            assert!(serde_json::from_str::<Parameter<'_>>(text).is_err(), "{text}");
        }
    }
}
