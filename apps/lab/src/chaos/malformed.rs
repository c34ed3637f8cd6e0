//! Ten thousand requests that are not what they should be.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use kernel::World;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Outcome;
use super::report::Finding;
use super::rig::{Rig, Watch};
use super::wire::{self, Wire};

const REQUESTS: usize = 10_000;

/// Routes of each kind; `ORG` is somebody's.
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

/// Bodies that are JSON, and not the right one; or nearly JSON; or none.
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
    let no_op = Watch::no_op(rig.service.api);
    let mut asking = JoinSet::new();
    let mut statuses = BTreeMap::<u16, usize>::new();
    for _ in 0..REQUESTS {
        if asking.len() >= 64
            && let Some(status) = asking.join_next().await
        {
            *statuses.entry(status?).or_default() += 1;
        }
        asking.spawn(ask(rig.service.api, malformed(&token, &org)));
    }
    for status in asking.join_all().await {
        *statuses.entry(status).or_default() += 1;
    }
    let shots = no_op.end().await?;
    rig.look(&mut outcome).await?;
    let faults: usize = statuses.iter().filter(|(status, _)| **status >= 500).map(|(_, count)| count).sum();
    let silent = statuses.remove(&0).unwrap_or_default();
    outcome.findings.push(Finding::new(
        "10,000 malformed requests",
        "no 5xx, no panic in the log",
        faults == 0 && outcome.wrong.is_empty(),
        format!(
            "{faults} answers of 500 and more, {} lines of faults in the log; answers {statuses:?}, {silent} connections ended without one; \
             no-op {:.1} ms",
            outcome.wrong.len(),
            wire::quantile(&shots, 99, |_| true)
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}

/// The status, or 0 where the connection ended. Who sent half a request hangs up.
async fn ask(address: std::net::SocketAddr, request: Vec<u8>) -> u16 {
    let asked = async {
        let mut wire = Wire::connect(address).await?;
        wire.ask(&request).await
    };
    timeout(Duration::from_millis(500), asked).await.ok().and_then(Result::ok).unwrap_or_default()
}

/// A number below `most`.
fn any(most: usize) -> usize {
    usize::from(u16::from_be_bytes(World::system().bytes())) % most.max(1)
}

fn pick<'a, T>(all: &'a [T], otherwise: &'a T) -> &'a T {
    all.get(any(all.len())).unwrap_or(otherwise)
}

/// A request with one thing wrong, or several.
fn malformed(token: &str, org: &str) -> Vec<u8> {
    let (method, path) = pick(ROUTES, &("GET", "/"));
    let (path, body) = (path.replace("ORG", org), pick(BODIES, &""));
    let plain = wire::request(method, &path, token, body);
    let text = String::from_utf8_lossy(&plain).into_owned();
    let replaced = |from: &str, to: &str| text.replacen(from, to, 1).into_bytes();
    let broken = |mut bytes: Vec<u8>| {
        let at = any(bytes.len());
        if let Some(byte) = bytes.get_mut(at) {
            *byte = World::system().bytes::<1>()[0];
        }
        bytes
    };
    match any(16) {
        0 => World::system().bytes::<64>().to_vec(),
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
        13 => broken(broken(plain)),
        14 => replaced("GET", "G\u{c9}T"),
        _ => plain,
    }
}
