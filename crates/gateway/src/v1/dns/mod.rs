//! DNS zones of an organization.

mod if_match;
mod parameter;

use ::dns::{
    Difference, DnsError, Dnssec, DnssecSwitch, DsReport, Imported, NewZone, Patched, Rrset, RrsetContent, RrsetsPatch,
    Zone, ZoneDetail,
};
use kernel::Page;
use serde::Deserialize;
use utoipa::ToSchema;

use self::if_match::IfMatch;
pub(crate) use self::parameter::ZoneParameter;
use self::parameter::{RrsetName, RrsetPath, RrsetType};
use crate::authority::role::{Admin, Member, Viewer};
use crate::authority::scope::{DnsRead, DnsWrite};
use crate::authority::{InOrg, InOrgPart, InZone};
use crate::http::{Body, Bytes, Either, Json, NoContent, Pages, Path, Query, Routes, Tagged, ZonefileText};
use crate::problem::Problem;
use crate::require::RequireDns;

const ZONES: &str = "/v1/orgs/{orgSlug}/dns/zones";
const ZONE: &str = "/v1/orgs/{orgSlug}/dns/zones/{zone}";
const RRSETS: &str = "/v1/orgs/{orgSlug}/dns/zones/{zone}/rrsets";
const RRSET: &str = "/v1/orgs/{orgSlug}/dns/zones/{zone}/rrsets/{name}/{type}";
const ZONEFILE: &str = "/v1/orgs/{orgSlug}/dns/zones/{zone}/zonefile";
const DNSSEC: &str = "/v1/orgs/{orgSlug}/dns/zones/{zone}/dnssec";

/// The largest change of several rrsets, in bytes.
const LARGE: usize = 1024 * 1024;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("dns", "Zones, their records and their signing.");
    area.get("list", ZONES, list).summary("The zones of the organization, by name");
    area.post("create", ZONES, create)
        .summary("Create a zone; the organization's own is answered as it is")
        .codes(&[&DnsError::ZONE_TAKEN])
        .leads_to("dns.get", "zone", "/name")
        .leads_to("dns.patch", "zone", "/name")
        .leads_to("dns.delete", "zone", "/name");
    area.get("get", ZONE, get).summary("One zone with all its rrsets");
    area.delete("delete", ZONE, delete).summary("Delete a zone with everything in it");
    area.put("put", RRSET, put)
        .summary("Replace an rrset")
        .codes(&[&DnsError::MANAGED_RRSET, &DnsError::CNAME_CONFLICT])
        .leads_to("dns.remove", "name", "/name");
    area.delete("remove", RRSET, remove).summary("Delete an rrset").codes(&[&DnsError::MANAGED_RRSET]);
    area.patch("patch", RRSETS, patch)
        .summary("Change several rrsets together, or none")
        .codes(&[&DnsError::MANAGED_RRSET, &DnsError::CNAME_CONFLICT]);
    area.get("export", ZONEFILE, export).summary("The zone as a file (RFC 1035)");
    area.put("import", ZONEFILE, import).summary("Replace what is not managed in the zone by what a zone file says");
    area.get("dnssec", DNSSEC, dnssec).summary("Whether the zone is signed, and what was seen at the signer");
    area.post("switch", DNSSEC, switch).summary("Have the zone signed, or no longer");
    area.put("report", "/v1/orgs/{orgSlug}/dns/zones/{zone}/dnssec/ds", report)
        .summary("Record which DS records the parent is given")
        .codes(&[&DnsError::DNSSEC_OFF]);
}

/// How a zone file is taken.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Import {
    /// Whether to answer what would change, and change nothing.
    dry_run: Option<DryRun>,
}

/// Yes or no in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum DryRun {
    True,
    False,
}

async fn list(
    at: InOrgPart<Viewer, DnsRead>,
    zones: RequireDns,
    Pages(pages): Pages<String>,
) -> Result<Json<Page<Zone>>, Problem> {
    Ok(Json(zones.zones(at.org.id, at.zones.as_deref(), &pages).await?))
}

async fn create(
    at: InOrg<Admin, DnsWrite>,
    zones: RequireDns,
    Body(new): Body<NewZone>,
) -> Result<Tagged<Json<ZoneDetail>>, Problem> {
    let zone = zones.zone_create(&at.actor, at.org.id, new).await?;
    Ok(Tagged(zone.serial, Json(zone.value)))
}

