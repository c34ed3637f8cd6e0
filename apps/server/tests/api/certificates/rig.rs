//! The test rig: the server, Pebble, the public DNS, and a node that answers HTTP-01.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dns::primary::PrimaryConfig;
use kernel::OrgId;
use providers::acme::AcmeConfig;
use reqwest::Method;
use sandbox::{DnsServer, RecordType};
use serde_json::{Value, json};
use server::Config;
use testkit::reserved_dns_address;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::eventually;
use super::proxy::AcmeProxy;
use crate::nameservers::daemon::{Daemon, Packages, Ports, TSIG, packages};
use crate::support::{App, Caller, ManualNode, Pebble, TestDatabase, site};

pub const HOSTNAMES: &str = "/v1/orgs/ada/projects/site/hostnames";
pub const ZONES: &str = "/v1/orgs/ada/dns/zones";
pub const ZONE: &str = "/v1/orgs/ada/dns/zones/example.org";

/// The parent domain of default hostnames.
pub const PLATFORM: &str = "apps.svc.example";

/// The default hostname of the project.
pub const DEFAULT: &str = "site-ada.apps.svc.example";

pub struct Rig {
    pub app: App,
    pub ada: Caller,
    pub dns: Arc<DnsServer>,
    pub pebble: Pebble,
    pub knot: Option<Daemon>,
    pub node: Arc<ManualNode>,
    /// Whether the node answers challenges.
    pub answers: Arc<AtomicBool>,
    /// The node that answers challenges.
    responder: watch::Sender<Arc<ManualNode>>,
    tasks: Vec<AbortHandle>,
}

impl Rig {
    /// Starts the rig. Ada has the deployed project `site`. Returns `None` if Pebble is not installed.
    pub async fn start() -> Option<Self> {
        Self::start_with(|_| {}).await
    }

    /// Like [`Self::start`], with a changed configuration.
    pub async fn start_with(change: impl FnOnce(&mut Config)) -> Option<Self> {
        Some(Self::with(Pebble::start().await?, None, change).await)
    }

    /// Starts the rig with a proxy in front of Pebble.
    pub async fn behind_proxy() -> Option<(Self, AcmeProxy)> {
        let pebble = Pebble::start().await?;
        let proxy = AcmeProxy::start(&pebble).await;
        let directory = proxy.directory.parse().unwrap();
        Some((Self::with(pebble, None, |config| config.acme[0].directory = directory).await, proxy))
    }

    /// Starts the rig with a Pebble that requires one of these external account bindings. The server has none.
    pub async fn with_required_binding(keys: Value) -> Option<Self> {
        let options = json!({ "externalAccountBindingRequired": true, "externalAccountMACKeys": keys });
        Some(Self::with(Pebble::start_with(options).await?, None, |_| {}).await)
    }

    /// Starts the rig with Knot, to which the public DNS delegates the hosted zones. Returns `None` also if Knot is not
    /// installed.
    pub async fn with_knot() -> Option<Self> {
        let packages = packages()?;
        Some(Self::with(Pebble::start().await?, Some(packages), |_| {}).await)
    }

    /// Starts the rig. Knot runs if there are packages for it. Otherwise the public DNS has the records of challenges.
    async fn with(pebble: Pebble, knot: Option<Packages>, change: impl FnOnce(&mut Config)) -> Self {
        let (dns, ports) = (pebble.dns.clone(), Ports::free());
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let nameserver = if knot.is_some() { local(ports.knot) } else { dns.address() };
        let app = App::with(|config| {
            configure(config, &pebble, local(ports.primary), nameserver);
            // NOTIFY messages need a nameserver that transfers zones.
            config.dns.as_mut().unwrap().has_primary = knot.is_some();
            change(config);
        })
        .await;
        let knot = knot.map(|packages| Daemon::knot(&packages, ports));
        let ada = app.sign_in("ada").await;
        let node = Arc::new(ManualNode::new(&app).await);
        ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
        let answers = Arc::new(AtomicBool::new(true));
        let (responder, responding) = watch::channel(node.clone());
        let mut tasks = vec![serve_challenges(pebble.http_port, responding, answers.clone()).await];
        match knot {
            Some(_) => dns.delegate_to(nameserver),
            None => tasks.push(tokio::spawn(serve_zones(app.database.clone(), dns.clone())).abort_handle()),
        }
        dns.set(DEFAULT, RecordType::A, &["127.0.0.1"]);
        ada.upload("/v1/orgs/ada/projects/site/deployments", site("page")).await.expect(201);
        Self { app, ada, dns, pebble, knot, node, answers, responder, tasks }
    }

