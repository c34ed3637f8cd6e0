//! Prices: decimal US dollars as the registrar sends them, and cents. No value passes through binary floating point.

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer};
use serde_json::value::RawValue;

/// One million US dollars. A higher price is an error of the registrar.
const MAX_CENTS: i64 = 100_000_000;
/// The digits of [`MAX_CENTS`]. A number with more digits before its decimal point is higher.
const MAX_DIGITS: i64 = 9;

/// Deserializes a price in dollars, a number or a string, as cents.
pub(super) fn cents<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let Some(raw) = Option::<Box<RawValue>>::deserialize(deserializer)? else { return Ok(None) };
    let price = match raw.get() {
        text if text.starts_with('"') => serde_json::from_str::<String>(text).ok().and_then(|text| parse(&text)),
        number => parse(number),
    };
    price.map(Some).ok_or_else(|| D::Error::custom("not a price"))
}

/// Cents as the JSON number of dollars.
pub(super) fn dollars(cents: i64) -> serde_json::Result<Box<RawValue>> {
    RawValue::from_string(format!("{}.{:02}", cents / 100, cents % 100))
}

/// Parses a decimal number of dollars, with an optional exponent (RFC 8259 section 6). Rounds half up to cents. `None`
/// for a negative number and above [`MAX_CENTS`].
fn parse(text: &str) -> Option<i64> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
        None => (text, 0),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (mantissa, ""),
    };
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (digits, fraction_digits) = (format!("{whole}{fraction}"), i64::try_from(fraction.len()).ok()?);
    let leading_zeros = digits.bytes().take_while(|byte| *byte == b'0').count();
    let digits = digits.get(leading_zeros..)?;
    // The number of digits of the price in whole cents. The digits after them decide how the price is rounded.
    let whole_cents = i64::try_from(digits.len()).ok()?.saturating_sub(fraction_digits).saturating_add(exponent + 2);
    if digits.is_empty() || whole_cents < 0 {
        return Some(0);
    }
    if whole_cents > MAX_DIGITS {
        return None;
    }
    let whole_cents = usize::try_from(whole_cents).ok()?;
    let value = digits.bytes().chain(std::iter::repeat(b'0')).take(whole_cents);
    let value = value.fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
    let rounds_up = digits.as_bytes().get(whole_cents).is_some_and(|digit| *digit >= b'5');
    Some(value + i64::from(rounds_up)).filter(|cents| *cents <= MAX_CENTS)
}

/// Parses an exponent. Clamps it to ±1,000,000,000: beyond that, the price is zero or too high, whatever its digits.
fn parse_exponent(text: &str) -> Option<i64> {
    const MAX_EXPONENT: i64 = 1_000_000_000;
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, text.get(1..)?),
        b'+' => (1, text.get(1..)?),
        _ => (1, text),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(sign * digits.parse().unwrap_or(MAX_EXPONENT).min(MAX_EXPONENT))
}
