//! A simulated control plane with the endpoints that a node uses.

mod ai;
mod certificates;
mod handlers;
mod mail;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::http::header::AUTHORIZATION;
use actix_web::web::{Bytes, Data};
use actix_web::{App, HttpRequest, HttpServer, web};
pub use protocol::DeploymentState as State;
use protocol::{Batch, DeploymentReport, Report, ReportKind as _};
use serde_json::{Value, json};
use tokio::sync::watch;

use self::ai::AiCalls;
use self::certificates::IssuedCertificates;
use self::mail::Mail;
use crate::running::until;

pub const TOKEN: &str = "svc_nod_of-the-tests";

pub struct ControlPlane {
    address: SocketAddr,
    state: Data<Shared>,
    server: Option<ServerHandle>,
}

struct Shared {
    table: Mutex<Table>,
    revision: watch::Sender<u64>,
    /// The number of reported observations.
    reported: watch::Sender<usize>,
}

#[derive(Default)]
struct Table {
    sites: BTreeMap<String, (u64, Value)>,
    /// The parts other than the site by project and name, with their revisions; null if a part is no longer desired.
    parts: BTreeMap<(String, String), (u64, Value)>,
    /// The projects and names of the parts that cannot be read.
    unavailable: BTreeSet<(String, String)>,
    /// The number of parts in a page of the desired state; all by default.
    page_size: Option<usize>,
    /// Whether polls other than those for the full state fail.
    fails_later_pages: bool,
    failed_pages: usize,
    /// The accepted credential, if it is not [`TOKEN`].
    token: Option<String>,
    /// The number of polls for the full state whose credential was rejected.
    rejected_relists: usize,
    /// Whether each of the next responses to polls rejects the credential.
    rejections: VecDeque<bool>,
    bundles: HashMap<String, Bytes>,
    fetched: Vec<String>,
    /// The host and the project of each access code.
    codes: HashMap<String, (String, String)>,
    batches: Vec<Batch>,
    /// The last announcement of a node.
    announced: Option<Value>,
    /// How many of the next reports fail with an error.
    failing_reports: usize,
    /// The project whose reports are rejected.
    rejected: Option<String>,
    /// The time by which the clock of the control plane is behind.
    clock_back: Duration,
    /// The address of sites, by default `http://{hostname}`.
    site_url: Option<String>,
    ai: AiCalls,
    mail: Mail,
    certificates: IssuedCertificates,
}

/// A reported state of a deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    pub project: String,
    pub version: i32,
    pub state: State,
    pub message: Option<String>,
}

impl From<&Report> for Observation {
    fn from(report: &Report) -> Self {
        assert_eq!(report.kind, DeploymentReport::NAME);
        let DeploymentReport { version, state, message } = serde_json::from_value(report.report.clone()).unwrap();
        Self { project: report.project.clone(), version, state, message }
    }
}

fn public() -> Value {
    json!({ "mode": "public", "password": null, "bypass": null, "version": 0 })
}

/// Returns a gzipped tar of the files, with an empty manifest.
pub fn archive(files: &[(&str, &[u8])]) -> Bytes {
    archive_with("{}", files)
}

fn archive_with(manifest: &str, files: &[(&str, &[u8])]) -> Bytes {
    let manifest = [("svc.json", manifest.as_bytes())];
    testkit::bundle::pack(&[&manifest, files].concat()).into()
}

