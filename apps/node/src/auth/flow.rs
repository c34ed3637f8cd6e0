//! Sign-ins in progress.
//!
//! The state of a flow is in a cookie of the browser that began it, sealed with a key of the node. Each tab has its own
//! flow with its own cookie. The parameter `state` names the cookie, and contains a random part that only this browser
//! and the provider know.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{collections::HashMap, io};

use actix_web::HttpRequest;
use actix_web::cookie::Cookie;
use actix_web::http::header::COOKIE;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use protocol::{AuthProviderKind, cookie_values};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::cookies::prefixed;
use crate::clock::since_epoch;
use crate::host_cookie::host_cookie;
use crate::random;
use crate::seal::{Purpose, SealingKey};

/// A flow must end within this time.
const LIFETIME: Duration = Duration::from_secs(10 * 60);
const NAME: &str = "svc_auth_flow_";
/// The largest number of flows of one browser at one host. Browsers limit the size of all cookies.
const MAX_FLOWS: usize = 5;
/// A `next` that is longer as JSON is ignored, so that the cookies of all flows fit into the headers that servers and
/// proxies accept.
const MAX_NEXT_BYTES: usize = 300;
/// The length of a flow's id: the time in milliseconds and a random part, in hexadecimal.
const ID_CHARACTERS: usize = 16;
/// The largest number of states that are remembered as used. Each needs a request with a valid flow, and these are
/// limited.
const MAX_USED: usize = 100_000;

/// A flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    pub provider: AuthProviderKind,
    /// The grant and the registration with which the flow began.
    pub grant: i64,
    pub registration: i64,
    /// The redirect URI, which contains the host.
    pub redirect_uri: String,
    /// The path to which the visitor returns.
    pub next: String,
    /// The parameter `state`.
    pub state: String,
    /// The PKCE verifier.
    pub verifier: String,
    pub nonce: String,
    /// When the flow began, in seconds since the Unix epoch.
    began_at: u64,
}

/// The key of the flows, and the used states.
pub struct Flows {
    key: SealingKey,
    used: Mutex<HashMap<Uuid, Instant>>,
}

impl Flow {
    /// Creates a flow with random secrets.
    pub fn new(
        provider: AuthProviderKind,
        (grant, registration): (i64, i64),
        redirect_uri: String,
        next: &str,
    ) -> io::Result<Self> {
        let secret = || Ok::<_, io::Error>(URL_SAFE_NO_PAD.encode(random::bytes::<32>()?));
        let now = since_epoch();
        // The ids of a browser's flows sort by time, also within a second.
        let id = format!("{:012x}{:04x}", now.as_millis() & 0xffff_ffff_ffff, u16::from_be_bytes(random::bytes()?));
        let next = if serde_json::to_string(next)?.len() <= MAX_NEXT_BYTES + "\"\"".len() { next } else { "/" };
        let state = format!("{id}.{}", secret()?);
        let (verifier, nonce) = (secret()?, secret()?);
        Ok(Self {
            provider,
            grant,
            registration,
            redirect_uri,
            next: next.to_owned(),
            state,
            verifier,
            nonce,
            began_at: now.as_secs(),
        })
    }

    /// Returns the PKCE challenge (RFC 7636 section 4.2).
    pub fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest(&SHA256, self.verifier.as_bytes()))
    }

    /// Returns a digest of the state, which the session of the flow contains.
    pub fn state_digest(&self) -> Uuid {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(digest(&SHA256, self.state.as_bytes()).as_ref().split_at(16).0);
        Uuid::from_bytes(bytes)
    }

    fn id(&self) -> &str {
        self.state.split('.').next().unwrap_or_default()
    }

    fn has_expired(&self) -> bool {
        since_epoch().as_secs().saturating_sub(self.began_at) > LIFETIME.as_secs()
    }
}

impl Flows {
    /// Derives the key from the node's credential, so that flows survive a restart.
    pub fn new(credential: &[u8]) -> io::Result<Self> {
        Ok(Self { key: SealingKey::derive(credential, Purpose::SignInFlows)?, used: Mutex::default() })
    }

    /// Returns the cookie of a flow, and the removals of the oldest flows of the browser.
    pub fn cookies(
        &self,
        request: &HttpRequest,
        project: &str,
        flow: &Flow,
        https: bool,
    ) -> io::Result<Vec<Cookie<'static>>> {
        let sealed = self.key.seal(project, serde_json::to_vec(flow)?)?;
        let cookie = host_cookie(name(flow.id(), https), URL_SAFE_NO_PAD.encode(sealed), LIFETIME, https);
        let mut ids = ids(request, https);
        ids.sort_unstable();
        let excess = (ids.len() + 1).saturating_sub(MAX_FLOWS);
        let removals = ids.into_iter().take(excess).map(|id| removal(&id, https));
        Ok(removals.chain([cookie]).collect())
    }

    /// Returns the flow of this browser with this `state`. Returns `None` if the browser has no such flow, for example
    /// because it belongs to another browser, project or host, or has expired.
    pub fn find(&self, request: &HttpRequest, project: &str, state: &str, https: bool) -> Option<Flow> {
        let id = state.split('.').next().filter(|id| is_id(id))?;
        let name = name(id, https);
        let mut values = request.headers().get_all(COOKIE).flat_map(|header| cookie_values(header.as_bytes(), &name));
        let flow = values.find_map(|value| {
            let content = self.key.open(project, &URL_SAFE_NO_PAD.decode(value).ok()?)?;
            let flow: Flow = serde_json::from_slice(&content).ok()?;
            // The sealed state is unknown to others, so digests are compared to hide it from timing.
            let is_same = digest(&SHA256, flow.state.as_bytes()).as_ref() == digest(&SHA256, state.as_bytes()).as_ref();
            is_same.then_some(flow)
        });
        flow.filter(|flow| !flow.has_expired())
    }

    /// Records that a flow has returned from its provider. Returns false if it did so before.
    pub fn claim(&self, flow: &Flow) -> bool {
        let (now, mut used) = (Instant::now(), self.used.lock().unwrap_or_else(PoisonError::into_inner));
        if used.len() >= MAX_USED {
            used.retain(|_, at| now - *at <= LIFETIME);
        }
        // Without space, the unique state of sessions still prevents that a flow creates two sessions.
        used.len() >= MAX_USED || used.insert(flow.state_digest(), now).is_none()
    }
}

