//! The two endpoints of the control plane that a node uses.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::http::header::AUTHORIZATION;
use actix_web::web::{Bytes, Data, Path, Query};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

pub const TOKEN: &str = "svc_nod_of-the-tests";

pub struct ControlPlane {
    address: SocketAddr,
    state: Data<State>,
    server: Option<ServerHandle>,
}

struct State {
    table: Mutex<Table>,
    revision: watch::Sender<u64>,
}

#[derive(Default)]
struct Table {
    sites: BTreeMap<String, (u64, Value)>,
    bundles: HashMap<String, Bytes>,
    fetched: Vec<String>,
}

/// A gzipped tar of the files, with a manifest.
pub fn archive(files: &[(&str, &[u8])]) -> Bytes {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, content) in [("svc.json", &b"{}"[..])].iter().chain(files) {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, *content).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap().into()
}

pub fn sha256(content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl ControlPlane {
    pub async fn start() -> Self {
        let state = Data::new(State { table: Mutex::default(), revision: watch::Sender::new(0) });
        let mut started = Self { address: ([127, 0, 0, 1], 0).into(), state, server: None };
        started.come_back().await;
        started
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Breaks every connection and listens no longer.
    pub async fn go_away(&mut self) {
        self.server.take().unwrap().stop(false).await;
    }

    pub async fn come_back(&mut self) {
        let state = Data::clone(&self.state);
        let app = move || {
            App::new()
                .app_data(Data::clone(&state))
                .route("/internal/v1/desired", web::get().to(desired))
                .route("/internal/v1/bundles/{digest}", web::get().to(bundle))
        };
        let server = HttpServer::new(app).workers(1).disable_signals().bind(self.address).unwrap();
        self.address = server.addrs()[0];
        let server = server.run();
        self.server = Some(server.handle());
        tokio::spawn(server);
    }

    /// Deploys files to a project whose host name is `<project>.localhost`; gives the bundle's digest.
    pub fn deploy(&self, project: &str, files: &[(&str, &[u8])]) -> String {
        let archive = archive(files);
        let digest = self.want(project, &[&format!("{project}.localhost")], &archive);
        self.put(&digest, archive);
        digest
    }

    /// Wants a bundle to be served, whether or not it is here.
    pub fn want(&self, project: &str, hostnames: &[&str], archive: &Bytes) -> String {
        let bundle = format!("sha256:{}", sha256(archive));
        let site = json!({ "hostnames": hostnames, "bundle": bundle, "sizeBytes": archive.len(), "version": 1 });
        self.change(project, site);
        bundle
    }

    /// What is answered to who asks for that digest.
    pub fn put(&self, digest: &str, content: impl Into<Bytes>) {
        self.state.table.lock().unwrap().bundles.insert(digest.to_owned(), content.into());
    }

    pub fn remove(&self, project: &str) {
        self.change(project, Value::Null);
    }

    /// As if restored from a backup of long ago: other sites, and a lower revision.
    pub fn set_back(&self) {
        self.state.table.lock().unwrap().sites.clear();
        self.state.revision.send_replace(0);
    }

    /// How many times each digest was asked for.
    pub fn fetches_of(&self, digest: &str) -> usize {
        self.state.table.lock().unwrap().fetched.iter().filter(|fetched| *fetched == digest).count()
    }

    fn change(&self, project: &str, site: Value) {
        let revision = *self.state.revision.borrow() + 1;
        self.state.table.lock().unwrap().sites.insert(project.to_owned(), (revision, site));
        self.state.revision.send_replace(revision);
    }
}

#[derive(Deserialize)]
struct Poll {
    since: u64,
    wait: u64,
}

async fn desired(request: HttpRequest, poll: Query<Poll>, state: Data<State>) -> HttpResponse {
    if !is_node(&request) {
        return HttpResponse::Unauthorized().finish();
    }
    let since = poll.since;
    let news = async { state.revision.subscribe().wait_for(|revision| since == 0 || *revision != since).await.is_ok() };
    let _ = timeout(Duration::from_secs(poll.wait), news).await;
    let revision = *state.revision.borrow();
    let table = state.table.lock().unwrap();
    let changed =
        table.sites.iter().filter(|(_, (revision, site))| *revision > since && (since > 0 || !site.is_null()));
    let sites =
        changed.map(|(project, (revision, site))| json!({ "project": project, "revision": revision, "site": site }));
    let sites: Vec<Value> = sites.collect();
    HttpResponse::Ok().json(json!({ "schema": 2, "revision": revision, "full": since == 0, "sites": sites }))
}

async fn bundle(request: HttpRequest, digest: Path<String>, state: Data<State>) -> HttpResponse {
    if !is_node(&request) {
        return HttpResponse::Unauthorized().finish();
    }
    let mut table = state.table.lock().unwrap();
    table.fetched.push(digest.clone());
    match table.bundles.get(digest.as_str()) {
        Some(content) => HttpResponse::Ok().content_type("application/gzip").body(content.clone()),
        None => HttpResponse::NotFound().finish(),
    }
}

fn is_node(request: &HttpRequest) -> bool {
    request.headers().get(AUTHORIZATION).is_some_and(|sent| *sent == format!("Bearer {TOKEN}"))
}
