//! Errors of the DNS use cases.

use kernel::ownership::{TakeoverObstacle, VerifyRecord};
use kernel::{ApiError, Code, InvalidField, InvalidFields, Kind, Plan, join_first};
use serde::Serialize;
use serde_json::{Value, json};

use crate::model::ManagedBy;
use crate::zonefile::LineError;

/// A rejected request, or a storage error.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    #[error("this installation does not host zones; its operator must configure nameservers first")]
    NotConfigured,
    #[error("the organization has no such zone")]
    ZoneNotFound,
    #[error("the zone has no such rrset")]
    RrsetNotFound,
    /// Another organization has an overlapping zone, or is registering an overlapping domain. `takeover` is the record
    /// with which the organization proves its ownership, and the reason why it does not prove it now. `None` if no
    /// record helps, because the other organization registers the domain here, or because the name of the record would be
    /// too long for the DNS.
    #[error("{name} overlaps with a zone of another organization{}", describe_takeover(takeover.as_ref()))]
    ZoneTaken { name: String, takeover: Option<(VerifyRecord, TakeoverObstacle)> },
    /// A zone of another organization is delegated to this platform, so the organization cannot take it over.
    /// `nameservers` as in [`Self::ZoneDelegated`].
    #[error("another organization has the zone {zone}, and {}", describe_use(zone, nameservers))]
    ZoneInUse { zone: String, nameservers: Vec<String> },
    /// A zone of another organization below the name is proved by this record of that organization.
    #[error(
        "another organization has the zone {zone}, and its TXT record is published; to take it over, delete the value {} \
         at {}, then send the request again",
        record.value, record.name
    )]
    ZoneProved { zone: String, record: VerifyRecord },
    /// A deleted zone of another organization is still delegated to this platform. `nameservers` lists the delegation's
    /// NS targets that belong to this platform. It is empty if the delegation's nameservers do not serve the zone.
    #[error("{}", describe_delegation(zone, nameservers))]
    ZoneDelegated { zone: String, nameservers: Vec<String> },
    /// The organization's zone above the name has these rrsets at or below it, which the new zone would hide.
    #[error(
        "{zone} has records at and below {name}, which a zone {name} would hide: {}; delete them first, or remove \
         their hostnames from their projects, and add them to the new zone",
        rrsets.join(", ")
    )]
    ZoneOccupied { zone: String, name: String, rrsets: Vec<String> },
    /// The delegation or the TXT record of another organization's zone could not be looked up, for this reason.
    #[error(
        "the name overlaps with a zone or a deleted zone of another organization, whose DNS records could not be \
         checked: {0}; try again in a moment"
    )]
    DelegationUnknown(String),
    #[error("too many concurrent reads of large zones; try again in a moment")]
    TooManyReads,
    #[error("the {plan} plan allows {limit} zones, and the organization already has {count}")]
    ZoneLimit { limit: u32, count: i64, plan: Plan },
    /// `bytes` is the size that the zone would have.
    #[error(
        "the {plan} plan allows {limit} bytes of rrsets per zone, and {zone} would have {bytes}; make the change smaller \
         or delete other rrsets first"
    )]
    ZoneBytesLimit { zone: String, limit: u64, bytes: u64, plan: Plan },
    #[error("{name} {kind} is managed ({managed_by}): {}", hint(*.managed_by))]
    Managed { name: String, kind: &'static str, managed_by: ManagedBy },
    #[error("{0} cannot have a CNAME and other records (RFC 1034 section 3.6.2); delete the CNAME or the others first")]
    CnameConflict(String),
    #[error("the zone is not signed; enable DNSSEC first")]
    DnssecOff,
    #[error(
        "{0} is registered here and signed, so resolvers would reject it without its zone; turn DNSSEC off and delete the \
         zone when its DS record has expired, two days later"
    )]
    DnssecOn(String),
    #[error("the zone has changed: its serial is now {0}; read it again")]
    SerialMismatch(u32),
    #[error(transparent)]
    InvalidFields(#[from] InvalidFields),
    /// Invalid items of an all-or-nothing change; not empty.
    #[error("nothing was changed: {}", join_first(.0.iter().map(|it| format!("rrsets[{}]: {}", it.index, it.message))))]
    InvalidItems(Vec<ItemError>),
    /// Invalid lines of a zone file; not empty.
    #[error("nothing was changed: {}", join_first(.0.iter().map(|it| format!("line {}: {}", it.line, it.message))))]
    InvalidLines(Vec<LineError>),
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// An rrset of a request that was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ItemError {
    /// The position in the request, from 0.
    pub index: usize,
    /// The name, as in the request.
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// The error code that a request with only this rrset would receive.
    #[serde(serialize_with = "serialize_name")]
    pub code: &'static Code,
    pub message: String,
}

