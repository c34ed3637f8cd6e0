//! DNS zones of an organization.

mod content;
mod if_match;
mod parameter;

use ::dns::{
    AtSerial, Difference, DnsError, Dnssec, DnssecSwitch, DsReport, ImportResult, NewZone, Patched, Rrset,
    RrsetContent, RrsetsPatch, Zone, ZoneDetail, zonefile,
};
use kernel::ownership::VerifyRecord;
use kernel::{Page, ZoneId};
use serde::Deserialize;
use utoipa::ToSchema;

use self::if_match::IfMatch;
pub(crate) use self::parameter::ZoneParameter;
use self::parameter::{RrsetName, RrsetPath, RrsetType};
use crate::authority::role::{Admin, Member, Viewer};
use crate::authority::scope::{DnsRead, DnsWrite};
use crate::authority::{InOrg, InOrgFiltered, InZone};
use crate::http::{
    Body, Bytes, Either, Json, NoContent, Pagination, Path, Query, Routes, Streamed, WithEtag, ZonefileBody,
};
use crate::problem::Problem;
use crate::require::RequireDns;

const ZONES: &str = "/v1/orgs/{orgSlug}/dns/zones";
const ZONE: &str = "/v1/orgs/{orgSlug}/dns/zones/{zone}";
const RRSETS: &str = "/v1/orgs/{orgSlug}/dns/zones/{zone}/rrsets";
const RRSET: &str = "/v1/orgs/{orgSlug}/dns/zones/{zone}/rrsets/{name}/{type}";
const ZONEFILE: &str = "/v1/orgs/{orgSlug}/dns/zones/{zone}/zonefile";
const DNSSEC: &str = "/v1/orgs/{orgSlug}/dns/zones/{zone}/dnssec";

/// The largest change of several rrsets, in bytes.
const MAX_PATCH_BYTES: usize = 1024 * 1024;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("dns", "DNS zones, their rrsets and DNSSEC.");
    area.get("list", ZONES, list).summary("List the zones of an organization, sorted by name");
    area.post("create", ZONES, create)
        .summary("Create a zone, or return the existing one of the organization")
        .description(
            "The owner of a domain takes over a zone that another organization created for it: see the error \
             `zone_taken`.",
        )
        .codes(&[&DnsError::ZONE_LIMIT])
        .error_detail::<VerifyRecord>(&DnsError::ZONE_TAKEN, "verify")
        .link("dns.get", "zone", "/name")
        .link("dns.patch", "zone", "/name")
        .link("dns.delete", "zone", "/name");
    area.get("get", ZONE, get).summary("Get a zone with all its rrsets");
    area.delete("delete", ZONE, delete)
        .summary("Delete a zone with all its rrsets")
        .description("If the zone belongs to an imported domain, this also ends the import.")
        .codes(&[&DnsError::DNSSEC_ON]);
    area.put("put", RRSET, put)
        .summary("Create or replace an rrset")
        .codes(&[&DnsError::MANAGED_RRSET, &DnsError::CNAME_CONFLICT, &DnsError::ZONE_BYTES_LIMIT])
        .link("dns.remove", "name", "/name");
    area.delete("remove", RRSET, remove).summary("Delete an rrset").codes(&[&DnsError::MANAGED_RRSET]);
    area.patch("patch", RRSETS, patch).summary("Change several rrsets in one transaction").codes(&[
        &DnsError::MANAGED_RRSET,
        &DnsError::CNAME_CONFLICT,
        &DnsError::ZONE_BYTES_LIMIT,
    ]);
    area.get("export", ZONEFILE, export).summary("Export a zone as a zone file (RFC 1035)");
    area.put("import", ZONEFILE, import)
        .summary("Replace the unmanaged rrsets of a zone with those of a zone file")
        .codes(&[&DnsError::ZONE_BYTES_LIMIT]);
    area.get("dnssec", DNSSEC, dnssec).summary("Get the DNSSEC state of a zone, as last seen at the signer");
    area.post("switch", DNSSEC, switch).summary("Enable or disable DNSSEC for a zone");
    area.put("report", "/v1/orgs/{orgSlug}/dns/zones/{zone}/dnssec/ds", report)
        .summary("Record the DS records that the parent zone publishes")
        .codes(&[&DnsError::DNSSEC_OFF]);
}

/// The query of a zone file import.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Import {
    /// Whether to return the changes without applying them.
    dry_run: Option<DryRun>,
}

/// A boolean in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum DryRun {
    True,
    False,
}

async fn list(
    at: InOrgFiltered<Viewer, DnsRead, ZoneId>,
    zones: RequireDns,
    Pagination(pages): Pagination<String>,
) -> Result<Json<Page<Zone>>, Problem> {
    Ok(Json(zones.zones(at.org.id, at.targets.as_deref(), &pages).await?))
}

