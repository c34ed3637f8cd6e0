//! The registrar: Name.com's Core API for checks, registrations, renewals, nameservers, locks and DS records, and its
//! pages. Names select behaviors: see [`behavior`].

mod behavior;
mod page;
mod state;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use hyper::header::AUTHORIZATION;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::faults;
use crate::http::{self, Request, Response};
use behavior::Behavior;
use state::{ApiError, State};

pub use state::RegistrarOrder;

/// The path of the API.
pub const REGISTRAR_PATH: &str = "/registrar";
/// The user of the account.
pub const REGISTRAR_USER: &str = "svc-sandbox";
/// The API token of the account.
pub const REGISTRAR_TOKEN: &str = "registrar-sandbox-hush";

const API: &str = "/registrar/core/v1/";
/// The delay of a slow response. Shorter than the client's timeout.
const SLOW: Duration = Duration::from_secs(2);

/// An operation of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RegistrarOperation {
    Check,
    Register,
    Read,
    SetNameservers,
    Renew,
    SetLock,
    AuthCode,
    Ds,
}

/// A fault that affects the following requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistrarFault {
    /// Responds with this status, content type and body, without an effect.
    Response(u16, &'static str, String),
    /// Responds with 429 and `Retry-After: 1` once, and then without a fault.
    TooManyRequestsOnce,
    /// Responds with 429 and a `Retry-After` of a minute.
    TooManyRequests,
    /// Redirects to another path.
    Redirect,
    /// Responds with 50 MB of JSON.
    Large,
    /// Executes no request, and does not respond while the fault lasts.
    Hang,
    /// Executes a request when the fault ends, and does not respond.
    HangBefore,
    /// Executes a request, and does not respond while the fault lasts.
    HangAfter,
    /// Closes the connection without a response or an effect.
    Close,
    /// Executes a request, and closes the connection without a response.
    LostResponse,
}

impl RegistrarFault {
    /// Returns a page of a proxy with this status.
    #[must_use]
    pub fn html(status: u16) -> Self {
        Self::Response(status, "text/html", "<!DOCTYPE html><title>Maintenance</title>".to_owned())
    }

    /// Returns an error of the API with this status. Its message quotes a contact, like those of the real registrar.
    #[must_use]
    pub fn refusal(status: u16) -> Self {
        let body = json!({ "message": "Invalid value", "details": "ada@code.example, +4915112345678" });
        Self::Response(status, "application/json", body.to_string())
    }
}

/// The current fault, and the operation that it affects; `None` for all.
type CurrentFault = Option<(Option<RegistrarOperation>, RegistrarFault)>;

/// The registrar behind a listener.
#[derive(Debug)]
pub(crate) struct Registrar {
    state: Mutex<State>,
    fault: watch::Sender<CurrentFault>,
}

impl Default for Registrar {
    fn default() -> Self {
        Self { state: Mutex::default(), fault: watch::Sender::new(None) }
    }
}

impl Registrar {
    /// Returns whether a request is for the API or the page of the registrar.
    pub fn serves(path: &str) -> bool {
        http::is_within(path, REGISTRAR_PATH)
    }

    /// Returns the domains in the account with their nameservers.
    pub fn delegations(&self) -> Vec<(String, Vec<String>)> {
        let domains = &self.state().domains;
        domains.iter().map(|(name, domain)| (name.clone(), domain.nameservers.clone())).collect()
    }

    /// Returns `None` to close the connection without a response.
    pub async fn respond(&self, request: &Request) -> Option<Response> {
        let Some(path) = request.path.strip_prefix(API) else { return Some(self.page(request)) };
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let Some(call) = Call::parse(&request.method, path, &body) else {
            return Some(error(ApiError::new(404, "Not Found")));
        };
        let response = self.respond_to(request, &call, &body).await;
        let status = response.as_ref().map_or_else(|| "no response".to_owned(), |response| response.status.to_string());
        self.state().calls.push(format!("{:?} {}: {status}", call.operation, call.name));
        response
    }

