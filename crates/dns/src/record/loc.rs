//! LOC records (RFC 1876).
//!
//! In wire format, a size is one digit and a power of ten. So 1.25 m becomes 1 m, as in nameservers.

use super::field::Words;
use super::{InvalidRecord, reject};

/// The equator and the prime meridian, in thousandths of a second of arc.
const ZERO: u32 = 1 << 31;
const DEGREE: u32 = 3_600_000;
/// The distance from the altitude with the wire value 0 up to the reference spheroid, in centimetres.
const ALTITUDE_OFFSET: i64 = 10_000_000;
/// The default size, horizontal and vertical precision (section 3), in centimetres.
const DEFAULTS: [u64; 3] = [100, 1_000_000, 1_000];
const MAX_SIZE: u64 = 9_000_000_000;

pub(super) fn read(words: &mut Words<'_>) -> Result<Vec<u8>, InvalidRecord> {
    let latitude = angle(words, "N", "S", 90)?;
    let longitude = angle(words, "E", "W", 180)?;
    let altitude = altitude(words)?;
    let mut wire = vec![0];
    for default in DEFAULTS {
        wire.push(size(words, default)?);
    }
    for part in [latitude, longitude, altitude] {
        wire.extend(part.to_be_bytes());
    }
    Ok(wire)
}

pub(super) fn check(wire: &[u8]) -> Result<(), InvalidRecord> {
    let Some((version, sizes, latitude, longitude, _)) = parts(wire) else { return reject("is not a valid location") };
    if version != 0 {
        return reject(format!("has the unknown version {version}"));
    }
    if sizes.iter().any(|size| size >> 4 > 9 || size & 15 > 9) {
        return reject("has a size that is not a decimal digit and a power of ten");
    }
    for (what, angle, max) in [("latitude", latitude, 90), ("longitude", longitude, 180)] {
        if angle.abs_diff(ZERO) > max * DEGREE {
            return reject(format!("has a {what} of more than {max} degrees"));
        }
    }
    Ok(())
}

/// Clears the exponent of sizes of 0, so that equal sizes have equal bytes.
pub(super) fn normalize(wire: &mut [u8]) {
    for size in wire.iter_mut().skip(1).take(3).filter(|size| **size >> 4 == 0) {
        *size = 0;
    }
}

pub(super) fn text(wire: &[u8]) -> Option<String> {
    let (_, sizes, latitude, longitude, altitude) = parts(wire)?;
    let altitude = i64::from(altitude) - ALTITUDE_OFFSET;
    let mut text = format!("{} {} ", angle_text(latitude, "N", "S"), angle_text(longitude, "E", "W"));
    let sign = if altitude < 0 { "-" } else { "" };
    text.push_str(sign);
    text.push_str(&metres(altitude.unsigned_abs()));
    for size in sizes {
        let centimetres = u64::from(size >> 4) * 10_u64.pow(u32::from(size & 15));
        text.push(' ');
        text.push_str(&metres(centimetres));
    }
    Some(text)
}

/// Splits LOC data into version, sizes, latitude, longitude and altitude.
fn parts(wire: &[u8]) -> Option<(u8, [u8; 3], u32, u32, u32)> {
    let (head, rest) = wire.split_first_chunk::<4>()?;
    let [version, sizes @ ..] = *head;
    let (latitude, rest) = rest.split_first_chunk()?;
    let (longitude, rest) = rest.split_first_chunk()?;
    let number = |octets: &[u8; 4]| u32::from_be_bytes(*octets);
    Some((version, sizes, number(latitude), number(longitude), u32::from_be_bytes(rest.try_into().ok()?)))
}

/// Parses an angle: `degrees [minutes [seconds]] direction`.
fn angle(words: &mut Words<'_>, plus: &str, minus: &str, max: u32) -> Result<u32, InvalidRecord> {
    let error =
        |what: &str| InvalidRecord(format!("has an invalid angle, which should look like 51 30 12.748 {plus}: {what}"));
    let mut total = 0;
    for (unit, places, limit) in [(DEGREE, 0, max + 1), (60_000, 0, 60), (1, 3, 60_000), (0, 0, 0)] {
        let text = words.next().and_then(|word| word.bare()).ok_or_else(|| error("it is incomplete"))?;
        let is_first = unit == DEGREE;
        if !is_first && text.eq_ignore_ascii_case(plus) {
            return Ok(ZERO + total);
        }
        if !is_first && text.eq_ignore_ascii_case(minus) {
            return Ok(ZERO - total);
        }
        let value = decimal(text, places).and_then(|value| u32::try_from(value).ok()).filter(|value| *value < limit);
        total += value.ok_or_else(|| error(text))? * unit;
        if total > max * DEGREE {
            return Err(error(text));
        }
    }
    Err(error("the direction is missing"))
}

/// Parses an altitude from 100 km below to 42,849 km above the reference spheroid, to centimetres.
fn altitude(words: &mut Words<'_>) -> Result<u32, InvalidRecord> {
    let text = words.next().and_then(|word| word.bare()).unwrap_or_default();
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let centimetres = length(digits).and_then(|length| i64::try_from(length).ok());
    let wire = centimetres.and_then(|centimetres| u32::try_from(sign * centimetres + ALTITUDE_OFFSET).ok());
    wire.ok_or_else(|| InvalidRecord(format!("has an altitude that is not from -100000.00m to 42849672.95m: {text}")))
}

fn size(words: &mut Words<'_>, default: u64) -> Result<u8, InvalidRecord> {
    let mut mantissa = match words.next() {
        None => default,
        Some(word) => word.bare().and_then(length).filter(|length| *length <= MAX_SIZE).ok_or_else(|| {
            InvalidRecord(format!("has a size that is not from 0 to 90000000.00m: {}", word.truncated()))
        })?,
    };
    let mut exponent = 0;
    while mantissa > 9 {
        mantissa /= 10;
        exponent += 1;
    }
    Ok(u8::try_from(mantissa << 4).unwrap_or_default() | exponent)
}

/// Parses a length in metres, with or without the unit, to centimetres.
fn length(text: &str) -> Option<u64> {
    decimal(text.strip_suffix(['m', 'M']).unwrap_or(text), 2)
}

/// Parses a decimal number with up to `places` decimal places. Returns it as an integer, multiplied by 10 to the power
/// of `places`.
fn decimal(text: &str, places: usize) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || (fraction.len() > places && text.contains('.')) {
        return None;
    }
    let fraction = if places == 0 { "" } else { fraction };
    format!("{whole}{fraction:0<places$}").parse().ok()
}

fn angle_text(angle: u32, plus: &str, minus: &str) -> String {
    let thousandths = angle.abs_diff(ZERO);
    let (degrees, minutes) = (thousandths / DEGREE, thousandths / 60_000 % 60);
    let (seconds, rest) = (thousandths / 1000 % 60, thousandths % 1000);
    let direction = if angle < ZERO { minus } else { plus };
    format!("{degrees} {minutes} {seconds}.{rest:03} {direction}")
}

fn metres(centimetres: u64) -> String {
    format!("{}.{:02}m", centimetres / 100, centimetres % 100)
}