    /// Stops the server, and continues with another one, whose configuration `change` modifies.
    pub async fn continue_with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        self.app.shut_down().await;
        let app = self.app.another_with(|config| {
            config.primary.as_mut().unwrap().listen = reserved_dns_address();
            change(config);
        });
        self.app = app.await;
        self.ada = self.app.connect(&self.ada);
        self.node = Arc::new(self.node.connect(&self.app));
        self.responder.send_replace(self.node.clone());
        self
    }

    /// Returns the organization of Ada.
    pub async fn org(&self) -> OrgId {
        let org = self.app.db_rows("SELECT id FROM orgs.orgs WHERE slug = 'ada'").await;
        OrgId::from_uuid(org[0]["id"].as_str().unwrap().parse().unwrap())
    }

    /// Claims a hostname, proves its ownership by TXT, and points it to the node.
    pub async fn activate(&self, name: &str) {
        activate(&self.ada, &self.dns, name).await;
    }

    /// Moves all times into the past, as if this interval had passed. No run may be in progress.
    pub async fn lapse(&self, interval: &str) {
        let statement = format!(
            "UPDATE certificates.names SET due_at = due_at - interval '{interval}', \
                 renew_at = renew_at - interval '{interval}'; \
             UPDATE certificates.certificates SET not_before = not_before - interval '{interval}', \
                 not_after = not_after - interval '{interval}'; \
             UPDATE certificates.orders SET created_at = created_at - interval '{interval}'; \
             UPDATE certificates.pauses SET until = until - interval '{interval}'; \
             DELETE FROM store.rate_limits WHERE key LIKE 'certificate-%'"
        );
        self.app.db_execute(&statement).await.unwrap();
    }

    /// Returns the row of a name.
    pub async fn name(&self, name: &str) -> Value {
        let row = format!("SELECT * FROM certificates.names WHERE name = '{name}'");
        self.app.db_rows(&row).await[0].clone()
    }

    /// Returns the field `tls` of a hostname.
    pub async fn tls(&self, name: &str) -> Value {
        let listed = self.ada.get(HOSTNAMES).await.expect(200).clone();
        let found = listed["items"].as_array().unwrap().iter().find(|it| it["name"] == name).cloned();
        found.unwrap_or_else(|| panic!("no hostname {name}: {listed}"))["tls"].clone()
    }

    /// Waits until a hostname has this state of TLS.
    pub async fn tls_becomes(&self, name: &str, state: &str) -> Value {
        let wait = async || {
            let tls = self.tls(name).await;
            let is_other_end = ["active", "failed"].iter().any(|end| tls["state"] == *end && *end != state);
            // A renewal or a repeated order can still follow.
            if is_other_end {
                eprintln!("{name}: {tls}");
            }
            Some(tls).filter(|tls| tls["state"] == state)
        };
        eventually(&format!("{name} is {state}"), wait).await
    }

    /// Returns the rrsets in Ada's zone that the issuance manages.
    pub async fn challenge_rrsets(&self) -> Vec<Value> {
        self.app.db_rows("SELECT name FROM dns.rrsets WHERE managed_by = 'certificate'").await
    }

    /// Returns the number of orders in progress.
    pub async fn orders(&self) -> usize {
        self.app.db_rows("SELECT name FROM certificates.orders").await.len()
    }

    /// Returns the reference to the certificate of a hostname in the desired state.
    pub async fn reference(&self, name: &str) -> Option<Value> {
        let project = self.ada.get("/v1/orgs/ada/projects/site").await.expect(200)["id"].clone();
        let part = self.node.part(&project, "certificates").await;
        part["certificates"].as_array()?.iter().find(|reference| reference["name"] == name).cloned()
    }

    /// Fetches a certificate like a node, serves it, and requests `host` with Pebble's root as the only trusted one.
    pub async fn handshake(&self, reference: &Value, host: &str) {
        let path = format!("certificates/{}", reference["id"].as_str().unwrap());
        let fetched = self.node.send(Method::GET, &path, |request| request).await.expect(200).clone();
        assert_eq!((&fetched["name"], &fetched["notAfter"]), (&reference["name"], &reference["notAfter"]));
        let acceptor = acceptor(fetched["chain"].as_str().unwrap(), fetched["key"].as_str().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let root = reqwest::Certificate::from_pem(self.pebble.root().await.as_bytes()).unwrap();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([root]).resolve(host, address);
        let url = format!("https://{host}:{}/", address.port());
        let response = client.build().unwrap().get(url).send().await.unwrap();
        assert_eq!(response.status(), 204);
        server.await.unwrap();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Makes an organization that of the platform.
pub fn set_platform_org(config: &mut Config, org: OrgId) {
    config.platform_org = Some(org);
    config.dns.as_mut().unwrap().platform_org = Some(org);
}

/// Claims a hostname, proves its ownership by TXT, and points it to the node.
pub async fn activate(ada: &Caller, dns: &DnsServer, name: &str) {
    let claimed = ada.post(HOSTNAMES, json!({ "name": name })).await.expect(200).clone();
    let value = format!("svc-verify={}", claimed["verificationToken"].as_str().unwrap());
    dns.set(&format!("_svc-verify.{name}"), RecordType::TXT, &[&value]);
    dns.set(name, RecordType::A, &["127.0.0.1"]);
    let verified = ada.post(&format!("{HOSTNAMES}/{name}/verify"), json!({})).await.expect(200).clone();
    assert_eq!(verified["state"], "active", "{verified}");
}

/// Configures the server with this authority, this address of its hidden primary, and this nameserver of its zones.
fn configure(config: &mut Config, pebble: &Pebble, listen: SocketAddr, nameserver: SocketAddr) {
    config.dns_resolver = Some(pebble.dns.address());
    config.gateway.site.platform_domain = PLATFORM.to_owned();
    config.own_domains = vec!["svc.example".to_owned()];
    let directory = pebble.directory.parse().unwrap();
    let ca = Some(std::fs::read_to_string(&pebble.certificate).unwrap());
    config.acme = vec![AcmeConfig { directory, contact: Some("ops@svc.example".to_owned()), binding: None, ca }];
    config.primary = Some(PrimaryConfig {
        listen,
        key: TSIG.parse().unwrap(),
        secondaries: vec![nameserver],
        catalog: dns::ZoneName::parse("catalog.invalid").unwrap(),
    });
}

/// Plays the part of a node that answers HTTP-01: it asks the control plane for the response.
pub async fn serve_challenges(
    port: u16,
    node: watch::Receiver<Arc<ManualNode>>,
    answers: Arc<AtomicBool>,
) -> AbortHandle {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let serve = async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let (node, answers) = (node.borrow().clone(), answers.clone());
            tokio::spawn(async move { answer(stream, &node, answers.load(Ordering::SeqCst)).await });
        }
    };
    tokio::spawn(serve).abort_handle()
}

