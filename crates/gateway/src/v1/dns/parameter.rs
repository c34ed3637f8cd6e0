//! The path parameters of zones and rrsets.

use std::convert::Infallible;
use std::str::FromStr;

use dns::RecordType;

use crate::http::{Path, path_parameters, text_path_parameters};

text_path_parameters! {
    ZoneParameter: "The zone's name, in Unicode or punycode.", "example.org";
    RrsetName: "The rrset's name: `@`, a name relative to the zone, or an absolute name.", "www";
}

/// The path of an rrset.
pub(super) type RrsetPath = Path<(ZoneParameter, RrsetName, RrsetType)>;

/// The type of an rrset, unparsed, because the error of the service lists the known types.
#[derive(Debug)]
pub(super) struct RrsetType(pub(super) String);

impl FromStr for RrsetType {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

path_parameters! {
    RrsetType as RecordType: "The rrset's type.", "A";
}
