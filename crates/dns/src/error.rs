//! What can go wrong with zones.

use kernel::{Code, Failure, Kind, Malformed};
use serde::Serialize;
use serde_json::{Value, json};

use crate::model::ManagedBy;
use crate::zonefile::Fault;

/// A refused request, or something this context needs that is away.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    #[error("this deployment hosts no zones; its operator has to name its nameservers first")]
    NotConfigured,
    #[error("the organization has no such zone")]
    ZoneNotFound,
    #[error("the zone has no such rrset")]
    RrsetNotFound,
    #[error("{0} lies in, or over, a zone that another organization has here")]
    ZoneTaken(String),
    #[error("{name} {kind} is managed ({managed_by}): {}", way_out(*.managed_by))]
    Managed { name: String, kind: &'static str, managed_by: ManagedBy },
    #[error(
        "{0} cannot have a CNAME beside other records (RFC 1034 section 3.6.2); delete the one or the others first"
    )]
    CnameConflict(String),
    #[error("the zone is not signed; turn DNSSEC on first")]
    DnssecOff,
    #[error("the zone has changed since: its serial is {0} now; read it again")]
    Changed(u32),
    #[error(transparent)]
    Field(#[from] Malformed),
    /// Items of a change that is all or nothing; never none.
    #[error("nothing was changed: {}", list(.0.iter().map(|it| format!("rrsets[{}]: {}", it.index, it.message))))]
    Items(Vec<ItemFault>),
    /// Lines of a zone file; never none.
    #[error("nothing was changed: {}", list(.0.iter().map(|it| format!("line {}: {}", it.line, it.message))))]
    Lines(Vec<Fault>),
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// What is wrong with one of several rrsets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ItemFault {
    /// Its place in the request, counted from 0.
    pub index: usize,
    /// As in the request.
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// What this alone would have been refused with.
    #[serde(serialize_with = "word")]
    pub code: &'static Code,
    pub message: String,
}

impl DnsError {
    /// 503: no nameservers are configured.
    pub const NOT_CONFIGURED: Code =
        Code::new("dns_not_configured", Kind::Unavailable, "This deployment hosts no zones (`SVC_NAMESERVERS`).");
    /// 409: another organization has a zone in the way.
    pub const ZONE_TAKEN: Code =
        Code::new("zone_taken", Kind::Conflict, "Another organization has this zone, one over it or one in it.");
    /// 409: not for users to edit.
    pub const MANAGED_RRSET: Code =
        Code::new("managed_rrset", Kind::Conflict, "The rrset is managed by the platform: see `managed_by`.");
    /// 409: a CNAME is alone at its name, and never at the apex.
    pub const CNAME_CONFLICT: Code =
        Code::new("cname_conflict", Kind::Conflict, "A CNAME at the apex or beside another type.");
    /// 409: a DS record of a zone that is not signed.
    pub const DNSSEC_OFF: Code =
        Code::new("dnssec_off", Kind::Conflict, "DS records were reported while DNSSEC is off.");
    /// 412: `If-Match` names another state than the zone's.
    pub const PRECONDITION_FAILED: Code =
        Code::new("precondition_failed", Kind::Precondition, "`If-Match` does not name the zone's ETag any more.");
}

impl Failure for DnsError {
    fn code(&self) -> &'static Code {
        match self {
            Self::NotConfigured => &Self::NOT_CONFIGURED,
            Self::ZoneNotFound | Self::RrsetNotFound => &Code::NOT_FOUND,
            Self::ZoneTaken(_) => &Self::ZONE_TAKEN,
            Self::Managed { .. } => &Self::MANAGED_RRSET,
            Self::CnameConflict(_) => &Self::CNAME_CONFLICT,
            Self::DnssecOff => &Self::DNSSEC_OFF,
            Self::Changed(_) => &Self::PRECONDITION_FAILED,
            Self::Field(_) | Self::Lines(_) => &Code::BAD_REQUEST,
            // What is malformed comes first: the rest may follow from it.
            Self::Items(items) => {
                let malformed = items.iter().find(|item| item.code.kind == Kind::Invalid);
                malformed.or(items.first()).map_or(&Code::BAD_REQUEST, |item| item.code)
            }
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::Field(malformed) => Some(malformed.details()),
            Self::Items(items) => Some(json!({ "items": items })),
            Self::Lines(lines) => Some(json!({ "lines": lines })),
            Self::Managed { managed_by, .. } => Some(json!({ "managed_by": managed_by })),
            Self::Changed(serial) => Some(json!({ "serial": serial })),
            _ => None,
        }
    }
}

fn way_out(managed_by: ManagedBy) -> &'static str {
    match managed_by {
        ManagedBy::System => "it follows from the zone",
        ManagedBy::Project => "remove the hostname from its project to be rid of it",
        ManagedBy::Certificate => "it goes when the certificate is issued",
    }
}

/// The first few of many.
fn list(faults: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 5;
    let count = faults.len();
    let mut text = faults.take(SHOWN).collect::<Vec<_>>().join("; ");
    if count > SHOWN {
        text.push_str(&format!("; and {} more", count - SHOWN));
    }
    text
}

fn word<S: serde::Serializer>(code: &&'static Code, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(code.name)
}
