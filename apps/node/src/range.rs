//! Range requests, RFC 9110 14.

use actix_web::http::header::{HeaderMap, RANGE};

/// The requested range of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// The whole content. This also applies to several ranges and to a malformed field, both of which a server may
    /// ignore.
    Whole,
    /// The bytes from `first` to `last`, both included.
    Part { first: u64, last: u64 },
    /// The range is outside the content.
    Unsatisfiable,
}

/// Reads the `Range` of a request for a content of `size` bytes.
pub fn requested(headers: &HeaderMap, size: u64) -> ByteRange {
    let mut lines = headers.get_all(RANGE);
    let (Some(line), None) = (lines.next(), lines.next()) else { return ByteRange::Whole };
    let range = line.to_str().ok().and_then(|line| line.split_once('='));
    match range {
        // An empty content has no valid range.
        Some((unit, range)) if unit.eq_ignore_ascii_case("bytes") && size > 0 => {
            part(range.trim(), size).unwrap_or(ByteRange::Whole)
        }
        _ => ByteRange::Whole,
    }
}

fn part(range: &str, size: u64) -> Option<ByteRange> {
    let (first, last) = range.split_once('-')?;
    if first.is_empty() {
        let length = number(last)?.min(size);
        return Some(if length == 0 {
            ByteRange::Unsatisfiable
        } else {
            ByteRange::Part { first: size - length, last: size - 1 }
        });
    }
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if first > last {
        return None;
    }
    Some(if first < size { ByteRange::Part { first, last: last.min(size - 1) } } else { ByteRange::Unsatisfiable })
}

/// Parses a number. Returns `u64::MAX` if the number does not fit.
fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    fn requested(lines: &[&'static str], size: u64) -> ByteRange {
        let lines = lines.iter().map(|line| (RANGE, HeaderValue::from_static(line)));
        super::requested(&HeaderMap::from_iter(lines), size)
    }

    #[test]
    fn single_range_is_used_and_other_fields_are_ignored() {
        use ByteRange::{Part, Unsatisfiable, Whole};
        for (line, expected) in [
            ("bytes=0-0", Part { first: 0, last: 0 }),
            ("bytes=0-9", Part { first: 0, last: 9 }),
            ("bytes=2-", Part { first: 2, last: 9 }),
            ("bytes=9-", Part { first: 9, last: 9 }),
            ("bytes=-3", Part { first: 7, last: 9 }),
            ("bytes=-100", Part { first: 0, last: 9 }),
            ("bytes=5-99999999999999999999999999", Part { first: 5, last: 9 }),
            ("Bytes= 1-2 ", Part { first: 1, last: 2 }),
            ("bytes=10-", Unsatisfiable),
            ("bytes=10-20", Unsatisfiable),
            ("bytes=99999999999999999999999999-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=0-1,3-4", Whole),
            ("bytes=4-3", Whole),
            ("bytes=-", Whole),
            ("bytes=", Whole),
            ("bytes", Whole),
            ("bytes=+1-2", Whole),
            ("bytes=1-+2", Whole),
            ("bytes=a-b", Whole),
            ("bytes=--1", Whole),
            ("items=0-1", Whole),
            ("", Whole),
        ] {
            assert_eq!(requested(&[line], 10), expected, "{line}");
        }
        assert_eq!(requested(&[], 10), Whole);
        assert_eq!(requested(&["bytes=0-1", "bytes=0-1"], 10), Whole);
        for line in ["bytes=0-", "bytes=-1", "bytes=0-0"] {
            assert_eq!(requested(&[line], 0), Whole);
        }
    }
}