impl DnsError {
    /// 503: no nameservers are configured.
    pub const NOT_CONFIGURED: Code = Code::new(
        "dns_not_configured",
        Kind::Unavailable,
        "This installation does not host zones (`SVC_NAMESERVERS`).",
    );
    /// 409: the name overlaps with a zone of another organization, or with records of the organization's own zone.
    pub const ZONE_TAKEN: Code = Code::new(
        "zone_taken",
        Kind::Conflict,
        "Another organization has this zone, a parent of it or a subdomain of it. `details.verify` is the TXT record that \
         proves your ownership. Publish it, then send the same request again with a new `Idempotency-Key`, if it has \
         one. `details.verify` is absent if the other organization registers the domain here, or if the name has more \
         than 241 characters. If the public NS records of the other zone, or of such a zone that was deleted, name this \
         platform's nameservers, `details` contains its name (`zone`) and these `nameservers` instead. If your own zone \
         above the name has records at or below it, which the new zone would hide, `details` contains that `zone` and the \
         first of these `rrsets`.",
    );
    /// 409: the plan's limit on zones is reached.
    pub const ZONE_LIMIT: Code = Code::new(
        "zone_limit",
        Kind::Conflict,
        "The organization has reached the zone limit of its plan. `details` contains `limit`, `count` and `plan`.",
    );
    /// 409: the zone would exceed the plan's limit on bytes.
    pub const ZONE_BYTES_LIMIT: Code = Code::new(
        "zone_bytes_limit",
        Kind::Conflict,
        "The zone would exceed the bytes per zone of the organization's plan. `details` contains `limit`, `bytes` and \
         `plan`.",
    );
    /// 409: users cannot edit the rrset.
    pub const MANAGED_RRSET: Code =
        Code::new("managed_rrset", Kind::Conflict, "The rrset is managed by the platform: see `managed_by`.");
    /// 409: a CNAME at the apex, or at a name with other types.
    pub const CNAME_CONFLICT: Code =
        Code::new("cname_conflict", Kind::Conflict, "A CNAME at the apex, or at a name with other types.");
    /// 409: a DS record for an unsigned zone was submitted.
    pub const DNSSEC_OFF: Code =
        Code::new("dnssec_off", Kind::Conflict, "DS records were reported while DNSSEC is off.");
    /// 409: the zone of a domain that is registered here is signed.
    pub const DNSSEC_ON: Code = Code::new(
        "dnssec_on",
        Kind::Conflict,
        "The zone's domain is registered here, and its registry or resolvers may have a DS record of the zone.",
    );
    /// 412: `If-Match` does not match the zone's serial.
    pub const PRECONDITION_FAILED: Code =
        Code::new("precondition_failed", Kind::Precondition, "`If-Match` does not match the zone's current ETag.");
}

impl From<InvalidField> for DnsError {
    fn from(field: InvalidField) -> Self {
        Self::InvalidFields(field.into())
    }
}

