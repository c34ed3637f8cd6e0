//! The parameters of the paths of zones and rrsets.

use std::convert::Infallible;
use std::str::FromStr;

use dns::RecordType;

use crate::http::{Path, path_parameters, path_texts};

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

path_parameters! {
    RrsetType as RecordType: "The type of the records.", "A";
}
