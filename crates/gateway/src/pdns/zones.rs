//! Zones and what they hold.

use ::dns::{DnsError, DnssecSwitch, Expected, NewZone, Rrset, RrsetsPatch, Zone, ZoneName};
use actix_web::http::header::ACCEPT;
use kernel::{Code, Kind, OrgId, Paging, ZoneId};
use serde_json::json;

use super::answer::{Answer, New, Outcome};
use super::policy::{Keyed, KeyedOrg, KeyedZone};
use super::refusal::{refused, unprocessable};
use super::sent::{Asked, Sent, SentChange, SentRrsets, SentZone};
use super::shown::{ShownDetail, ShownZone};
use crate::authority::role::{Admin, Member, Viewer};
use crate::authority::scope::{DnsRead, DnsWrite};
use crate::http::{Bytes, Header, NoContent, Routes};
use crate::problem::Problem;
use crate::require::RequireDns;

const ZONES: &str = "/api/v1/servers/localhost/zones";
const ZONE: &str = "/api/v1/servers/localhost/zones/{zone}";

/// 409: `/v1` answers such a zone as it is.
const EXISTS: Code = Code::new("zone_exists", Kind::Conflict, "The zone is there already.");

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

/// All of them, of all organizations that the token reaches: PowerDNS has no pages.
async fn list(at: Keyed<DnsRead>, zones: RequireDns, asked: Asked) -> Result<Answer<Vec<ShownZone>>, Problem> {
    let mut shown = Vec::new();
    for org in &at.orgs {
        let found = match &asked.zone {
            Some(name) => {
                let found = find(&zones, org.id, name).await?;
                let may_show = |zone: &Zone| at.zones.as_ref().is_none_or(|only| only.contains(&zone.id));
                found.into_iter().filter(may_show).collect()
            }
            None => all(&zones, org.id, at.zones.as_deref()).await?,
        };
        shown.extend(found.into_iter().map(|zone| ShownZone::of(zone, &org.slug)));
    }
    Ok(Answer(shown))
}

async fn create(
    at: KeyedOrg<Admin, DnsWrite>,
    zones: RequireDns,
    asked: Asked,
    Sent(mut new): Sent<SentZone>,
) -> Result<New<ShownDetail>, Problem> {
    let name = ZoneName::parse(&new.name).map_err(|error| unprocessable(format!("name: {error}")))?;
    let rrsets = new.wanted(&name, zones.hosting()?)?;
    if find(&zones, at.org.id, name.as_str()).await?.is_some() {
        return Err(Problem::new(&EXISTS, format!("Conflict: the zone {}. is there already", name.as_str())));
    }
    let named = NewZone { name: new.name };
    let mut detail = zones.zone_create_with(&at.actor, at.org.id, named, &rrsets).await.map_err(refused)?.value;
    if new.dnssec == Some(true) {
        let switch = DnssecSwitch { enabled: true };
        detail.zone = zones.dnssec_switch(&at.actor, at.org.id, name.as_str(), switch).await?.value;
    }
    Ok(New(if asked.shows_rrsets() {
        ShownDetail::with_rrsets(detail, &at.org.slug, |_| true)
    } else {
        ShownDetail::of(detail.zone, &at.org.slug)
    }))
}

async fn get(at: KeyedZone<Viewer, DnsRead>, zones: RequireDns, asked: Asked) -> Result<Answer<ShownDetail>, Problem> {
    if !asked.shows_rrsets() {
        let zone = zones.zone_entry(at.org.id, at.zone.as_str()).await?;
        return Ok(Answer(ShownDetail::of(zone, &at.org.slug)));
    }
    let zone = zones.zone(at.org.id, at.zone.as_str()).await?;
    let name = asked.rrset_name.as_deref().map(|name| name.trim_end_matches('.').to_ascii_lowercase());
    let wanted = |rrset: &Rrset| {
        name.as_ref().is_none_or(|name| *name == rrset.name)
            && asked.rrset_type.as_ref().is_none_or(|kind| kind.eq_ignore_ascii_case(rrset.kind.as_str()))
    };
    Ok(Answer(ShownDetail::with_rrsets(zone.value, &at.org.slug, wanted)))
}

async fn patch(
    at: KeyedZone<Member, DnsWrite>,
    zones: RequireDns,
    Sent(sent): Sent<SentRrsets>,
) -> Result<NoContent, Problem> {
    let rrsets = sent.wanted(&at.zone, zones.hosting()?)?;
    let (place, patch) = ((at.org.id, at.zone.as_str()), RrsetsPatch { rrsets, dry_run: false });
    if !patch.rrsets.is_empty() {
        zones.rrsets_patch(&at.actor, place, patch, &Expected::Any).await.map_err(refused)?;
    }
    Ok(NoContent)
}

/// Of all that PowerDNS keeps of a zone, DNSSEC is what can be changed; what says nothing else is taken.
async fn change(
    at: KeyedZone<Admin, DnsWrite>,
    zones: RequireDns,
    Sent(change): Sent<SentChange>,
) -> Result<NoContent, Problem> {
    change.check()?;
    if let Some(enabled) = change.dnssec {
        zones.dnssec_switch(&at.actor, at.org.id, at.zone.as_str(), DnssecSwitch { enabled }).await?;
    }
    Ok(NoContent)
}

async fn delete(at: KeyedZone<Admin, DnsWrite>, zones: RequireDns) -> Result<NoContent, Problem> {
    zones.zone_delete(&at.actor, at.org.id, at.zone.as_str()).await?;
    Ok(NoContent)
}

/// As text, or within JSON for whoever asks for that.
async fn export(at: KeyedZone<Viewer, DnsRead>, zones: RequireDns, headers: Header) -> Result<Bytes, Problem> {
    let file = zones.zonefile(at.org.id, at.zone.as_str()).await?.value;
    let in_json = headers.get(ACCEPT.as_str()).is_some_and(|accept| accept.contains("application/json"));
    Ok(if in_json {
        Bytes::whole("application/json", json!({ "zone": file }).to_string())
    } else {
        Bytes::whole("text/plain; charset=utf-8", file)
    })
}

/// Every change notifies by itself.
async fn notify(_: KeyedZone<Member, DnsWrite>) -> Result<Answer<Outcome>, Problem> {
    Ok(Answer(Outcome { result: "Notification queued" }))
}

/// There is nothing to rectify: the nameserver that signs keeps the order of names.
async fn rectify(_: KeyedZone<Member, DnsWrite>) -> Result<Answer<Outcome>, Problem> {
    Ok(Answer(Outcome { result: "Rectified" }))
}

async fn find(zones: &RequireDns, org: OrgId, name: &str) -> Result<Option<Zone>, Problem> {
    match zones.zone_entry(org, name).await {
        Ok(zone) => Ok(Some(zone)),
        Err(DnsError::ZoneNotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn all(zones: &RequireDns, org: OrgId, only: Option<&[ZoneId]>) -> Result<Vec<Zone>, Problem> {
    let (mut all, mut paging) = (Vec::new(), Paging { limit: Paging::<String>::MOST, after: None });
    loop {
        let page = zones.zones(org, only, &paging).await?;
        paging.after = page.items.last().map(|zone| zone.name.clone());
        all.extend(page.items);
        if page.next_cursor.is_none() {
            return Ok(all);
        }
    }
}
