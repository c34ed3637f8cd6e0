//! A simulated control plane with the endpoints that a mail node uses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::http::header::AUTHORIZATION;
use actix_web::web::{Bytes, Data, Json, Path, PayloadConfig};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use protocol::{InboundMail, Recipient, RecipientRequest};
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::time::sleep;

pub const TOKEN: &str = "svc_nod_of-the-tests";
/// The domain of the project `prj_blog`.
pub const BLOG: &str = "blog.acme.mail.example";
/// The domain of the project `prj_shop`.
pub const SHOP: &str = "shop.acme.mail.example";
/// The domain of a project whose mailbox is full.
pub const FULL: &str = "full.acme.mail.example";
/// The limit of the control plane for the sender's address, in characters.
const MAX_FROM: usize = 512;

/// A mail that the control plane received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub id: String,
    pub mail: InboundMail,
    pub raw: String,
}

pub struct ControlPlane {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: ServerHandle,
    /// The port of a stopped control plane.
    reserved: Mutex<Option<TcpSocket>>,
}

struct Shared {
    table: Mutex<Table>,
    count: watch::Sender<usize>,
}

#[derive(Default)]
struct Table {
    raw: BTreeMap<String, Bytes>,
    /// In the order of their arrival.
    mails: Vec<Received>,
    /// All ids that were handed over, with repetitions.
    handovers: Vec<String>,
    /// Projects that no longer exist.
    gone: BTreeSet<String>,
    /// Projects whose mails are rejected with 400.
    refused: BTreeSet<String>,
    /// The domains that have another owner than at the start.
    owners: BTreeMap<String, Recipient>,
    /// Mails of this project are rejected with 503. An empty text selects all mails.
    failing: Option<String>,
    /// Look-ups are rejected with 503.
    failing_lookups: bool,
    /// Uploads are rejected with 404, as if another server had this address.
    unknown_uploads: bool,
}

