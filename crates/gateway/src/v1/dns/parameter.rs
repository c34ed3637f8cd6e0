//! The path parameters of zones and rrsets.

use std::str::FromStr;

use dns::RecordType;
use kernel::{InvalidField, InvalidText};
use serde_json::{Value, json};

use crate::http::{Path, PathParameter, SEGMENT, text_path_parameters};
use crate::problem::Problem;

// The type of an rrset stays unparsed, because the error of the service lists the known types.
text_path_parameters! {
    ZoneParameter: "The zone's name, in Unicode or punycode.", "example.org";
    RrsetType as RecordType: "The rrset's type.", "A";
}

/// The name of an rrset in a path. The context parses it.
#[derive(Debug)]
pub(crate) struct RrsetName(pub(crate) String);

impl FromStr for RrsetName {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Proxies may decode `%2F`, which would then separate segments.
        if text.contains('/') { Err(InvalidText::Forbidden("contain a slash")) } else { Ok(Self(text.to_owned())) }
    }
}

impl PathParameter for RrsetName {
    const DESCRIPTION: &'static str =
        "The rrset's name, without a slash: `@`, a name relative to the zone, or an absolute name.";

    fn schema() -> Value {
        json!({ "type": "string", "pattern": SEGMENT })
    }

    fn example() -> Option<Value> {
        Some("www".into())
    }

    fn parse_error() -> Problem {
        let message = "must not contain a slash (%2F) in a path; change this rrset with PATCH \
                       /v1/orgs/{orgSlug}/dns/zones/{zone}/rrsets, whose body contains the name";
        Problem::invalid_fields(InvalidField::new("name", message))
    }
}

/// The path of an rrset.
pub(super) type RrsetPath = Path<(ZoneParameter, RrsetName, RrsetType)>;
