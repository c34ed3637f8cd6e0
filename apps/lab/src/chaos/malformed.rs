//! 10,000 malformed requests.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use kernel::ClockRng;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Outcome;
use super::load::{self, Connection};
use super::report::Finding;
use super::rig::{RequestProbe, Rig};
use crate::random;

const REQUESTS: usize = 10_000;

/// A selection of routes. `ORG` is replaced by an existing organization.
const ROUTES: &[(&str, &str)] = &[
    ("POST", "/v1/auth/dev/login"),
    ("GET", "/v1/auth/codehost/callback?code=x&state=y"),
    ("POST", "/v1/me/tokens"),
    ("POST", "/v1/me/ssh-keys"),
    ("POST", "/v1/orgs"),
    ("PATCH", "/v1/orgs/ORG"),
    ("GET", "/v1/orgs/ORG/audit?limit=1"),
    ("POST", "/v1/orgs/ORG/members"),
    ("POST", "/v1/orgs/ORG/invites"),
    ("GET", "/v1/invites/x"),
    ("GET", "/v1/orgs/ORG/projects?cursor=x"),
    ("POST", "/v1/orgs/ORG/projects"),
    ("POST", "/v1/orgs/ORG/projects/site/deployments"),
    ("POST", "/v1/orgs/ORG/projects/site/rollback"),
    ("POST", "/v1/orgs/ORG/projects/site/hostnames"),
    ("PUT", "/v1/orgs/ORG/projects/site/access"),
    ("POST", "/v1/orgs/ORG/dns/zones"),
    ("PUT", "/v1/orgs/ORG/dns/zones/ORG.example.org/rrsets/www/A"),
    ("PATCH", "/v1/orgs/ORG/dns/zones/ORG.example.org/rrsets"),
    ("PUT", "/v1/orgs/ORG/dns/zones/ORG.example.org/zonefile"),
];

/// Valid JSON of the wrong shape, invalid JSON, and an empty body.
const BODIES: &[&str] = &[
    "",
    "{",
    "null",
    "[]",
    "\"x\"",
    "{}",
    "{\"name\":1}",
    "{\"name\":null}",
    "{\"name\":\"\\u0000\"}",
    "{\"name\":\"\\ud800\"}",
    "{\"name\":\"x\",\"name\":\"y\"}",
    "{\"slug\":\"-\"}",
    "{\"subject\":[]}",
    "{\"email\":\"@\",\"role\":\"king\"}",
    "{\"records\":[\"999.1.1.1\"],\"ttl\":-1}",
    "{\"rrsets\":[{}]}",
    "1e999",
    "{\"name\":1e400}",
    "\u{feff}{}",
    "{\"version\":99999999999999999999}",
];

pub async fn run() -> Result<Outcome> {
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&[]).await?);
    let (token, org) = rig.caller(0)?;
    let no_op = RequestProbe::no_op(rig.service.api);
    let mut pending = JoinSet::new();
    let mut statuses = BTreeMap::<u16, usize>::new();
    for _ in 0..REQUESTS {
        if pending.len() >= 64
            && let Some(status) = pending.join_next().await
        {
            *statuses.entry(status?).or_default() += 1;
        }
        pending.spawn(send(rig.service.api, malformed_request(&token, &org)));
    }
    for status in pending.join_all().await {
        *statuses.entry(status).or_default() += 1;
    }
    let samples = no_op.stop().await?;
    rig.verify(&mut outcome).await?;
    let server_errors: usize = statuses.iter().filter(|(status, _)| **status >= 500).map(|(_, count)| count).sum();
    let closed = statuses.remove(&0).unwrap_or_default();
    outcome.findings.push(Finding::new(
        "10,000 malformed requests",
        "no 5xx, no panic in the log",
        server_errors == 0 && outcome.violations.is_empty(),
        format!(
            "{server_errors} responses with 5xx, {} errors in the log; statuses {statuses:?}, {closed} connections \
             closed without a response; no-op {:.1} ms",
            outcome.violations.len(),
            load::percentile(&samples, 99, |_| true)
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}

/// Sends a request and returns the status, or 0 without a response. An incomplete request ends after a timeout.
async fn send(address: std::net::SocketAddr, request: Vec<u8>) -> u16 {
    let response = async {
        let mut connection = Connection::connect(address).await?;
        connection.request(&request).await
    };
    timeout(Duration::from_millis(500), response).await.ok().and_then(Result::ok).unwrap_or_default()
}

fn pick<'a, T>(all: &'a [T], default: &'a T) -> &'a T {
    all.get(random::index(all.len())).unwrap_or(default)
}

/// Builds a request with one or more defects.
fn malformed_request(token: &str, org: &str) -> Vec<u8> {
    let (method, path) = pick(ROUTES, &("GET", "/"));
    let (path, body) = (path.replace("ORG", org), pick(BODIES, &""));
    let plain = load::request(method, &path, token, body);
    let text = String::from_utf8_lossy(&plain).into_owned();
    let replaced = |from: &str, to: &str| text.replacen(from, to, 1).into_bytes();
    let corrupt = |mut bytes: Vec<u8>| {
        let at = random::index(bytes.len());
        if let Some(byte) = bytes.get_mut(at) {
            *byte = ClockRng::system().bytes::<1>()[0];
        }
        bytes
    };
    match random::index(16) {
        0 => ClockRng::system().bytes::<64>().to_vec(),
        1 => replaced(" HTTP/1.1", " HTTP/9.9"),
        2 => replaced(" /v1", &format!(" /v1/{}", "a".repeat(9000))),
        3 => replaced(" /v1", " /v1/%00%ff%2e%2e//..;"),
        4 => replaced("Host: svc", format!("Host: svc\r\n{}", "X-A: b\r\n".repeat(100)).trim_end()),
        5 => replaced("Host: svc", &format!("Host: svc\r\nX-A: {}", "b".repeat(70_000))),
        6 => replaced("Bearer ", "Bearer \u{0}\u{7f}"),
        7 => replaced("Content-Length: ", "Content-Length: -"),
        8 => replaced("Content-Length: ", "Transfer-Encoding: chunked\r\nContent-Length: "),
        9 => replaced("Content-Length: ", "Content-Length: 9999999999"),
        10 => replaced("Host: svc", "Host: svc\r\nContent-Encoding: br\r\nIdempotency-Key: \u{e9}"),
        11 => replaced("application/json", "application/gzip"),
        12 => replaced("Host: svc", "Host: svc\r\nIf-Match: W/\"\u{1}\"\r\nTraceparent: 00-zz"),
        13 => corrupt(corrupt(plain)),
        14 => replaced("GET", "G\u{c9}T"),
        _ => plain,
    }
}