    async fn respond_to(&self, request: &Request, call: &Call<'_>, body: &Value) -> Option<Response> {
        let fault = match self.behavior(call) {
            Some(Behavior::Fault(fault)) => Some(fault),
            Some(Behavior::Slow) => {
                tokio::time::sleep(SLOW).await;
                None
            }
            None => None,
        };
        let too_many = |seconds| Response { retry_after: Some(seconds), ..error(ApiError::new(429, "Slow down")) };
        match &fault {
            Some(RegistrarFault::Response(status, content_type, body)) => {
                let refusal = (*status, body.clone());
                if *content_type == "application/json" && (400..500).contains(status) {
                    self.state().remember(request, call, refusal);
                }
                return Some(Response::new(*status, content_type, body.clone()));
            }
            Some(RegistrarFault::TooManyRequestsOnce) => {
                self.inject(None);
                return Some(too_many(1));
            }
            Some(RegistrarFault::TooManyRequests) => return Some(too_many(60)),
            Some(RegistrarFault::Redirect) => return Some(Response::redirect("/elsewhere")),
            Some(RegistrarFault::Large) => {
                let body = [b"\"", &*vec![b'x'; 50_000_000], b"\""].concat();
                return Some(Response::new(200, "application/json", body));
            }
            Some(RegistrarFault::Hang) => {
                faults::wait_for_change(&self.fault).await;
                return None;
            }
            Some(RegistrarFault::Close) => return None,
            Some(RegistrarFault::HangBefore) => faults::wait_for_change(&self.fault).await,
            Some(RegistrarFault::HangAfter | RegistrarFault::LostResponse) | None => {}
        }
        let (status, json) = self.state().answer(request, call, body);
        match fault {
            Some(RegistrarFault::HangAfter) => {
                faults::wait_for_change(&self.fault).await;
                None
            }
            Some(RegistrarFault::HangBefore | RegistrarFault::LostResponse) => None,
            _ => Some(Response::new(status, "application/json", json)),
        }
    }

    /// Returns the injected fault, or otherwise the behavior that the name selects.
    fn behavior(&self, call: &Call<'_>) -> Option<Behavior> {
        let fault = self.fault.borrow().clone();
        let fault = fault.filter(|(operation, _)| operation.is_none_or(|operation| operation == call.operation));
        fault.map(|(_, fault)| Behavior::Fault(fault)).or_else(|| self.state().behavior(call))
    }

    fn inject(&self, fault: CurrentFault) {
        self.fault.send_replace(fault);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// Returns whether a request has the credentials of the account (RFC 7617).
fn is_authorized(request: &Request) -> bool {
    let expected = STANDARD.encode(format!("{REGISTRAR_USER}:{REGISTRAR_TOKEN}"));
    request.header(AUTHORIZATION) == format!("Basic {expected}")
}

fn error(error: ApiError) -> Response {
    let (status, body) = error.response();
    Response::new(status, "application/json", body)
}

/// A request to the API.
#[derive(Debug)]
struct Call<'a> {
    operation: RegistrarOperation,
    /// The domain; for a check, the first name.
    name: &'a str,
    method: &'a str,
    /// The digest in the path.
    digest: Option<&'a str>,
}

impl<'a> Call<'a> {
    fn parse(method: &'a str, path: &'a str, body: &'a Value) -> Option<Self> {
        use RegistrarOperation::{AuthCode, Check, Ds, Read, Register, Renew, SetLock, SetNameservers};
        let segments: Vec<&str> = path.split('/').collect();
        let (operation, name, digest) = match (method, segments.as_slice()) {
            ("POST", ["domains:checkAvailability"]) => {
                (Check, body["domainNames"][0].as_str().unwrap_or_default(), None)
            }
            ("POST", ["domains"]) => (Register, body["domain"]["domainName"].as_str().unwrap_or_default(), None),
            ("GET" | "POST", ["domains", name, "dnssec"]) => (Ds, *name, None),
            ("DELETE", ["domains", name, "dnssec", digest]) => (Ds, *name, Some(*digest)),
            ("PATCH", ["domains", name]) => (SetLock, *name, None),
            (_, ["domains", target]) => match (method, target.split_once(':')) {
                ("GET", None) => (Read, *target, None),
                ("GET", Some((name, "getAuthCode"))) => (AuthCode, name, None),
                ("POST", Some((name, "setNameservers"))) => (SetNameservers, name, None),
                ("POST", Some((name, "renew"))) => (Renew, name, None),
                _ => return None,
            },
            _ => return None,
        };
        Some(Self { operation, name, method, digest })
    }
}

/// A registrar for tests.
#[derive(Debug)]
pub struct RegistrarServer {
    base: String,
    registrar: Arc<Registrar>,
    _task: JoinSet<()>,
}

impl RegistrarServer {
    /// Starts a registrar on a free port.
    ///
    /// # Panics
    /// Panics if no port is free.
    pub async fn start() -> Self {
        let respond = |registrar: Arc<Registrar>, request: Request| {
            http::run_to_completion(async move { registrar.respond(&request).await })
        };
        let (base, registrar, task) = http::serve_on_free_port(|_| Registrar::default(), respond).await;
        Self { base, registrar, _task: task }
    }

