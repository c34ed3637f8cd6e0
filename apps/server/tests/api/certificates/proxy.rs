//! A proxy in front of Pebble: it records the calls, replaces responses, holds calls, and offers renewal information,
//! which Pebble 2.4 does not.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::Time;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::reserved_port;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::rig::acceptor;
use crate::support::Pebble;

/// The name with which CAA records allow the authority.
pub const CAA_IDENTITY: &str = "ca.example";

/// The resources of the authority, by the begin of their path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    Directory,
    Nonce,
    NewAccount,
    Account,
    NewOrder,
    Order,
    Authorization,
    Challenge,
    Finalize,
    Certificate,
    RenewalInfo,
}

const PATHS: [(&str, Resource); 11] = [
    ("/dir", Resource::Directory),
    ("/nonce-plz", Resource::Nonce),
    ("/sign-me-up", Resource::NewAccount),
    ("/my-account/", Resource::Account),
    ("/order-plz", Resource::NewOrder),
    ("/my-order/", Resource::Order),
    ("/authZ/", Resource::Authorization),
    ("/chalZ/", Resource::Challenge),
    ("/finalize-order/", Resource::Finalize),
    ("/certZ/", Resource::Certificate),
    (RENEWAL_INFO, Resource::RenewalInfo),
];

const RENEWAL_INFO: &str = "/renewal-info";

/// The moment at which a call is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// The authority has not received the request.
    Before,
    /// The authority has responded, but the caller has not received the response.
    After,
}

/// A call that waits. Dropping it closes the connection without a response.
pub struct HeldCall {
    release: oneshot::Sender<()>,
}

impl HeldCall {
    /// Continues the call.
    pub fn release(self) {
        self.release.send(()).unwrap();
    }
}

/// A response of the authority to a call that it refuses.
#[derive(Debug, Clone, Copy)]
pub struct Refusal {
    pub status: u16,
    /// The type of the problem (RFC 8555 section 6.7).
    pub kind: &'static str,
    /// The seconds in `Retry-After`.
    pub retry_after: Option<u32>,
}

pub struct AcmeProxy {
    /// The URL of the directory.
    pub directory: String,
    shared: Arc<Shared>,
    held: mpsc::UnboundedReceiver<HeldCall>,
    task: AbortHandle,
}

struct Shared {
    pebble: String,
    /// The host and port of the proxy. Pebble returns URLs with the host of the request.
    host: String,
    client: reqwest::Client,
    state: Mutex<State>,
    held: mpsc::UnboundedSender<HeldCall>,
}

#[derive(Default)]
struct State {
    /// The payloads of all requests.
    calls: Vec<(Resource, Value)>,
    refusals: HashMap<Resource, (Refusal, usize)>,
    holds: BTreeSet<(Resource, Moment)>,
    window: Option<Value>,
}

impl AcmeProxy {
    pub async fn start(pebble: &Pebble) -> Self {
        let port = reserved_port();
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let read = |path| std::fs::read_to_string(path).unwrap();
        let acceptor = acceptor(&read(&pebble.certificate), &read(&pebble.key));
        let (sender, held) = mpsc::unbounded_channel();
        let host = format!("localhost:{port}");
        let directory = format!("https://{host}/dir");
        let pebble_url = pebble.directory.trim_end_matches("/dir").to_owned();
        let (client, state) = (pebble.client(), Mutex::default());
        let shared = Arc::new(Shared { pebble: pebble_url, host, client, state, held: sender });
        let task = tokio::spawn(accept(listener, acceptor, shared.clone())).abort_handle();
        Self { directory, shared, held, task }
    }

    /// Refuses this number of calls of a resource.
    pub fn refuse(&self, resource: Resource, refusal: Refusal, calls: usize) {
        self.state().refusals.insert(resource, (refusal, calls));
    }

    /// Returns the number of calls that are still to be refused.
    pub fn refusals(&self) -> usize {
        self.state().refusals.values().map(|(_, calls)| calls).sum()
    }

    /// Sets the suggested time range of renewals.
    pub fn set_window(&self, start: Time, end: Time) {
        let window = json!({ "suggestedWindow": { "start": start.to_string(), "end": end.to_string() } });
        self.state().window = Some(window);
    }

    /// Holds the next call of a resource.
    pub fn hold(&self, resource: Resource, moment: Moment) {
        self.state().holds.insert((resource, moment));
    }

    /// Returns the moments at which calls are still to be held.
    pub fn holds(&self) -> Vec<(Resource, Moment)> {
        self.state().holds.iter().copied().collect()
    }

    /// Waits for a held call.
    pub async fn held(&mut self) -> HeldCall {
        self.held.recv().await.unwrap()
    }

    /// Returns the payloads of the calls of a resource so far.
    pub fn payloads(&self, resource: Resource) -> Vec<Value> {
        let state = self.state();
        state.calls.iter().filter(|(called, _)| *called == resource).map(|(_, payload)| payload.clone()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }
}

impl Drop for AcmeProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        tokio::spawn(async move {
            // A killed client breaks its connections.
            if let Ok(stream) = acceptor.accept(stream).await {
                shared.serve(stream).await;
            }
        });
    }
}

