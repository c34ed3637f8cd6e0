//! Points in time, to the millisecond, in UTC.

use chrono::{DateTime, Datelike as _, SecondsFormat, SubsecRound, TimeDelta, Utc};
use diesel::deserialize::{self, FromSql};
use diesel::pg::{Pg, PgValue};
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::Timestamptz;
use serde::de::Error as _;

/// A point in time. On the wire it is RFC 3339 in UTC with `Z` and milliseconds (contract section 1). Stored times have
/// the same precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, diesel::AsExpression, diesel::FromSqlRow)]
#[diesel(sql_type = Timestamptz)]
pub struct Time(DateTime<Utc>);

/// The text is not a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a time in the format of RFC 3339, such as 2026-11-21T08:00:00Z")]
pub struct InvalidTime;

impl Time {
    /// 1970-01-01T00:00:00.000Z.
    pub const UNIX_EPOCH: Self = Self(DateTime::UNIX_EPOCH);

    /// Truncates a time to milliseconds.
    #[must_use]
    pub fn new(at: DateTime<Utc>) -> Self {
        Self(at.trunc_subsecs(3))
    }

    /// Returns the time `seconds` later.
    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Self {
        Self(self.0 + TimeDelta::seconds(seconds))
    }

    /// Returns the time `millis` milliseconds later.
    #[must_use]
    pub fn plus_millis(self, millis: i64) -> Self {
        Self(self.0 + TimeDelta::milliseconds(millis))
    }

    /// Returns the whole seconds since the Unix epoch; negative before it.
    #[must_use]
    pub fn unix_seconds(self) -> i64 {
        self.0.timestamp()
    }

    /// Returns the milliseconds since the Unix epoch; negative before it.
    #[must_use]
    pub fn unix_millis(self) -> i64 {
        self.0.timestamp_millis()
    }

    /// Returns the seconds from an earlier time to this one, rounded up; not positive if this time is not later.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> i64 {
        (self.unix_millis() - earlier.unix_millis() + 999).div_euclid(1000)
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl std::str::FromStr for Time {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let at = DateTime::parse_from_rfc3339(text).map_err(|_| InvalidTime)?.to_utc();
        // RFC 3339 years have four digits. In UTC, a time with an offset can be in another year.
        if (0..=9999).contains(&at.year()) { Ok(Self::new(at)) } else { Err(InvalidTime) }
    }
}

impl serde::Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl ToSql<Timestamptz, Pg> for Time {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        ToSql::<Timestamptz, Pg>::to_sql(&self.0, out)
    }
}

impl FromSql<Timestamptz, Pg> for Time {
    fn from_sql(bytes: PgValue<'_>) -> deserialize::Result<Self> {
        <DateTime<Utc> as FromSql<Timestamptz, Pg>>::from_sql(bytes).map(Self::new)
    }
}

crate::string_schema!(Time, |schema| schema
    .format(Some(openapi::SchemaFormat::KnownFormat(openapi::KnownFormat::DateTime)))
    .description(Some("a point in time: RFC 3339, UTC, milliseconds"))
    .examples(["2026-11-21T08:00:00.000Z"]));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serializes_in_utc_with_milliseconds() {
        let time: Time = serde_json::from_str("\"2026-11-21T10:00:00.123987+02:00\"").expect("a time");
        assert_eq!(serde_json::to_string(&time).expect("text"), "\"2026-11-21T08:00:00.123Z\"");
        assert_eq!(time.plus_seconds(-1).to_string(), "2026-11-21T07:59:59.123Z");
        assert_eq!(time.to_string().parse(), Ok(time));
    }

    #[test]
    fn accepts_only_rfc_3339() {
        for text in [
            "2026-11-21",
            "2026-11-21T08:00:00",
            "2030-1-1 0:0:0 UTC",
            "+12345-01-01T00:00:00Z",
            "-0001-01-01T00:00:00Z",
            "0000-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "",
        ] {
            assert!(serde_json::from_value::<Time>(text.into()).is_err(), "{text}");
            assert_eq!(text.parse::<Time>(), Err(InvalidTime), "{text}");
        }
        for text in ["0000-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"] {
            assert_eq!(text.parse::<Time>().expect("a time").to_string(), text);
        }
    }
}