async fn create(
    at: InOrg<Admin, DnsWrite>,
    zones: RequireDns,
    Body(new): Body<NewZone>,
) -> Result<WithEtag<Streamed<Json<ZoneDetail>>>, Problem> {
    content::zone(zones.zone_create(&at.actor, at.org.id, new).await?).await
}

async fn get(
    at: InZone<Viewer, DnsRead>,
    zones: RequireDns,
    Path(ZoneParameter(zone)): Path<ZoneParameter>,
) -> Result<WithEtag<Streamed<Json<ZoneDetail>>>, Problem> {
    content::zone(zones.zone(at.org.id, &zone).await?).await
}

async fn delete(
    at: InZone<Admin, DnsWrite>,
    zones: RequireDns,
    Path(ZoneParameter(zone)): Path<ZoneParameter>,
    IfMatch(expected): IfMatch,
) -> Result<NoContent, Problem> {
    zones.zone_delete(&at.actor, at.org.id, &zone, &expected).await?;
    Ok(NoContent)
}

async fn put(
    at: InZone<Member, DnsWrite>,
    zones: RequireDns,
    Path((ZoneParameter(zone), RrsetName(name), RrsetType(kind))): RrsetPath,
    IfMatch(expected): IfMatch,
    Body(content): Body<RrsetContent>,
) -> Result<WithEtag<Json<Rrset>>, Problem> {
    let rrset = zones.rrset_put(&at.actor, (at.org.id, &zone), (&name, &kind), content, &expected).await?;
    Ok(WithEtag(rrset.serial, Json(rrset.value)))
}

async fn remove(
    at: InZone<Member, DnsWrite>,
    zones: RequireDns,
    Path((ZoneParameter(zone), RrsetName(name), RrsetType(kind))): RrsetPath,
    IfMatch(expected): IfMatch,
) -> Result<WithEtag<NoContent>, Problem> {
    let done = zones.rrset_delete(&at.actor, (at.org.id, &zone), (&name, &kind), &expected).await?;
    Ok(WithEtag(done.serial, NoContent))
}

async fn patch(
    at: InZone<Member, DnsWrite>,
    zones: RequireDns,
    Path(ZoneParameter(zone)): Path<ZoneParameter>,
    IfMatch(expected): IfMatch,
    Body(patch): Body<RrsetsPatch, MAX_PATCH_BYTES>,
) -> Result<WithEtag<Streamed<Json<Patched>>>, Problem> {
    let AtSerial { serial, value } = zones.rrsets_patch(&at.actor, (at.org.id, &zone), patch, &expected).await?;
    content::changes(serial, serde_json::Map::from_iter([("serial".to_owned(), serial.into())]), value).await
}

async fn export(
    at: InZone<Viewer, DnsRead>,
    zones: RequireDns,
    Path(ZoneParameter(zone)): Path<ZoneParameter>,
) -> Result<WithEtag<Streamed<Bytes>>, Problem> {
    content::zonefile(zones.zone(at.org.id, &zone).await?).await
}

async fn import(
    at: InZone<Member, DnsWrite>,
    zones: RequireDns,
    (Path(ZoneParameter(zone)), IfMatch(expected)): (Path<ZoneParameter>, IfMatch),
    Query(query): Query<Import>,
    ZonefileBody(bytes): ZonefileBody,
) -> Result<WithEtag<Streamed<Either<ZoneDetail, Difference>>>, Problem> {
    let dry_run = query.dry_run == Some(DryRun::True);
    let text = zonefile::decode(bytes).map_err(DnsError::InvalidLines)?;
    match zones.zonefile_put(&at.actor, (at.org.id, &zone), text, dry_run, &expected).await? {
        ImportResult::Applied(zone) => content::zone(*zone).await,
        ImportResult::DryRun(AtSerial { serial, value }) => {
            content::changes(serial, serde_json::Map::new(), value).await
        }
    }
}

async fn dnssec(
    at: InZone<Viewer, DnsRead>,
    zones: RequireDns,
    Path(ZoneParameter(zone)): Path<ZoneParameter>,
) -> Result<Json<Dnssec>, Problem> {
    Ok(Json(zones.dnssec(at.org.id, &zone).await?))
}

async fn switch(
    at: InZone<Admin, DnsWrite>,
    zones: RequireDns,
    Path(ZoneParameter(zone)): Path<ZoneParameter>,
    Body(to): Body<DnssecSwitch>,
) -> Result<WithEtag<Json<Zone>>, Problem> {
    let zone = zones.dnssec_switch(&at.actor, at.org.id, &zone, to).await?;
    Ok(WithEtag(zone.serial, Json(zone.value)))
}

async fn report(
    at: InZone<Admin, DnsWrite>,
    zones: RequireDns,
    Path(ZoneParameter(zone)): Path<ZoneParameter>,
    Body(report): Body<DsReport>,
) -> Result<WithEtag<Json<Zone>>, Problem> {
    let zone = zones.ds_set(&at.actor, at.org.id, &zone, report).await?;
    Ok(WithEtag(zone.serial, Json(zone.value)))
}
