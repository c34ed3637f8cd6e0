//! The types of values.

use std::fmt::{self, Debug, Display};
use std::str::FromStr;
use std::time::Duration;

/// A type of values: every type that parses from text, and [`Secret`].
pub trait Value: Sized {
    /// Whether the value is a credential.
    const SECRET: bool = false;

    /// Parses the value.
    ///
    /// # Errors
    /// Returns a message, which becomes part of the error that prevents the start.
    fn parse(text: &str) -> Result<Self, String>;
}

impl<T> Value for T
where
    T: FromStr,
    T::Err: Display,
{
    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: T::Err| error.to_string())
    }
}

/// A credential. Only [`Secret::reveal`] shows it. Every text is a valid credential, so that no parser's message can
/// quote it. Code that parses the text further reports errors with [`Setting::malformed`](crate::Setting::malformed).
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a credential.
    #[must_use]
    pub const fn new(plaintext: String) -> Self {
        Self(plaintext)
    }

    /// Returns the plaintext.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Value for Secret {
    const SECRET: bool = true;

    fn parse(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }
}

/// On or off. Accepts all usual spellings; `bool` would accept only two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag(pub bool);

impl FromStr for Flag {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "1" | "true" | "on" => Ok(Self(true)),
            "0" | "false" | "off" => Ok(Self(false)),
            _ => Err("expected on, true, 1, off, false or 0"),
        }
    }
}

/// A number of bytes: `500`, or `10GiB` with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, unit) = text.split_at(text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len()));
        let unit = match unit {
            "" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1 << 40,
            _ => return Err("expected a number of bytes, optionally with the unit KiB, MiB, GiB or TiB"),
        };
        let number: u64 = number.parse().map_err(|_| "not a number of bytes")?;
        number.checked_mul(unit).map(Self).ok_or("too many bytes")
    }
}

/// A time between repetitions: a positive number with the unit `s`, `m` or `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval(pub Duration);

impl FromStr for Interval {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected a number with the unit s, m or h, such as 60s";
        let (number, unit) = text.split_at(text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len()));
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 60 * 60,
            _ => return Err(EXPECTED),
        };
        let number = number.parse::<u32>().ok().filter(|number| *number > 0).ok_or(EXPECTED)?;
        Ok(Self(Duration::from_secs(u64::from(number) * seconds)))
    }
}
