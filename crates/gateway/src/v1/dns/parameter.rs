//! The path parameters of zones and rrsets.

use dns::RecordType;

use crate::http::{Path, text_path_parameters};

// The type of an rrset stays unparsed, because the error of the service lists the known types.
text_path_parameters! {
    ZoneParameter: "The zone's name, in Unicode or punycode.", "example.org";
    RrsetName: "The rrset's name: `@`, a name relative to the zone, or an absolute name.", "www";
    RrsetType as RecordType: "The rrset's type.", "A";
}

/// The path of an rrset.
pub(super) type RrsetPath = Path<(ZoneParameter, RrsetName, RrsetType)>;