impl ApiError for DnsError {
    fn code(&self) -> &'static Code {
        match self {
            Self::NotConfigured => &Self::NOT_CONFIGURED,
            Self::ZoneNotFound | Self::RrsetNotFound => &Code::NOT_FOUND,
            Self::ZoneTaken { .. }
            | Self::ZoneInUse { .. }
            | Self::ZoneProved { .. }
            | Self::ZoneDelegated { .. }
            | Self::ZoneOccupied { .. } => &Self::ZONE_TAKEN,
            Self::DelegationUnknown(_) | Self::TooManyReads => &Code::UNAVAILABLE,
            Self::ZoneLimit { .. } => &Self::ZONE_LIMIT,
            Self::ZoneBytesLimit { .. } => &Self::ZONE_BYTES_LIMIT,
            Self::Managed { .. } => &Self::MANAGED_RRSET,
            Self::CnameConflict(_) => &Self::CNAME_CONFLICT,
            Self::DnssecOff => &Self::DNSSEC_OFF,
            Self::DnssecOn(_) => &Self::DNSSEC_ON,
            Self::SerialMismatch(_) => &Self::PRECONDITION_FAILED,
            Self::InvalidFields(_) | Self::InvalidLines(_) => &Code::BAD_REQUEST,
            // A validation error takes precedence: it may cause the other errors.
            Self::InvalidItems(items) => {
                let malformed = items.iter().find(|item| item.code.kind == Kind::Invalid);
                malformed.or(items.first()).map_or(&Code::BAD_REQUEST, |item| item.code)
            }
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::InvalidFields(invalid) => Some(invalid.details()),
            Self::InvalidItems(items) => Some(json!({ "items": items })),
            Self::InvalidLines(lines) => Some(json!({ "lines": lines })),
            Self::ZoneTaken { takeover, .. } => takeover.as_ref().map(|(record, _)| json!({ "verify": record })),
            Self::ZoneInUse { zone, nameservers } | Self::ZoneDelegated { zone, nameservers } => {
                Some(json!({ "zone": zone, "nameservers": nameservers }))
            }
            Self::ZoneProved { zone, .. } => Some(json!({ "zone": zone })),
            Self::ZoneOccupied { zone, rrsets, .. } => Some(json!({ "zone": zone, "rrsets": rrsets })),
            Self::ZoneLimit { limit, count, plan } => Some(json!({ "limit": limit, "count": count, "plan": plan })),
            Self::ZoneBytesLimit { limit, bytes, plan, .. } => {
                Some(json!({ "limit": limit, "bytes": bytes, "plan": plan }))
            }
            Self::Managed { managed_by, .. } => Some(json!({ "managed_by": managed_by })),
            Self::SerialMismatch(serial) => Some(json!({ "serial": serial })),
            Self::Store(error) => error.details(),
            _ => None,
        }
    }
}

fn describe_takeover(takeover: Option<&(VerifyRecord, TakeoverObstacle)>) -> String {
    takeover.map(|(record, obstacle)| format!("; {}", obstacle.advice(record))).unwrap_or_default()
}

fn describe_use(zone: &str, nameservers: &[String]) -> String {
    let finding = if nameservers.is_empty() {
        "its public delegation does not work".to_owned()
    } else {
        format!("its public NS records name this platform's nameservers ({})", nameservers.join(", "))
    };
    format!(
        "{finding}; to take it over, first remove the NS records of {zone} at its registrar or in the zone above it"
    )
}

fn describe_delegation(zone: &str, nameservers: &[String]) -> String {
    let finding = if nameservers.is_empty() {
        "its public delegation does not work, as if it still named this platform's nameservers".to_owned()
    } else {
        format!("its public NS records still name this platform's nameservers ({})", nameservers.join(", "))
    };
    format!(
        "another organization deleted the zone {zone}, but {finding}; remove the delegation of {zone} at the domain's \
         registrar and try again after the change is public, or ask the former organization to create the zone again"
    )
}

fn hint(managed_by: ManagedBy) -> &'static str {
    match managed_by {
        ManagedBy::System => "the platform maintains it",
        ManagedBy::Project => "to delete it, remove the hostname from its project",
        ManagedBy::Certificate => "the platform deletes it after it issues the certificate",
    }
}

fn serialize_name<S: serde::Serializer>(code: &&'static Code, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(code.name)
}