struct Request {
    method: Method,
    path: String,
    body: Vec<u8>,
}

struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Shared {
    /// Serves one request. Returns `None` if the connection ends before.
    async fn serve(&self, mut stream: TlsStream<TcpStream>) -> Option<()> {
        let request = read(&mut stream).await?;
        let resource = PATHS.iter().find(|(path, _)| request.path.starts_with(path)).unwrap().1;
        let jws: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let payload = URL_SAFE_NO_PAD.decode(jws["payload"].as_str().unwrap_or_default()).unwrap();
        let payload: Value = serde_json::from_slice(&payload).unwrap_or_default();
        self.state.lock().unwrap().calls.push((resource, payload.clone()));
        self.hold(resource, Moment::Before).await?;
        let mut response = match self.refusal(resource) {
            Some(refusal) => self.refuse(refusal).await,
            None if resource == Resource::RenewalInfo => self.renewal_info(),
            None => self.forward(&request).await?,
        };
        self.adapt(resource, &payload, &mut response);
        self.hold(resource, Moment::After).await?;
        write(&mut stream, response).await
    }

    async fn hold(&self, resource: Resource, moment: Moment) -> Option<()> {
        if !self.state.lock().unwrap().holds.remove(&(resource, moment)) {
            return Some(());
        }
        let (sender, released) = oneshot::channel();
        self.held.send(HeldCall { release: sender }).ok()?;
        released.await.ok()
    }

    fn refusal(&self, resource: Resource) -> Option<Refusal> {
        let mut state = self.state.lock().unwrap();
        let (refusal, calls) = state.refusals.get_mut(&resource)?;
        *calls = calls.checked_sub(1)?;
        Some(*refusal)
    }

    /// Returns a refusal, with a nonce of Pebble.
    async fn refuse(&self, refusal: Refusal) -> Response {
        let nonce = Request { method: Method::HEAD, path: "/nonce-plz".to_owned(), body: Vec::new() };
        let mut headers = self.forward(&nonce).await.map(|response| response.headers).unwrap_or_default();
        headers.extend(refusal.retry_after.map(|seconds| ("retry-after".to_owned(), seconds.to_string())));
        let kind = format!("urn:ietf:params:acme:error:{}", refusal.kind);
        let body = json!({ "type": kind, "detail": "The test refuses." });
        Response { status: refusal.status, headers, body: body.to_string().into_bytes() }
    }

    fn renewal_info(&self) -> Response {
        match &self.state.lock().unwrap().window {
            Some(window) => Response { status: 200, headers: Vec::new(), body: window.to_string().into_bytes() },
            None => Response { status: 404, headers: Vec::new(), body: Vec::new() },
        }
    }

    async fn forward(&self, request: &Request) -> Option<Response> {
        let url = format!("{}{}", self.pebble, request.path);
        let sent = self.client.request(request.method.clone(), url).header("host", &self.host);
        let sent = sent.header("content-type", "application/jose+json").body(request.body.clone()).send().await.ok()?;
        let status = sent.status().as_u16();
        let is_end_to_end = |name: &str| !["content-length", "transfer-encoding", "connection"].contains(&name);
        let headers = sent.headers().iter().filter(|(name, _)| is_end_to_end(name.as_str()));
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        Some(Response { status, headers, body: sent.bytes().await.ok()?.to_vec() })
    }

    /// Adds the extensions that Pebble does not have.
    fn adapt(&self, resource: Resource, payload: &Value, response: &mut Response) {
        let Ok(mut body) = serde_json::from_slice::<Value>(&response.body) else { return };
        match resource {
            Resource::Directory => {
                body["renewalInfo"] = json!(format!("https://{}{RENEWAL_INFO}", self.host));
                body["meta"]["caaIdentities"] = json!([CAA_IDENTITY]);
            }
            Resource::NewOrder if response.status == 201 && payload["replaces"].is_string() => {
                body["replaces"] = payload["replaces"].clone();
            }
            _ => return,
        }
        response.body = body.to_string().into_bytes();
    }
}

async fn read(stream: &mut TlsStream<TcpStream>) -> Option<Request> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut buffer).await.ok()?;
        if read == 0 {
            return None;
        }
        bytes.extend_from_slice(&buffer[..read]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let length = |line: &str| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok();
        let length = head.lines().find_map(length).unwrap_or_default();
        if let Some(body) = bytes.get(end + 4..end + 4 + length) {
            let mut words = head.split(' ');
            let method = words.next()?.parse().ok()?;
            return Some(Request { method, path: words.next()?.to_owned(), body: body.to_vec() });
        }
    }
}

async fn write(stream: &mut TlsStream<TcpStream>, response: Response) -> Option<()> {
    let Response { status, headers, body } = response;
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("HTTP/1.1 {status} .\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all(&[head.into_bytes(), body].concat()).await.ok()?;
    stream.shutdown().await.ok()
}
