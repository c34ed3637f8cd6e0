//! Writes the values of columns as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::array::{Part, Parts};
use super::time::to_iso;
use super::{Scalar, Type};
use crate::pg::output::{Output, TooLarge};

/// Bytes are converted in parts of this size. A multiple of three, so that the base64 of the parts can be joined.
const PART_BYTES: usize = 24 << 10;

/// Appends a value; `None` is NULL.
///
/// # Errors
/// Returns an error if the result becomes too large.
pub fn write_value(output: &mut Output, column: &Type, text: Option<&[u8]>) -> Result<(), TooLarge> {
    match (text, column.array) {
        (None, _) => output.push(b"null"),
        (Some(text), None) => write_scalar(output, column.scalar, text),
        (Some(text), Some(delimiter)) => write_array(output, column.scalar, Parts::new(text, delimiter)),
    }
}

fn write_array(output: &mut Output, scalar: Scalar, parts: Parts<'_>) -> Result<(), TooLarge> {
    let mut depth = 0_usize;
    let mut is_first = true;
    for part in parts {
        if !is_first && part != Part::Close {
            output.push(b",")?;
        }
        is_first = part == Part::Open;
        match part {
            Part::Open => {
                depth += 1;
                output.push(b"[")?;
            }
            Part::Close if depth > 0 => {
                depth -= 1;
                output.push(b"]")?;
            }
            Part::Close => {}
            Part::Null => output.push(b"null")?,
            Part::Element(element) => write_scalar(output, scalar, &element)?,
        }
    }
    Ok(())
}

fn write_scalar(output: &mut Output, scalar: Scalar, text: &[u8]) -> Result<(), TooLarge> {
    match scalar {
        Scalar::Bool => output.push(if text == b"t" { b"true" } else { b"false" }),
        Scalar::Integer | Scalar::Float if is_number(text) => output.push(text),
        Scalar::Json => output.push(text),
        Scalar::Bytes => write_bytes(output, text),
        Scalar::Timestamp | Scalar::Date => output.push_text(&to_iso(&String::from_utf8_lossy(text))),
        Scalar::Integer | Scalar::Float | Scalar::Text => output.push_text(&String::from_utf8_lossy(text)),
    }
}

/// Returns whether JSON can represent the text as a number. Postgres also prints `NaN` and `Infinity`.
fn is_number(text: &[u8]) -> bool {
    text.strip_prefix(b"-").unwrap_or(text).first().is_some_and(u8::is_ascii_digit)
}

/// Appends bytes in base64.
fn write_bytes(output: &mut Output, text: &[u8]) -> Result<(), TooLarge> {
    output.push(b"\"")?;
    if let Some(digits) = text.strip_prefix(b"\\x") {
        for part in digits.chunks(2 * PART_BYTES) {
            let bytes: Vec<u8> = part.chunks_exact(2).map(from_hex).collect();
            output.push(STANDARD.encode(bytes).as_bytes())?;
        }
    } else {
        // An earlier statement of the same batch changed `bytea_output`.
        output.push(STANDARD.encode(unescape(text)).as_bytes())?;
    }
    output.push(b"\"")
}

fn from_hex(digits: &[u8]) -> u8 {
    digits.iter().fold(0, |byte, digit| (byte << 4) | (char::from(*digit).to_digit(16).unwrap_or_default() as u8))
}

/// Decodes bytes in the format `escape`: `\\` and `\ooo`.
fn unescape(mut text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((first, rest)) = text.split_first() {
        let octal = rest.split_at_checked(3).filter(|(digits, _)| digits.iter().all(|it| matches!(it, b'0'..=b'7')));
        text = match (first, octal) {
            (b'\\', Some((digits, rest))) => {
                bytes.push(digits.iter().fold(0_u8, |byte, digit| (byte << 3) | (digit - b'0')));
                rest
            }
            (b'\\', None) => {
                bytes.push(b'\\');
                rest.get(1..).unwrap_or_default()
            }
            (byte, _) => {
                bytes.push(*byte);
                rest
            }
        };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::Types;
    use super::*;

    fn json(text: &str, id: u32) -> String {
        let (mut output, _) = Output::new(1 << 20);
        write_value(&mut output, &Types::default().get(id).unwrap(), Some(text.as_bytes())).unwrap();
        output.take_text()
    }

    #[test]
    fn values_become_json() {
        for (text, id, expected) in [
            ("t", 16, "true"),
            ("f", 16, "false"),
            ("-7", 23, "-7"),
            ("9223372036854775807", 20, r#""9223372036854775807""#),
            ("NaN", 1700, r#""NaN""#),
            ("1e-07", 701, "1e-07"),
            ("-0", 701, "-0"),
            ("NaN", 701, r#""NaN""#),
            ("-Infinity", 700, r#""-Infinity""#),
            (r#"{"a": [1, null]}"#, 114, r#"{"a": [1, null]}"#),
            ("null", 3802, "null"),
            ("a\"\n\u{1}é", 25, r#""a\"\n\u0001é""#),
            (r"\x00ff", 17, r#""AP8=""#),
            (r"\x", 17, r#""""#),
            (r"a\\\000\377", 17, r#""YVwA/w==""#),
            ("2024-01-02 03:04:05+00", 1184, r#""2024-01-02T03:04:05Z""#),
            ("infinity", 1082, r#""infinity""#),
            ("{}", 1007, "[]"),
            ("[0:1]={1,NULL}", 1007, "[1,null]"),
            ("{{1,2},{3,4}}", 1007, "[[1,2],[3,4]]"),
            (r#"{t,f}"#, 1000, "[true,false]"),
            (r#"{"\\x00","\\xff"}"#, 1001, r#"["AA==","/w=="]"#),
            (r#"{"{\"a\": 1}",null,NULL}"#, 3807, r#"[{"a": 1},null,null]"#),
            (r#"{"2024-01-02 03:04:05"}"#, 1115, r#"["2024-01-02T03:04:05"]"#),
            (r#"{NaN,1.5}"#, 1022, r#"["NaN",1.5]"#),
        ] {
            assert_eq!(json(text, id), expected, "{text} {id}");
        }
    }

    #[test]
    fn parts_of_bytes_are_joined() {
        let text = format!("\\x{}", "ab".repeat(PART_BYTES + 1));
        let encoded: String = serde_json::from_str(&json(&text, 17)).unwrap();
        assert_eq!(STANDARD.decode(encoded).unwrap(), vec![0xab; PART_BYTES + 1]);
    }
}