/// Returns the removal of the cookie that `state` names.
pub fn removal_of(state: &str, https: bool) -> Option<Cookie<'static>> {
    let id = state.split('.').next().filter(|id| is_id(id))?;
    Some(removal(id, https))
}

fn removal(id: &str, https: bool) -> Cookie<'static> {
    host_cookie(name(id, https), String::new(), Duration::ZERO, https)
}

fn name(id: &str, https: bool) -> String {
    prefixed(&format!("{NAME}{id}"), https)
}

/// Returns the ids of the flows of a browser.
fn ids(request: &HttpRequest, https: bool) -> Vec<String> {
    let prefix = name("", https);
    let headers = request.headers().get_all(COOKIE).flat_map(|header| header.as_bytes().split(|byte| *byte == b';'));
    let names = headers.filter_map(|cookie| str::from_utf8(cookie.trim_ascii()).ok()?.split('=').next());
    names.filter_map(|name| name.strip_prefix(&prefix)).filter(|id| is_id(id)).map(str::to_owned).collect()
}

fn is_id(id: &str) -> bool {
    id.len() == ID_CHARACTERS && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn flow(next: &str) -> Flow {
        let redirect_uri = "https://a.example/__svc/auth/callback/webaccount".to_owned();
        Flow::new(AuthProviderKind::Webaccount, (1, 2), redirect_uri, next).unwrap()
    }

    fn request(cookies: &[Cookie<'_>]) -> HttpRequest {
        let cookies: Vec<String> = cookies.iter().map(|it| format!("{}={}", it.name(), it.value())).collect();
        TestRequest::default().insert_header((COOKIE, cookies.join("; "))).to_http_request()
    }

    #[test]
    fn flow_belongs_to_its_browser_and_project() {
        let flows = Flows::new(b"credential").unwrap();
        let (one, two) = (flow("/one"), flow("/two"));
        let cookies = |flow| flows.cookies(&request(&[]), "prj_1", flow, true).unwrap();
        let both = request(&[cookies(&one), cookies(&two)].concat());
        assert_eq!(flows.find(&both, "prj_1", &one.state, true), Some(one.clone()));
        assert_eq!(flows.find(&both, "prj_1", &two.state, true), Some(two.clone()));
        assert_eq!(flows.find(&both, "prj_2", &one.state, true), None);
        assert_eq!(flows.find(&both, "prj_1", &one.state, false), None);
        assert_eq!(flows.find(&request(&cookies(&two)), "prj_1", &one.state, true), None);
        let mixed = format!("{}.{}", one.id(), two.state.split_once('.').unwrap().1);
        for state in ["", ".", one.id(), &mixed, &format!("{}x", one.state)] {
            assert_eq!(flows.find(&both, "prj_1", state, true), None, "{state}");
        }
        let restarted = Flows::new(b"credential").unwrap();
        assert!(restarted.find(&both, "prj_1", &one.state, true).is_some());
        assert!(flows.claim(&one) && flows.claim(&two) && !flows.claim(&one));
    }

    #[test]
    fn expired_flow_is_unknown() {
        let flows = Flows::new(b"credential").unwrap();
        let old = Flow { began_at: since_epoch().as_secs() - LIFETIME.as_secs() - 1, ..flow("/") };
        let cookies = flows.cookies(&request(&[]), "prj_1", &old, true).unwrap();
        assert_eq!(flows.find(&request(&cookies), "prj_1", &old.state, true), None);
    }

    #[test]
    fn browser_keeps_the_newest_flows() {
        let flows = Flows::new(b"credential").unwrap();
        let kept: Vec<_> = (0..MAX_FLOWS).map(|number| Cookie::new(format!("{NAME}{number:016x}"), "x")).collect();
        let cookies = flows.cookies(&request(&kept), "prj_1", &flow(&"/".repeat(5000)), false).unwrap();
        assert_eq!(cookies.len(), 2);
        assert_eq!((cookies[0].name(), cookies[0].value()), (&*format!("{NAME}{:016x}", 0), ""));
    }

    #[test]
    fn ids_sort_by_the_time_at_which_flows_began() {
        let began = |_| {
            std::thread::sleep(Duration::from_millis(2));
            flow("/")
        };
        let flows: Vec<Flow> = (0..20).map(began).collect();
        assert!(flows.is_sorted_by_key(Flow::id), "{flows:?}");
    }

    #[test]
    fn flows_of_a_browser_fit_into_its_headers() {
        let flows = Flows::new(b"credential").unwrap();
        for (longest, too_long) in [("x".repeat(MAX_NEXT_BYTES - 1), "x"), ("\"".repeat(MAX_NEXT_BYTES / 2 - 1), "\"")]
        {
            let longest = format!("/{longest}");
            assert_eq!(flow(&longest).next, longest);
            assert_eq!(flow(&format!("{longest}{too_long}")).next, "/");
            let cookies = flows.cookies(&request(&[]), "prj_1", &flow(&longest), true).unwrap();
            let length = cookies[0].name().len() + cookies[0].value().len();
            assert!(MAX_FLOWS * length < 8 << 10, "{length}");
        }
    }
}
