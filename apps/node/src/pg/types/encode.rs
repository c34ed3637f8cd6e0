//! Writes parameters as Postgres reads them.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::array::push_element;
use super::time::from_iso;
use super::{Scalar, Type};
use crate::pg::error::{DatabaseError, Result};
use crate::pg::parameter::Parameter;

/// A parameter in the protocol.
#[derive(Debug, PartialEq, Eq)]
pub struct Encoded<'a> {
    pub is_binary: bool,
    /// `None` for NULL.
    pub value: Option<Cow<'a, [u8]>>,
}

/// Writes a parameter for the type that Postgres expects. `number` is the position of the parameter, from 1.
///
/// # Errors
/// Returns [`DatabaseError::InvalidArgument`] if the type has no such values. Postgres checks everything else.
pub fn encode<'a>(parameter: &'a Parameter<'_>, expected: &Type, number: usize) -> Result<Encoded<'a>> {
    let encoded = match (parameter, expected.array, expected.scalar) {
        (Parameter::Null, ..) => return Ok(Encoded { is_binary: false, value: None }),
        (Parameter::Bytes(bytes), None, Scalar::Bytes) => {
            return Ok(Encoded { is_binary: true, value: Some(bytes.into()) });
        }
        (Parameter::Array(elements), Some(delimiter), scalar) => {
            let mut text = String::new();
            push_array(&mut text, elements, scalar, char::from(delimiter)).map(|()| text.into())
        }
        // This text denotes the whole array.
        (Parameter::Text(text), Some(_), _) => Some(Cow::Borrowed(&**text)),
        (_, Some(_), _) => None,
        (parameter, None, scalar) => scalar_text(parameter, scalar),
    };
    let text = encoded.ok_or_else(|| {
        let (name, kind) = (&expected.name, parameter.kind());
        DatabaseError::InvalidArgument(format!("Parameter ${number} has the type {name} and cannot be {kind}."))
    })?;
    let value = match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    };
    Ok(Encoded { is_binary: false, value: Some(value) })
}

/// Returns a value other than null and arrays as text; `None` if the value does not fit the type.
fn scalar_text<'a>(parameter: &'a Parameter<'_>, scalar: Scalar) -> Option<Cow<'a, str>> {
    match (parameter, scalar) {
        (_, Scalar::Json) => {
            let mut json = String::new();
            push_json(&mut json, parameter).map(|()| json.into())
        }
        (Parameter::Text(text) | Parameter::Date(text), Scalar::Timestamp | Scalar::Date) => Some(from_iso(text)),
        (Parameter::Bytes(bytes), Scalar::Bytes) => Some(hex(bytes).into()),
        (Parameter::Text(text), _) => Some(Cow::Borrowed(text)),
        (_, Scalar::Bytes) => None,
        (Parameter::Number(text) | Parameter::Date(text), _) => Some(Cow::Borrowed(text)),
        (Parameter::Bool(value), _) => Some(Cow::Borrowed(if *value { "true" } else { "false" })),
        _ => None,
    }
}

fn push_array(text: &mut String, elements: &[Parameter<'_>], scalar: Scalar, delimiter: char) -> Option<()> {
    text.push('{');
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            text.push(delimiter);
        }
        match element {
            Parameter::Null => text.push_str("NULL"),
            // In a JSON array, every element is a JSON value, even if it is an array.
            Parameter::Array(nested) if scalar != Scalar::Json => push_array(text, nested, scalar, delimiter)?,
            element => push_element(text, &scalar_text(element, scalar)?),
        }
    }
    text.push('}');
    Some(())
}

