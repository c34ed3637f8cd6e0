//! The endpoints for the desired state, the reports, the bundles and the access codes.

use std::time::Duration;

use actix_web::http::header::Date;
use actix_web::web::{Data, Json, Path, Query};
use actix_web::{HttpRequest, HttpResponse};
use protocol::{Batch, Receipt, SCHEMA};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Shared, is_node};

#[derive(Deserialize)]
pub struct Poll {
    since: u64,
    wait: u64,
}

pub async fn desired(request: HttpRequest, poll: Query<Poll>, state: Data<Shared>) -> HttpResponse {
    let since = poll.since;
    {
        let mut table = state.table.lock().unwrap();
        if !is_node(&request, &table) {
            table.rejected_relists += usize::from(since == 0);
            return HttpResponse::Unauthorized().finish();
        }
    }
    let news = async { state.revision.subscribe().wait_for(|revision| since == 0 || *revision != since).await.is_ok() };
    let _ = timeout(Duration::from_secs(poll.wait), news).await;
    let mut revision = *state.revision.borrow();
    let mut table = state.table.lock().unwrap();
    if table.rejections.pop_front() == Some(true) {
        return HttpResponse::Unauthorized().finish();
    }
    if table.fails_later_pages && since > 0 {
        table.failed_pages += 1;
        return HttpResponse::InternalServerError().finish();
    }
    let sites = table.sites.iter().map(|(project, part)| (project, "site", part));
    let others = table.parts.iter().map(|((project, name), part)| (project, name.as_str(), part));
    let changed =
        sites.chain(others).filter(|(.., (revision, desired))| *revision > since && (since > 0 || !desired.is_null()));
    let mut changed: Vec<_> = changed.collect();
    changed.sort_unstable_by_key(|(.., (revision, _))| *revision);
    let has_more = table.page_size.is_some_and(|size| changed.len() > size);
    if has_more {
        changed.truncate(table.page_size.unwrap());
        revision = changed.last().unwrap().2.0;
    }
    let change = |(project, name, (revision, desired)): (&String, &str, &(u64, Value))| json!({ "project": project, "revision": revision, "part": name, "desired": desired });
    let is_unavailable = |(project, name, _): &(&String, &str, &(u64, Value))| {
        table.unavailable.contains(&((*project).clone(), (*name).to_owned()))
    };
    let (unavailable, available): (Vec<_>, Vec<_>) = changed.into_iter().partition(is_unavailable);
    let unavailable = unavailable.into_iter().map(|(project, name, _)| json!({ "project": project, "part": name }));
    let unavailable: Vec<Value> = unavailable.collect();
    let parts: Vec<Value> = available.into_iter().map(change).collect();
    let batch = table.batches.last().map_or(0, |batch| batch.batch);
    let site_url = table.site_url.as_deref().unwrap_or("http://{hostname}");
    let platform = json!({ "dashboardUrl": "https://dashboard.example", "siteUrl": site_url, "certificates": table.certificates.platform });
    let date = Date((node::clock::now() - table.clock_back).into());
    HttpResponse::Ok().insert_header(date).json(json!({
        "schema": SCHEMA, "revision": revision, "full": since == 0, "batch": batch, "platform": platform, "parts": parts,
        "unavailable": unavailable, "hasMore": has_more,
    }))
}

pub async fn report(request: HttpRequest, batch: Json<Batch>, state: Data<Shared>) -> HttpResponse {
    let mut table = state.table.lock().unwrap();
    if !is_node(&request, &table) {
        return HttpResponse::Unauthorized().finish();
    }
    if table.failing_reports > 0 {
        table.failing_reports -= 1;
        return HttpResponse::InternalServerError().finish();
    }
    if batch.reports.iter().any(|seen| Some(&seen.project) == table.rejected.as_ref()) {
        return HttpResponse::BadRequest().finish();
    }
    let last = table.batches.last().map_or(0, |batch| batch.batch);
    if batch.batch > last {
        state.reported.send_modify(|reported| *reported += batch.reports.len());
        table.batches.push(batch.clone());
    }
    HttpResponse::Ok().json(Receipt { batch: last.max(batch.batch) })
}

#[derive(Deserialize)]
pub struct Redeem {
    host: String,
    code: String,
}

pub async fn redeem(request: HttpRequest, asked: Json<Redeem>, state: Data<Shared>) -> HttpResponse {
    let mut table = state.table.lock().unwrap();
    if !is_node(&request, &table) {
        return HttpResponse::Unauthorized().finish();
    }
    match table.codes.remove(&asked.code) {
        Some((host, project)) if host == asked.host => {
            HttpResponse::Ok().json(json!({ "project": project, "user": "usr_1" }))
        }
        _ => HttpResponse::BadRequest().json(json!({ "code": "bad_request" })),
    }
}

pub async fn announce(request: HttpRequest, info: Json<Value>, state: Data<Shared>) -> HttpResponse {
    let mut table = state.table.lock().unwrap();
    if !is_node(&request, &table) {
        return HttpResponse::Unauthorized().finish();
    }
    table.announced = Some(info.into_inner());
    HttpResponse::NoContent().finish()
}

pub async fn bundle(request: HttpRequest, digest: Path<String>, state: Data<Shared>) -> HttpResponse {
    let mut table = state.table.lock().unwrap();
    if !is_node(&request, &table) {
        return HttpResponse::Unauthorized().finish();
    }
    table.fetched.push(digest.clone());
    match table.bundles.get(digest.as_str()) {
        Some(content) => HttpResponse::Ok().content_type("application/gzip").body(content.clone()),
        None => HttpResponse::NotFound().finish(),
    }
}
