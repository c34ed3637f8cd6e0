//! Points in time, to the millisecond, in UTC.

use chrono::{DateTime, SecondsFormat, SubsecRound, TimeDelta, Utc};
use diesel::deserialize::{self, FromSql};
use diesel::pg::{Pg, PgValue};
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::Timestamptz;

/// A point in time. On the wire it is RFC 3339 in UTC with `Z` and milliseconds (contract section 1). Stored times have
/// the same precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, diesel::AsExpression, diesel::FromSqlRow)]
#[diesel(sql_type = Timestamptz)]
pub struct Time(DateTime<Utc>);

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
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl std::str::FromStr for Time {
    type Err = chrono::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        DateTime::parse_from_rfc3339(text).map(|at| Self::new(at.to_utc()))
    }
}

impl serde::Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        DateTime::<Utc>::deserialize(from).map(Self::new)
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
        assert!("2026-11-21".parse::<Time>().is_err());
    }
}