async fn answer(mut stream: TcpStream, node: &ManualNode, answers: bool) {
    let mut request = vec![0; 4096];
    let length = stream.read(&mut request).await.unwrap();
    let request = String::from_utf8_lossy(&request[..length]).into_owned();
    let path = request.split(' ').nth(1).unwrap_or_default();
    let token = path.strip_prefix("/.well-known/acme-challenge/").unwrap_or_default();
    let host = request.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("host: ").map(str::to_owned));
    let host = host.unwrap_or_default();
    let host = host.split(':').next().unwrap_or_default();
    let found = node.get_when_reachable(&format!("acme-challenges/{token}?host={host}")).await;
    let response = match found.status == 200 && answers {
        true => {
            let body = found.expect(200)["keyAuthorization"].as_str().unwrap().to_owned();
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
        }
        false => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
    };
    stream.write_all(response.as_bytes()).await.unwrap();
}

/// Copies the TXT records of challenges to the public DNS, as the secondaries would serve them.
pub async fn serve_zones(database: Arc<TestDatabase>, dns: Arc<DnsServer>) {
    let statement = "SELECT r.name || '.' || z.name AS name, o.response FROM dns.rrsets r \
         JOIN dns.zones z ON z.id = r.zone_id JOIN certificates.orders o \
             ON '_acme-challenge.' || regexp_replace(o.name, '^\\*\\.', '') = r.name || '.' || z.name \
         WHERE r.managed_by = 'certificate'";
    let mut served: Vec<String> = Vec::new();
    loop {
        let rows = database.rows(statement).await;
        for name in served.drain(..) {
            if rows.iter().all(|row| row["name"] != name.as_str()) {
                dns.set(&name, RecordType::TXT, &[]);
            }
        }
        for row in rows {
            let name = row["name"].as_str().unwrap().to_owned();
            dns.set(&name, RecordType::TXT, &[row["response"].as_str().unwrap()]);
            served.push(name);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub fn acceptor(chain: &str, key: &str) -> tokio_rustls::TlsAcceptor {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    tokio_rustls::TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()))
}
