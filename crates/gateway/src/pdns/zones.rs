//! Zones and their rrsets.

use ::dns::{DnsError, DnssecSwitch, NewZone, Precondition, Rrset, RrsetsPatch, Zone, ZoneName};
use actix_web::http::header::ACCEPT;
use kernel::{Code, Kind, OrgId, Paging, ZoneId};
use serde_json::json;

use super::error::{dns_problem, unprocessable};
use super::policy::{ApiKeyCaller, ApiKeyOrg, ApiKeyZone};
use super::request::{LenientJson, NewZoneBody, RrsetsBody, ZoneChangeBody, ZoneQuery};
use super::response::{ActionResult, PdnsCreated, PdnsResponse};
use super::view::{ZoneDetailView, ZoneView};
use crate::authority::role::{Admin, Member, Viewer};
use crate::authority::scope::{DnsRead, DnsWrite};
use crate::http::{Bytes, NoContent, RequestHeaders, Routes};
use crate::problem::Problem;
use crate::require::RequireDns;

const ZONES: &str = "/api/v1/servers/localhost/zones";
const ZONE: &str = "/api/v1/servers/localhost/zones/{zone}";

/// 409, where `/v1` returns the existing zone.
const EXISTS: Code = Code::new("zone_exists", Kind::Conflict, "The zone already exists.");

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("zones", "Zones and their rrsets.");
    area.get("list", ZONES, list);
    area.post("create", ZONES, create);
    area.get("get", ZONE, get);
    area.patch("patch", ZONE, patch);
    area.put("change", ZONE, change);
    area.delete("delete", ZONE, delete);
    area.get("export", "/api/v1/servers/localhost/zones/{zone}/export", export);
    area.put("notify", "/api/v1/servers/localhost/zones/{zone}/notify", notify);
    area.put("rectify", "/api/v1/servers/localhost/zones/{zone}/rectify", rectify);
}

/// Returns all zones of all organizations that the token may access, because PowerDNS has no pagination.
async fn list(
    at: ApiKeyCaller<DnsRead>,
    zones: RequireDns,
    query: ZoneQuery,
) -> Result<PdnsResponse<Vec<ZoneView>>, Problem> {
    let mut views = Vec::new();
    for org in &at.orgs {
        let found = match &query.zone {
            Some(name) => {
                let found = find_zone(&zones, org.id, name).await?;
                let may_show = |zone: &Zone| at.zones.as_ref().is_none_or(|only| only.contains(&zone.id));
                found.into_iter().filter(may_show).collect()
            }
            None => all_zones(&zones, org.id, at.zones.as_deref()).await?,
        };
        views.extend(found.into_iter().map(|zone| ZoneView::of(zone, &org.slug)));
    }
    Ok(PdnsResponse(views))
}

async fn create(
    at: ApiKeyOrg<Admin, DnsWrite>,
    zones: RequireDns,
    query: ZoneQuery,
    LenientJson(mut new): LenientJson<NewZoneBody>,
) -> Result<PdnsCreated<ZoneDetailView>, Problem> {
    let name = ZoneName::parse(&new.name).map_err(|error| unprocessable(format!("name: {error}")))?;
    let rrsets = new.take_patches(&name, zones.hosting()?)?;
    if find_zone(&zones, at.org.id, name.as_str()).await?.is_some() {
        return Err(Problem::new(&EXISTS, format!("Conflict: the zone {}. already exists", name.as_str())));
    }
    let new_zone = NewZone { name: new.name };
    let mut detail = zones.zone_create_with(&at.actor, at.org.id, new_zone, &rrsets).await.map_err(dns_problem)?.value;
    if new.dnssec == Some(true) {
        let switch = DnssecSwitch { enabled: true };
        detail.zone = zones.dnssec_switch(&at.actor, at.org.id, name.as_str(), switch).await?.value;
    }
    Ok(PdnsCreated(if query.shows_rrsets() {
        ZoneDetailView::with_rrsets(detail, &at.org.slug, |_| true)
    } else {
        ZoneDetailView::of(detail.zone, &at.org.slug)
    }))
}