    /// Returns the base URL of the API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}{REGISTRAR_PATH}", self.base)
    }

    /// Returns the settings with which a server uses this registrar.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, String); 3] {
        [
            ("SVC_REGISTRAR_URL", self.url()),
            ("SVC_REGISTRAR_USER", REGISTRAR_USER.to_owned()),
            ("SVC_REGISTRAR_TOKEN", REGISTRAR_TOKEN.to_owned()),
        ]
    }

    /// Injects a fault into all operations, or removes the current one.
    pub fn inject(&self, fault: Option<RegistrarFault>) {
        self.registrar.inject(fault.map(|fault| (None, fault)));
    }

    /// Injects a fault into one operation.
    pub fn inject_into(&self, operation: RegistrarOperation, fault: RegistrarFault) {
        self.registrar.inject(Some((Some(operation), fault)));
    }

    /// Returns the number of requests that wait for the end of a fault.
    #[must_use]
    pub fn hanging(&self) -> usize {
        self.registrar.fault.receiver_count()
    }

    /// Returns the last requests, oldest first: the operation, the domain and the status.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        self.registrar.state().calls.iter().cloned().collect()
    }

    /// Returns the registrations and renewals so far, oldest first.
    #[must_use]
    pub fn orders(&self) -> Vec<RegistrarOrder> {
        self.registrar.state().orders.clone()
    }

    /// Returns a domain in the account, as the API returns it.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<Value> {
        self.registrar.state().domain(name).ok()
    }

    /// Returns the DS records of a domain as the API returns them; empty if the account does not contain the domain.
    #[must_use]
    pub fn ds_records(&self, name: &str) -> Vec<Value> {
        self.registrar.state().domains.get(name).map_or_else(Vec::new, |domain| domain.ds.clone())
    }

    /// Registers a name for another registrar's customer.
    pub fn take(&self, name: &str) {
        self.registrar.state().taken.insert(name.to_owned());
    }

    /// Transfers a domain to another registrar.
    ///
    /// # Panics
    /// Panics if the account does not contain the domain.
    pub fn transfer_away(&self, name: &str) {
        self.registrar.state().transfer_away(name).unwrap();
    }

    /// Changes the expiry of a domain.
    ///
    /// # Panics
    /// Panics if the account does not contain the domain.
    pub fn set_expiry(&self, name: &str, expires_at: DateTime<Utc>) {
        self.registrar.state().domains.get_mut(name).unwrap().expires_at = expires_at;
    }

    /// Locks or unlocks a domain, as its holder can do at the registrar.
    ///
    /// # Panics
    /// Panics if the account does not contain the domain.
    pub fn set_locked(&self, name: &str, locked: bool) {
        self.registrar.state().domains.get_mut(name).unwrap().locked = locked;
    }

    /// Ends the registry's transfer lock of a domain.
    ///
    /// # Panics
    /// Panics if the account does not contain the domain.
    pub fn end_transfer_lock(&self, name: &str) {
        self.registrar.state().domains.get_mut(name).unwrap().transfer_lock_expires_at = None;
    }
}