async fn get(
    at: InZone<Viewer, DnsRead>,
    zones: RequireDns,
    Path(ZoneParameter(zone)): Path<ZoneParameter>,
) -> Result<Tagged<Json<ZoneDetail>>, Problem> {
    let zone = zones.zone(at.org.id, &zone).await?;
    Ok(Tagged(zone.serial, Json(zone.value)))
}

async fn delete(
    at: InZone<Admin, DnsWrite>,
    zones: RequireDns,
    Path(ZoneParameter(zone)): Path<ZoneParameter>,
) -> Result<NoContent, Problem> {
    zones.zone_delete(&at.actor, at.org.id, &zone).await?;
    Ok(NoContent)
}

async fn put(
    at: InZone<Member, DnsWrite>,
    zones: RequireDns,
    Path((ZoneParameter(zone), RrsetName(name), RrsetType(kind))): RrsetPath,
    IfMatch(expected): IfMatch,
    Body(content): Body<RrsetContent>,
) -> Result<Tagged<Json<Rrset>>, Problem> {
    let rrset = zones.rrset_put(&at.actor, (at.org.id, &zone), (&name, &kind), content, &expected).await?;
    Ok(Tagged(rrset.serial, Json(rrset.value)))
}

async fn remove(
    at: InZone<Member, DnsWrite>,
    zones: RequireDns,
    Path((ZoneParameter(zone), RrsetName(name), RrsetType(kind))): RrsetPath,
    IfMatch(expected): IfMatch,
) -> Result<Tagged<NoContent>, Problem> {
    let done = zones.rrset_delete(&at.actor, (at.org.id, &zone), (&name, &kind), &expected).await?;
    Ok(Tagged(done.serial, NoContent))
}

async fn patch(
    at: InZone<Member, DnsWrite>,
    zones: RequireDns,
    Path(ZoneParameter(zone)): Path<ZoneParameter>,
    IfMatch(expected): IfMatch,
    Body(patch): Body<RrsetsPatch, LARGE>,
) -> Result<Tagged<Json<Patched>>, Problem> {
    let patched = zones.rrsets_patch(&at.actor, (at.org.id, &zone), patch, &expected).await?;
    Ok(Tagged(patched.serial, Json(patched.value)))
}

async fn export(
    at: InZone<Viewer, DnsRead>,
    zones: RequireDns,
    Path(ZoneParameter(zone)): Path<ZoneParameter>,
) -> Result<Tagged<Bytes>, Problem> {
    let file = zones.zonefile(at.org.id, &zone).await?;
    Ok(Tagged(file.serial, Bytes::whole(ZonefileText::TYPE, file.value)))
}

async fn import(
    at: InZone<Member, DnsWrite>,
    zones: RequireDns,
    (Path(ZoneParameter(zone)), IfMatch(expected)): (Path<ZoneParameter>, IfMatch),
    Query(how): Query<Import>,
    ZonefileText(text): ZonefileText,
) -> Result<Tagged<Either<ZoneDetail, Difference>>, Problem> {
    let dry_run = how.dry_run == Some(DryRun::True);
    Ok(match zones.zonefile_put(&at.actor, (at.org.id, &zone), text, dry_run, &expected).await? {
        Imported::Done(zone) => Tagged(zone.serial, Either::Left(zone.value)),
        Imported::Would(difference) => Tagged(difference.serial, Either::Right(difference.value)),
    })
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
) -> Result<Tagged<Json<Zone>>, Problem> {
    let zone = zones.dnssec_switch(&at.actor, at.org.id, &zone, to).await?;
    Ok(Tagged(zone.serial, Json(zone.value)))
}

async fn report(
    at: InZone<Admin, DnsWrite>,
    zones: RequireDns,
    Path(ZoneParameter(zone)): Path<ZoneParameter>,
    Body(report): Body<DsReport>,
) -> Result<Tagged<Json<Zone>>, Problem> {
    let zone = zones.ds_set(&at.actor, at.org.id, &zone, report).await?;
    Ok(Tagged(zone.serial, Json(zone.value)))
}
