//! Zones and their rrsets.

use ::dns::{DnsError, DnssecSwitch, InitialContent, NewZone, Precondition, RrsetsPatch, Zone, ZoneName};
use actix_web::http::header::ACCEPT;
use kernel::{Code, Kind, OrgId, Paging, ZoneId};
use serde_json::Value;

use super::error::{dns_problem, unprocessable};
use super::policy::{ApiKeyCaller, ApiKeyOrg, ApiKeyZone};
use super::request::{LenientJson, NewZoneBody, RrsetsBody, ZoneChangeBody, ZoneQuery};
use super::response::{ActionResult, PdnsCreated, PdnsResponse};
use super::view::{RrsetView, ZoneDetailView, ZoneView, is_visible};
use crate::authority::role::{Admin, Member, Viewer};
use crate::authority::scope::{DnsRead, DnsWrite};
use crate::http::{BodyWriter, Bytes, NoContent, RequestHeaders, Routes, Streamed};
use crate::problem::Problem;
use crate::require::RequireDns;

const ZONES: &str = "/api/v1/servers/localhost/zones";
const ZONE: &str = "/api/v1/servers/localhost/zones/{zone}";

const JSON: &str = "application/json";

/// 409 for an existing zone. In this case, `/v1` returns the zone instead.
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

/// Returns all zones of all organizations that the token may access. PowerDNS has no pagination, and its clients expect
/// the whole list. The list is read and sent in pages.
async fn list(
    at: ApiKeyCaller<DnsRead>,
    zones: RequireDns,
    query: ZoneQuery,
) -> Result<Streamed<PdnsResponse<Vec<ZoneView>>>, Problem> {
    let body = async move |body: &mut BodyWriter| {
        let mut is_first = true;
        body.write(b"[").await?;
        for org in &at.orgs {
            let mut pages = ZonePages::of(&query, at.zones.as_deref());
            while let Some(page) = pages.next(&zones, org.id).await? {
                body.write_items(page.into_iter().map(|zone| ZoneView::of(zone, &org.slug)), &mut is_first).await?;
            }
        }
        body.write(b"]").await
    };
    Streamed::produce(JSON, body).await
}

async fn create(
    at: ApiKeyOrg<Admin, DnsWrite>,
    zones: RequireDns,
    query: ZoneQuery,
    LenientJson(mut new): LenientJson<NewZoneBody>,
) -> Result<PdnsCreated<ZoneDetailView>, Problem> {
    let name = ZoneName::parse(&new.name).map_err(|error| unprocessable(format!("name: {error}")))?;
    let rrsets = new.take_patches(&name, zones.hosting()?)?;
    let content = InitialContent { rrsets: &rrsets, dnssec: new.dnssec == Some(true) };
    let new_zone = NewZone { name: new.name };
    let created = zones.zone_create_with(&at.actor, at.org.id, new_zone, content).await.map_err(dns_problem)?;
    if !created.is_new {
        return Err(Problem::new(&EXISTS, format!("Conflict: the zone {}. already exists", name.as_str())));
    }
    // A new zone is not larger than the request, so it fits in memory.
    let detail = created.zone.collect().await?;
    Ok(PdnsCreated(if query.shows_rrsets() {
        ZoneDetailView::with_rrsets(detail, &at.org.slug)
    } else {
        ZoneDetailView::of(detail.zone, &at.org.slug)
    }))
}

