//! Dates and timestamps: between the ISO style of Postgres and ISO 8601.
//!
//! Postgres prints `2024-01-02 03:04:05.6+00`, `10000-01-01` and `0044-03-15 BC`. In ISO 8601, these are
//! `2024-01-02T03:04:05.6Z`, `+010000-01-01` and `-000043-03-15`: it has a year 0. `Date` of JavaScript reads all of
//! these.

use std::borrow::Cow;

const ERA: &str = " BC";

/// Returns a date or timestamp in ISO 8601. Returns any other text, such as `infinity`, unchanged.
pub fn to_iso(text: &str) -> Cow<'_, str> {
    convert_to_iso(text).map_or(Cow::Borrowed(text), Cow::Owned)
}

fn convert_to_iso(text: &str) -> Option<String> {
    let (text, is_bc) = text.strip_suffix(ERA).map_or((text, false), |text| (text, true));
    let (year, rest) = text.split_once('-')?;
    if year.len() < 4 || !year.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: i32 = year.parse().ok()?;
    let mut iso = match if is_bc { 1 - number } else { number } {
        number @ 0..=9999 => format!("{number:04}-"),
        number => format!("{number:+07}-"),
    };
    let Some((day, time)) = rest.split_once(' ') else {
        iso.push_str(rest);
        return Some(iso);
    };
    iso.push_str(day);
    iso.push('T');
    let (clock, offset) = time.find(['+', '-']).and_then(|at| time.split_at_checked(at)).unwrap_or((time, ""));
    iso.push_str(clock);
    match offset {
        "+00" => iso.push('Z'),
        // Postgres omits zero minutes.
        offset if offset.len() == 3 => iso.extend([offset, ":00"]),
        offset => iso.push_str(offset),
    }
    Some(iso)
}

/// Returns a date or timestamp as Postgres reads it. Converts only those years of ISO 8601 that Postgres does not read.
pub fn from_iso(text: &str) -> Cow<'_, str> {
    convert_from_iso(text).map_or(Cow::Borrowed(text), Cow::Owned)
}

fn convert_from_iso(text: &str) -> Option<String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (year, rest) = digits.split_once('-')?;
    let is_signed = digits.len() < text.len() && year.len() >= 6;
    if !(is_signed || year == "0000") || !year.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: i32 = year.parse().ok()?;
    Some(match if text.starts_with('-') { -number } else { number } {
        number @ ..=0 => format!("{:04}-{rest}{ERA}", 1 - number),
        number => format!("{number:04}-{rest}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_converted_in_both_directions() {
        for (postgres, iso) in [
            ("2024-01-02", "2024-01-02"),
            ("10000-01-01", "+010000-01-01"),
            ("5874897-12-31", "+5874897-12-31"),
            ("0001-01-01 BC", "0000-01-01"),
            ("0044-03-15 BC", "-000043-03-15"),
            ("4713-01-01 BC", "-004712-01-01"),
            ("infinity", "infinity"),
            ("-infinity", "-infinity"),
        ] {
            assert_eq!(to_iso(postgres), iso);
            assert_eq!(from_iso(iso), postgres);
        }
        for (postgres, iso) in [
            ("2024-01-02 03:04:05+00", "2024-01-02T03:04:05Z"),
            ("2024-01-02 03:04:05.123456", "2024-01-02T03:04:05.123456"),
            ("2024-01-02 03:04:05+01", "2024-01-02T03:04:05+01:00"),
            ("2024-01-02 03:04:05-05:30", "2024-01-02T03:04:05-05:30"),
            ("1890-01-02 03:04:05+00:53:28", "1890-01-02T03:04:05+00:53:28"),
            ("0044-03-15 12:00:00.5+00 BC", "-000043-03-15T12:00:00.5Z"),
            ("294276-12-31 23:59:59.999999+00", "+294276-12-31T23:59:59.999999Z"),
            // Other styles
            ("02.01.2024", "02.01.2024"),
            ("02-01-2024", "02-01-2024"),
            ("", ""),
        ] {
            assert_eq!(to_iso(postgres), iso);
        }
        for (iso, postgres) in [
            ("+010000-01-01T00:00:00.000Z", "10000-01-01T00:00:00.000Z"),
            ("-000001-12-31T23:59:59.000Z", "0002-12-31T23:59:59.000Z BC"),
            ("0000-01-01T00:00:00.000Z", "0001-01-01T00:00:00.000Z BC"),
            ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
            ("-00-1", "-00-1"),
            ("+99999999999-01-01", "+99999999999-01-01"),
            ("yesterday", "yesterday"),
        ] {
            assert_eq!(from_iso(iso), postgres);
        }
    }
}