impl ControlPlane {
    pub fn start() -> Self {
        let shared = Arc::new(Shared { table: Mutex::default(), count: watch::Sender::new(0) });
        let state = Data::from(Arc::clone(&shared));
        let app = move || {
            App::new()
                .app_data(state.clone())
                .app_data(PayloadConfig::new(26 << 20))
                .route("/internal/v1/mail/recipients", web::post().to(recipients))
                .route("/internal/v1/mail/uploads/{project}/{id}", web::put().to(upload))
                .route("/internal/v1/mail/inbound/{id}", web::put().to(receive))
        };
        let server = HttpServer::new(app).workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
        let address = server.addrs()[0];
        let server = server.run();
        let handle = server.handle();
        tokio::spawn(server);
        Self { address, shared, server: handle, reserved: Mutex::default() }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops the server. The port stays bound, so that no other process can use it.
    pub async fn stop(&self) {
        self.server.stop(false).await;
        // The worker still serves open connections for a moment, and then drops its state.
        while Arc::strong_count(&self.shared) > 1 {
            sleep(Duration::from_millis(1)).await;
        }
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(self.address).unwrap();
        *self.reserved.lock().unwrap() = Some(socket);
    }

    /// Waits until this many mails were received, and returns them in the order of their subjects.
    pub async fn wait_for(&self, count: usize) -> Vec<Received> {
        self.shared.count.subscribe().wait_for(|received| *received >= count).await.unwrap();
        let mut mails = self.received();
        mails.sort_by_key(|it| (it.mail.subject.clone(), it.mail.project.clone()));
        mails
    }

    pub fn received(&self) -> Vec<Received> {
        self.shared.table.lock().unwrap().mails.clone()
    }

    /// Removes and returns the mails so far.
    pub fn take(&self) -> Vec<Received> {
        let mut table = self.shared.table.lock().unwrap();
        self.shared.count.send_replace(0);
        std::mem::take(&mut table.mails)
    }

    pub fn handovers(&self) -> Vec<String> {
        self.shared.table.lock().unwrap().handovers.clone()
    }

    pub fn remove(&self, project: &str) {
        self.shared.table.lock().unwrap().gone.insert(project.to_owned());
    }

    /// From now on, rejects the mails of this project as invalid.
    pub fn refuse(&self, project: &str) {
        self.shared.table.lock().unwrap().refused.insert(project.to_owned());
    }

    /// From now on, accepts the mails of this project again.
    pub fn accept(&self, project: &str) {
        self.shared.table.lock().unwrap().refused.remove(project);
    }

    /// Gives a domain to a project, or to none.
    pub fn give(&self, domain: &str, owner: Option<&str>) {
        let owner = owner.map_or(Recipient::Unknown, |project| Recipient::Project(project.to_owned()));
        self.shared.table.lock().unwrap().owners.insert(domain.to_owned(), owner);
    }

    /// From now on, rejects the mails of this project, or all mails if the text is empty. `None` ends the rejection.
    pub fn fail(&self, project: Option<&str>) {
        self.shared.table.lock().unwrap().failing = project.map(str::to_owned);
    }

    pub fn reject_uploads(&self, reject: bool) {
        self.shared.table.lock().unwrap().unknown_uploads = reject;
    }

    pub fn fail_lookups(&self, fail: bool) {
        self.shared.table.lock().unwrap().failing_lookups = fail;
    }
}

fn is_authorized(request: &HttpRequest) -> bool {
    request.headers().get(AUTHORIZATION).is_some_and(|given| given == format!("Bearer {TOKEN}").as_str())
}

async fn recipients(request: HttpRequest, asked: Json<RecipientRequest>, shared: Data<Shared>) -> HttpResponse {
    if !is_authorized(&request) {
        return HttpResponse::Unauthorized().finish();
    }
    let domain = asked.into_inner().domain;
    let table = shared.table.lock().unwrap();
    if table.failing_lookups {
        return HttpResponse::ServiceUnavailable().finish();
    }
    if let Some(owner) = table.owners.get(&domain) {
        return HttpResponse::Ok().json(owner);
    }
    HttpResponse::Ok().json(match domain.as_str() {
        BLOG => Recipient::Project("prj_blog".to_owned()),
        SHOP => Recipient::Project("prj_shop".to_owned()),
        FULL => Recipient::Full,
        "mail.example" => Recipient::Unknown,
        domain if domain.ends_with(".mail.example") => Recipient::Unknown,
        _ => Recipient::Foreign,
    })
}

async fn upload(
    request: HttpRequest,
    path: Path<(String, String)>,
    bytes: Bytes,
    shared: Data<Shared>,
) -> HttpResponse {
    if !is_authorized(&request) {
        return HttpResponse::Unauthorized().finish();
    }
    let mut table = shared.table.lock().unwrap();
    if table.unknown_uploads {
        return HttpResponse::NotFound().finish();
    }
    table.raw.insert(path.into_inner().1, bytes);
    HttpResponse::NoContent().finish()
}

async fn receive(
    request: HttpRequest,
    id: Path<String>,
    mail: Json<InboundMail>,
    shared: Data<Shared>,
) -> HttpResponse {
    if !is_authorized(&request) {
        return HttpResponse::Unauthorized().finish();
    }
    let (id, mail) = (id.into_inner(), mail.into_inner());
    let mut table = shared.table.lock().unwrap();
    table.handovers.push(id.clone());
    if table.failing.as_ref().is_some_and(|failing| failing.is_empty() || *failing == mail.project) {
        return HttpResponse::ServiceUnavailable().finish();
    }
    if table.gone.contains(&mail.project) {
        return HttpResponse::NotFound().finish();
    }
    if table.refused.contains(&mail.project) || mail.from.chars().count() > MAX_FROM {
        return HttpResponse::BadRequest().finish();
    }
    let Some(raw) = table.raw.get(&id) else { return HttpResponse::Conflict().finish() };
    assert_eq!(u64::try_from(raw.len()).unwrap(), mail.size_bytes);
    let raw = String::from_utf8_lossy(raw).into_owned();
    if table.mails.iter().all(|known| known.id != id) {
        table.mails.push(Received { id, mail, raw });
        let count = table.mails.len();
        shared.count.send_replace(count);
    }
    HttpResponse::NoContent().finish()
}