async fn get(
    at: ApiKeyZone<Viewer, DnsRead>,
    zones: RequireDns,
    query: ZoneQuery,
) -> Result<Streamed<PdnsResponse<ZoneDetailView>>, Problem> {
    if !query.shows_rrsets() {
        let zone = zones.zone_entry(at.org.id, at.zone.as_str()).await?;
        let view = ZoneDetailView::of(zone, &at.org.slug);
        return Streamed::produce(JSON, async move |body: &mut BodyWriter| body.write_json(&view).await).await;
    }
    let mut zone = zones.zone(at.org.id, at.zone.as_str()).await?;
    let body = async move |body: &mut BodyWriter| {
        body.open_object(&ZoneDetailView::of(zone.zone().clone(), &at.org.slug)).await?;
        body.write(b",\"rrsets\":[").await?;
        let mut is_first = true;
        while let Some(page) = zone.next_page().await? {
            let requested = page.iter().filter(|stored| is_visible(stored) && query.matches(&at.zone, stored));
            body.write_items(requested.map(|stored| RrsetView::of(zone.rrset(stored))), &mut is_first).await?;
        }
        body.write(b"]}").await
    };
    Streamed::produce(JSON, body).await
}

async fn patch(
    at: ApiKeyZone<Member, DnsWrite>,
    zones: RequireDns,
    LenientJson(body): LenientJson<RrsetsBody>,
) -> Result<NoContent, Problem> {
    let rrsets = body.into_patches(&at.zone, zones.hosting()?)?;
    let (target, patch) = ((at.org.id, at.zone.as_str()), RrsetsPatch { rrsets, dry_run: false });
    if !patch.rrsets.is_empty() {
        let patched = zones.rrsets_patch_with_delegations(&at.actor, target, patch, &Precondition::Any).await;
        patched.map_err(dns_problem)?;
    }
    Ok(NoContent)
}

/// Switches DNSSEC, which is the only setting that can change. Accepts a request that leaves all other settings
/// unchanged.
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
    zones.zone_delete(&at.actor, at.org.id, at.zone.as_str(), &Precondition::Any).await?;
    Ok(NoContent)
}

/// Returns the zone file as text, or in JSON if the client accepts JSON.
async fn export(
    at: ApiKeyZone<Viewer, DnsRead>,
    zones: RequireDns,
    headers: RequestHeaders,
) -> Result<Streamed<Bytes>, Problem> {
    let mut zone = zones.zone(at.org.id, at.zone.as_str()).await?;
    let as_json = headers.get(ACCEPT.as_str()).is_some_and(|accept| accept.contains("application/json"));
    let body = async move |body: &mut BodyWriter| {
        if as_json {
            body.write(b"{\"zone\":\"").await?;
        }
        while let Some(lines) = zone.next_lines().await? {
            let lines = if as_json { escape_json(&lines) } else { lines };
            body.write(lines.as_bytes()).await?;
        }
        if as_json { body.write(b"\"}").await } else { Ok(()) }
    };
    Streamed::produce(if as_json { JSON } else { "text/plain; charset=utf-8" }, body).await
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

/// Escapes a text as the content of a JSON string, without the quotation marks.
fn escape_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
}

/// The pages of an organization's zones that a listing shows.
struct ZonePages<'a> {
    /// The only zone to show.
    name: Option<&'a str>,
    /// The zones that the token may access, if it is restricted to some.
    only: Option<&'a [ZoneId]>,
    /// The next page. `None` after the last one.
    paging: Option<Paging<String>>,
}

impl<'a> ZonePages<'a> {
    fn of(query: &'a ZoneQuery, only: Option<&'a [ZoneId]>) -> Self {
        let paging = Some(Paging { limit: Paging::<String>::MAX_LIMIT, after: None });
        Self { name: query.zone.as_deref(), only, paging }
    }

    async fn next(&mut self, zones: &RequireDns, org: OrgId) -> Result<Option<Vec<Zone>>, Problem> {
        let Some(paging) = self.paging.take() else { return Ok(None) };
        if let Some(name) = self.name {
            let may_show = |zone: &Zone| self.only.is_none_or(|only| only.contains(&zone.id));
            return Ok(Some(find_zone(zones, org, name).await?.filter(may_show).into_iter().collect()));
        }
        let page = zones.zones(org, self.only, &paging).await?;
        if page.next_cursor.is_some() {
            self.paging = Some(Paging { after: page.items.last().map(|zone| zone.name.clone()), ..paging });
        }
        Ok(Some(page.items))
    }
}
