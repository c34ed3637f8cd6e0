//! The parameters of the paths of zones and rrsets.

use std::convert::Infallible;
use std::str::FromStr;

use dns::RecordType;

use crate::http::{Path, PathParameter, path_texts};

path_texts! {
    ZoneParameter: "The zone's name, in Unicode or punycode.", "example.org";
    RrsetName: "`@`, a name relative to the zone, or an absolute one.", "www";
}

/// The path of an rrset.
pub(super) type RrsetPath = Path<(ZoneParameter, RrsetName, RrsetType)>;

/// The type of an rrset, as text: the service names the types that it knows.
#[derive(Debug)]
pub(super) struct RrsetType(pub(super) String);

impl FromStr for RrsetType {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl PathParameter for RrsetType {
    const DESCRIPTION: &'static str = "The type of the records.";

    fn schema() -> serde_json::Value {
        serde_json::to_value(<RecordType as utoipa::PartialSchema>::schema()).unwrap_or_default()
    }

    fn example() -> Option<serde_json::Value> {
        Some("A".into())
    }
}