/// Appends the JSON that `JSON.stringify` would return. Fails for bytes.
fn push_json(json: &mut String, parameter: &Parameter<'_>) -> Option<()> {
    match parameter {
        Parameter::Null => json.push_str("null"),
        Parameter::Bool(value) => json.push_str(if *value { "true" } else { "false" }),
        Parameter::Number(text) if text.ends_with(['N', 'y']) => json.push_str("null"),
        Parameter::Number(text) | Parameter::Object(text) => json.push_str(text),
        Parameter::Text(text) | Parameter::Date(text) => json.push_str(&serde_json::to_string(text).ok()?),
        Parameter::Bytes(_) => return None,
        Parameter::Array(elements) => {
            json.push('[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    json.push(',');
                }
                push_json(json, element)?;
            }
            json.push(']');
        }
    }
    Some(())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("\\x");
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Types;
    use super::*;

    fn text(parameter: &str, id: u32) -> Result<Option<String>> {
        let parameter = serde_json::from_str(parameter).unwrap();
        let encoded = encode(&parameter, &Types::default().get(id).unwrap(), 1)?;
        Ok(encoded.value.map(|value| String::from_utf8(value.into_owned()).unwrap()))
    }

    #[test]
    fn parameters_follow_the_type() {
        let [int4, text_type, bool, bytea, jsonb, timestamptz] = [23, 25, 16, 17, 3802, 1184];
        for (parameter, id, expected) in [
            (r#""n5""#, int4, "5"),
            (r#""n1.5""#, text_type, "1.5"),
            (r#""t""#, bool, "true"),
            (r#""sx""#, bool, "x"),
            (r#""s\\x00""#, bytea, "\\x00"),
            (r#""sa\"b""#, jsonb, r#""a\"b""#),
            (r#""sa\"b""#, text_type, "a\"b"),
            (r#""j{\"a\":1}""#, jsonb, r#"{"a":1}"#),
            (
                r#"["n1", null, "nNaN", "n-Infinity", "t", ["sx"], "d2024", "j{}"]"#,
                jsonb,
                r#"[1,null,null,null,true,["x"],"2024",{}]"#,
            ),
            (r#""d+010000-01-01T00:00:00.000Z""#, timestamptz, "10000-01-01T00:00:00.000Z"),
            (r#""d2024-01-01T00:00:00.000Z""#, text_type, "2024-01-01T00:00:00.000Z"),
            (r#"["n1", null, ["n2"]]"#, 1007, r#"{"1",NULL,{"2"}}"#),
            (r#"["sNULL", "s", "sa,\"\\"]"#, 1009, r#"{"NULL","","a,\"\\"}"#),
            (r#"["b/w=="]"#, 1001, r#"{"\\xff"}"#),
            (r#"[["n1"], "sx", null]"#, 3807, r#"{"[1]","\"x\"",NULL}"#),
            (r#"["d-000001-01-01T00:00:00.000Z"]"#, 1185, r#"{"0002-01-01T00:00:00.000Z BC"}"#),
            (r#""s{1,2}""#, 1007, "{1,2}"),
        ] {
            assert_eq!(text(parameter, id).unwrap().as_deref(), Some(expected), "{parameter} {id}");
        }
        let parameter = Parameter::Bytes(vec![0, 255]);
        let encoded = encode(&parameter, &Types::default().get(bytea).unwrap(), 1);
        assert_eq!(encoded, Ok(Encoded { is_binary: true, value: Some(Cow::Borrowed(&[0, 255])) }));
        assert_eq!(text("null", jsonb), Ok(None));
    }

    #[test]
    fn impossible_values_are_named() {
        for (parameter, id) in [
            (r#""b""#, 25),
            (r#""b""#, 3802),
            (r#"["b"]"#, 3802),
            (r#""n1""#, 17),
            (r#""t""#, 17),
            (r#""j{}""#, 25),
            (r#"["n1"]"#, 23),
            (r#""n1""#, 1007),
            (r#"["j{}"]"#, 1009),
        ] {
            let error = text(parameter, id).unwrap_err();
            assert_eq!(error.code(), "invalid_argument");
            assert!(error.to_string().starts_with("Parameter $1 has the type "), "{error}");
        }
    }
}