async fn get(
    at: ApiKeyZone<Viewer, DnsRead>,
    zones: RequireDns,
    query: ZoneQuery,
) -> Result<PdnsResponse<ZoneDetailView>, Problem> {
    if !query.shows_rrsets() {
        let zone = zones.zone_entry(at.org.id, at.zone.as_str()).await?;
        return Ok(PdnsResponse(ZoneDetailView::of(zone, &at.org.slug)));
    }
    let zone = zones.zone(at.org.id, at.zone.as_str()).await?;
    let name = query.rrset_name.as_deref().map(|name| name.trim_end_matches('.').to_ascii_lowercase());
    let matches = |rrset: &Rrset| {
        name.as_ref().is_none_or(|name| *name == rrset.name)
            && query.rrset_type.as_ref().is_none_or(|kind| kind.eq_ignore_ascii_case(rrset.kind.as_str()))
    };
    Ok(PdnsResponse(ZoneDetailView::with_rrsets(zone.value, &at.org.slug, matches)))
}

async fn patch(
    at: ApiKeyZone<Member, DnsWrite>,
    zones: RequireDns,
    LenientJson(body): LenientJson<RrsetsBody>,
) -> Result<NoContent, Problem> {
    let rrsets = body.into_patches(&at.zone, zones.hosting()?)?;
    let (target, patch) = ((at.org.id, at.zone.as_str()), RrsetsPatch { rrsets, dry_run: false });
    if !patch.rrsets.is_empty() {
        zones.rrsets_patch(&at.actor, target, patch, &Precondition::Any).await.map_err(dns_problem)?;
    }
    Ok(NoContent)
}

/// Switches DNSSEC, the only setting that can change. A request that changes no other setting is accepted.
async fn change(
    at: ApiKeyZone<Admin, DnsWrite>,
    zones: RequireDns,
    LenientJson(change): LenientJson<ZoneChangeBody>,
) -> Result<NoContent, Problem> {
    change.check()?;
    if let Some(enabled) = change.dnssec {
        zones.dnssec_switch(&at.actor, at.org.id, at.zone.as_str(), DnssecSwitch { enabled }).await?;
    }
    Ok(NoContent)
}

async fn delete(at: ApiKeyZone<Admin, DnsWrite>, zones: RequireDns) -> Result<NoContent, Problem> {
    zones.zone_delete(&at.actor, at.org.id, at.zone.as_str()).await?;
    Ok(NoContent)
}

/// Returns the zone file as text, or in JSON if the client accepts JSON.
async fn export(at: ApiKeyZone<Viewer, DnsRead>, zones: RequireDns, headers: RequestHeaders) -> Result<Bytes, Problem> {
    let file = zones.zonefile(at.org.id, at.zone.as_str()).await?.value;
    let as_json = headers.get(ACCEPT.as_str()).is_some_and(|accept| accept.contains("application/json"));
    Ok(if as_json {
        Bytes::whole("application/json", json!({ "zone": file }).to_string())
    } else {
        Bytes::whole("text/plain; charset=utf-8", file)
    })
}

/// Does nothing, because every change notifies the secondaries.
async fn notify(_: ApiKeyZone<Member, DnsWrite>) -> Result<PdnsResponse<ActionResult>, Problem> {
    Ok(PdnsResponse(ActionResult { result: "Notification queued" }))
}

/// Does nothing: the nameserver itself sorts the names for DNSSEC.
async fn rectify(_: ApiKeyZone<Member, DnsWrite>) -> Result<PdnsResponse<ActionResult>, Problem> {
    Ok(PdnsResponse(ActionResult { result: "Rectified" }))
}

async fn find_zone(zones: &RequireDns, org: OrgId, name: &str) -> Result<Option<Zone>, Problem> {
    match zones.zone_entry(org, name).await {
        Ok(zone) => Ok(Some(zone)),
        Err(DnsError::ZoneNotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn all_zones(zones: &RequireDns, org: OrgId, only: Option<&[ZoneId]>) -> Result<Vec<Zone>, Problem> {
    let (mut all, mut paging) = (Vec::new(), Paging { limit: Paging::<String>::MAX_LIMIT, after: None });
    loop {
        let page = zones.zones(org, only, &paging).await?;
        paging.after = page.items.last().map(|zone| zone.name.clone());
        all.extend(page.items);
        if page.next_cursor.is_none() {
            return Ok(all);
        }
    }
}
