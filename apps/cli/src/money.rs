//! Amounts of money: US dollars for people, microcents in the API.

use std::str::FromStr;

const MICRO_CENTS_PER_DOLLAR: u64 = 100_000_000;
pub const MICRO_CENTS_PER_CENT: i64 = 1_000_000;
/// The digits of a microcent after the point.
const DIGITS: usize = 8;

/// An amount of dollars that a user enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dollars {
    pub micro_cents: i64,
}

impl FromStr for Dollars {
    type Err = &'static str;

    /// Parses `25`, `$25` or `0.5`, exactly.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.strip_prefix('$').unwrap_or(text);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > DIGITS {
            return Err("not an amount in dollars, such as 25 or 2.50");
        }
        // The text contains only digits, so parsing fails only on an overflow.
        let digits = format!("{whole}{fraction:0<DIGITS$}");
        let micro_cents = digits.parse().map_err(|_| "the amount is too large")?;
        Ok(Self { micro_cents })
    }
}

/// Formats an amount exactly, with at least the cents.
pub fn dollars(micro_cents: i64) -> String {
    let (amount, sign) = (micro_cents.unsigned_abs(), if micro_cents < 0 { "-" } else { "" });
    let fraction = format!("{:0>DIGITS$}", amount % MICRO_CENTS_PER_DOLLAR);
    let fraction = format!("{:0<2}", fraction.trim_end_matches('0'));
    format!("{sign}${}.{fraction}", amount / MICRO_CENTS_PER_DOLLAR)
}

/// Formats an amount in cents.
pub fn from_cents(cents: i64) -> String {
    dollars(cents.saturating_mul(MICRO_CENTS_PER_CENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        for (micro_cents, text) in [
            (0, "$0.00"),
            (1, "$0.00000001"),
            (-624, "-$0.00000624"),
            (1_000_000, "$0.01"),
            (10_000_000, "$0.10"),
            (123_456_789_012, "$1234.56789012"),
            (i64::MIN, "-$92233720368.54775808"),
        ] {
            assert_eq!(dollars(micro_cents), text);
        }
    }

    #[test]
    fn amounts_are_parsed_exactly() {
        let parse = |text: &str| text.parse::<Dollars>().map(|it| it.micro_cents);
        for (text, micro_cents) in [
            ("25", 2_500_000_000),
            ("$25", 2_500_000_000),
            ("0.5", 50_000_000),
            ("0.00000001", 1),
            ("007", 700_000_000),
        ] {
            assert_eq!(parse(text), Ok(micro_cents), "{text}");
        }
        for text in ["", "$", "-5", "+5", "1e3", "5.", ".5", "5,0", "0.000000001", "$$5", "99999999999999"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