pub fn sha256(content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl ControlPlane {
    pub async fn start() -> Self {
        let (table, revision, reported) = (Mutex::default(), watch::Sender::new(0), watch::Sender::new(0));
        let state = Data::new(Shared { table, revision, reported });
        let mut started = Self { address: testkit::reserved_address(), state, server: None };
        started.restart().await;
        started
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes all connections and stops listening.
    pub async fn stop(&mut self) {
        self.server.take().unwrap().stop(false).await;
    }

    pub async fn restart(&mut self) {
        let state = Data::clone(&self.state);
        let app = move || {
            App::new()
                .app_data(Data::clone(&state))
                .route("/internal/v1/desired", web::get().to(handlers::desired))
                .route("/internal/v1/bundles/{digest}", web::get().to(handlers::bundle))
                .route("/internal/v1/node", web::put().to(handlers::announce))
                .route("/internal/v1/reports", web::post().to(handlers::report))
                .route("/internal/v1/access/redeem", web::post().to(handlers::redeem))
                .route("/internal/v1/ai/models", web::get().to(ai::models))
                .route("/internal/v1/ai/calls", web::post().to(ai::admit))
                .route("/internal/v1/ai/settlements", web::post().to(ai::settle))
                .configure(certificates::routes)
                .configure(mail::routes)
        };
        // A poll of a killed node must not claim mail.
        let server = HttpServer::new(app).workers(1).h1_allow_half_closed(false).disable_signals();
        let server = server.bind(self.address).unwrap().run();
        self.server = Some(server.handle());
        tokio::spawn(server);
    }

    /// Deploys files to a project with the hostname `<project>.localhost`. Returns the bundle's digest.
    pub fn deploy(&self, project: &str, files: &[(&str, &[u8])]) -> String {
        self.deploy_with("{}", project, files)
    }

    /// Like [`Self::deploy`], with a manifest.
    pub fn deploy_with(&self, manifest: &str, project: &str, files: &[(&str, &[u8])]) -> String {
        let archive = archive_with(manifest, files);
        let digest = self.set_desired(project, &[&format!("{project}.localhost")], &archive);
        self.put(&digest, archive);
        digest
    }

    /// Like [`Self::deploy`], for a project of this owner. The projects of all other deploys have the same owner.
    pub fn deploy_as(&self, owner: &str, project: &str, files: &[(&str, &[u8])]) {
        let archive = archive(files);
        let digest = self.set_desired_as(owner, project, &[&format!("{project}.localhost")], &archive);
        self.put(&digest, archive);
    }

    /// Sets the desired bundle without providing its content.
    pub fn set_desired(&self, project: &str, hostnames: &[&str], archive: &Bytes) -> String {
        self.set_desired_as("usr_1", project, hostnames, archive)
    }

    fn set_desired_as(&self, owner: &str, project: &str, hostnames: &[&str], archive: &Bytes) -> String {
        let bundle = format!("sha256:{}", sha256(archive));
        let site = json!({ "owner": owner, "hostnames": hostnames, "bundle": bundle, "sizeBytes": archive.len(), "version": self.next_version(project), "access": public() });
        self.change(project, site);
        bundle
    }

    /// Deploys files with an access policy, as a new version each time.
    pub fn protect(&self, project: &str, files: &[(&str, &[u8])], access: Value) {
        let archive = archive(files);
        let (bundle, version) = (format!("sha256:{}", sha256(&archive)), self.next_version(project));
        self.put(&bundle, archive.clone());
        let hostnames = [format!("{project}.localhost")];
        let site = json!({ "owner": "usr_1", "hostnames": hostnames, "bundle": bundle, "sizeBytes": archive.len(), "version": version, "access": access });
        self.change(project, site);
    }

    /// Accepts an access code at a host, once.
    pub fn allow_code(&self, code: &str, host: &str, project: &str) {
        let scope = (host.to_owned(), project.to_owned());
        self.state.table.lock().unwrap().codes.insert(code.to_owned(), scope);
    }

    /// Sets the secrets of a project.
    pub fn set_secrets(&self, project: &str, values: &[(&str, &str)]) {
        let values: BTreeMap<_, _> = values.iter().copied().collect();
        self.set_part(project, "secrets", json!({ "revision": self.next_revision(), "values": values }));
    }

    /// Sets a part other than the site; null if it is no longer desired.
    pub fn set_part(&self, project: &str, part: &str, desired: Value) {
        let revision = self.next_revision();
        let key = (project.to_owned(), part.to_owned());
        self.state.table.lock().unwrap().parts.insert(key, (revision, desired));
        self.state.revision.send_replace(revision);
    }

    /// Makes a part unreadable from now on. Nodes are notified of this when the part changes, and in the full state.
    pub fn make_unavailable(&self, project: &str, part: &str) {
        self.state.table.lock().unwrap().unavailable.insert((project.to_owned(), part.to_owned()));
    }

    /// Makes all parts readable again.
    pub fn make_available(&self) {
        self.state.table.lock().unwrap().unavailable.clear();
    }

    /// Splits the desired state into pages of this number of parts.
    pub fn set_page_size(&self, size: usize) {
        self.state.table.lock().unwrap().page_size = Some(size);
    }

    /// Sets whether all polls fail except those for the first page of the full state.
    pub fn fail_later_pages(&self, fails: bool) {
        self.state.table.lock().unwrap().fails_later_pages = fails;
    }

    /// Returns how many polls failed because of [`Self::fail_later_pages`].
    pub fn failed_pages(&self) -> usize {
        self.state.table.lock().unwrap().failed_pages
    }

    /// Accepts only this credential.
    pub fn accept(&self, token: &str) {
        self.state.table.lock().unwrap().token = Some(token.to_owned());
    }

    /// Rejects the credential of the node, and waits until the node polls for the full state.
    pub async fn reject_until_relist(&self) {
        let rejected = || self.state.table.lock().unwrap().rejected_relists;
        let before = rejected();
        self.accept("svc_nod_another");
        // A new revision ends the current poll.
        self.state.revision.send_replace(self.next_revision());
        until("a rejected relist", || rejected() > before).await;
    }

    /// Sets whether each of the next responses to polls rejects the credential of the node.
    pub fn reject_polls(&self, rejections: impl Into<VecDeque<bool>>) {
        self.state.table.lock().unwrap().rejections = rejections.into();
    }

    /// Waits for an observation after the first `seen` ones, and returns it.
    pub async fn observation(&self, seen: usize) -> Observation {
        self.state.reported.subscribe().wait_for(|reported| *reported > seen).await.unwrap();
        let table = self.state.table.lock().unwrap();
        table.batches.iter().flat_map(|batch| &batch.reports).nth(seen).unwrap().into()
    }

    /// Returns the last report about a project.
    pub fn last_report(&self, project: &str) -> Option<(i32, State)> {
        let table = self.state.table.lock().unwrap();
        let mut reports = table.batches.iter().flat_map(|batch| &batch.reports).map(Observation::from);
        reports.rfind(|seen| seen.project == project).map(|seen| (seen.version, seen.state))
    }

    /// Returns the last report of another kind about a project.
    pub fn last_report_of(&self, project: &str, kind: &str) -> Option<Value> {
        let table = self.state.table.lock().unwrap();
        let mut reports = table.batches.iter().flat_map(|batch| &batch.reports);
        reports.rfind(|report| report.project == project && report.kind == kind).map(|report| report.report.clone())
    }

    /// Returns all reports of one kind about a project.
    pub fn reports_of(&self, project: &str, kind: &str) -> Vec<Value> {
        let table = self.state.table.lock().unwrap();
        let reports = table.batches.iter().flat_map(|batch| &batch.reports);
        let reports = reports.filter(|report| report.project == project && report.kind == kind);
        reports.map(|report| report.report.clone()).collect()
    }

    /// Returns the last announcement of a node.
    pub fn announced(&self) -> Option<Value> {
        self.state.table.lock().unwrap().announced.clone()
    }

    /// Returns the numbers of the batches with their sizes.
    pub fn batches(&self) -> Vec<(i64, usize)> {
        let table = self.state.table.lock().unwrap();
        table.batches.iter().map(|batch| (batch.batch, batch.reports.len())).collect()
    }

    /// Rejects every batch with a report about this project.
    pub fn reject_reports_on(&self, project: &str) {
        self.state.table.lock().unwrap().rejected = Some(project.to_owned());
    }

    /// Responds with an error to this number of the next requests that contain reports.
    pub fn fail_reports(&self, count: usize) {
        self.state.table.lock().unwrap().failing_reports = count;
    }

    /// Publishes the current site under a new revision, as a rollback from a version that was never served does.
    pub fn republish(&self, project: &str) {
        let site = self.state.table.lock().unwrap().sites[project].1.clone();
        self.change(project, site);
    }

    /// Stores a content as the response to requests for this digest.
    pub fn put(&self, digest: &str, content: impl Into<Bytes>) {
        self.state.table.lock().unwrap().bundles.insert(digest.to_owned(), content.into());
    }

    /// Sets `Strict-Transport-Security` of hostnames of a project.
    pub fn set_hsts(&self, project: &str, hsts: Value) {
        self.change_field(project, "hsts", hsts);
    }

    /// Sets the hostnames of a project.
    pub fn set_hostnames(&self, project: &str, hostnames: &[&str]) {
        self.change_field(project, "hostnames", json!(hostnames));
    }

    fn change_field(&self, project: &str, field: &str, value: Value) {
        let mut site = self.state.table.lock().unwrap().sites[project].1.clone();
        site[field] = value;
        self.change(project, site);
    }

    pub fn remove(&self, project: &str) {
        self.change(project, Value::Null);
    }

    /// Simulates a restore from an old backup: other sites and a lower revision.
    pub fn restore_backup(&self) {
        self.state.table.lock().unwrap().sites.clear();
        self.state.revision.send_replace(0);
    }

    /// Simulates a restore from a backup with another state of a part.
    pub fn restore_with_part(&self, project: &str, part: &str, desired: Value) {
        let key = (project.to_owned(), part.to_owned());
        self.state.table.lock().unwrap().parts.insert(key, (1, desired));
        self.state.revision.send_replace(0);
    }

    /// Sets the address of sites. With https, a proxy in front of the nodes terminates TLS. Nodes are notified of this
    /// with the next change.
    pub fn set_site_url(&self, site_url: &str) {
        self.state.table.lock().unwrap().site_url = Some(site_url.to_owned());
    }

    /// Sets the clock back, which nodes see in the header `Date` of the desired state.
    pub fn set_clock_back(&self, duration: Duration) {
        self.state.table.lock().unwrap().clock_back = duration;
    }

    /// Returns the number of requests for a digest.
    pub fn fetches_of(&self, digest: &str) -> usize {
        self.state.table.lock().unwrap().fetched.iter().filter(|fetched| *fetched == digest).count()
    }

    fn next_version(&self, project: &str) -> u64 {
        let table = self.state.table.lock().unwrap();
        table.sites.get(project).map_or(0, |(_, site)| site["version"].as_u64().unwrap_or_default()) + 1
    }

    /// Returns the current revision.
    pub fn revision(&self) -> u64 {
        *self.state.revision.borrow()
    }

    fn next_revision(&self) -> u64 {
        *self.state.revision.borrow() + 1
    }

    fn change(&self, project: &str, site: Value) {
        let revision = self.next_revision();
        self.state.table.lock().unwrap().sites.insert(project.to_owned(), (revision, site));
        self.state.revision.send_replace(revision);
    }
}

fn is_node(request: &HttpRequest, table: &Table) -> bool {
    let token = table.token.as_deref().unwrap_or(TOKEN);
    request.headers().get(AUTHORIZATION).is_some_and(|sent| *sent == format!("Bearer {token}"))
}
