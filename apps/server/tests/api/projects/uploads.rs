//! The limits of concurrent uploads, with a server process. Its metrics show the uploads in progress.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::process::Process;
use crate::support::{client, eventually, site};

/// A request body.
#[derive(Clone, Copy)]
struct Format {
    method: &'static str,
    content_type: &'static str,
}

const BUNDLE: Format = Format { method: "POST", content_type: "application/gzip" };
const ZONE_FILE: Format = Format { method: "PUT", content_type: "text/dns" };

/// An upload whose last byte the server has not received.
struct Unfinished {
    stream: TcpStream,
    last: u8,
}

struct Server(Process);

impl Server {
    async fn start() -> Self {
        let nameservers = ("SVC_NAMESERVERS", "ns1.svc.example,ns2.svc.example".to_owned());
        Self(Process::with(&[nameservers]).await)
    }

    /// Signs in a user whose personal organization has the project `site`, and returns the token.
    async fn user(&self, subject: &str) -> String {
        let session = self.0.json("", "POST", "/v1/auth/dev/login", Some(json!({ "subject": subject }))).await;
        let token = session["token"].as_str().unwrap().to_owned();
        self.project(&token, subject).await;
        token
    }

    async fn project(&self, token: &str, org: &str) {
        self.0.json(token, "POST", &format!("/v1/orgs/{org}/projects"), Some(json!({ "name": "site" }))).await;
    }

    async fn add_member(&self, admin: &str, org: &str, subject: &str) {
        let member = json!({ "provider": "dev", "subject": subject, "role": "member" });
        self.0.json(admin, "POST", &format!("/v1/orgs/{org}/members"), Some(member)).await;
    }

    /// Sends an upload without its last byte, and waits until `in_progress` uploads of its kind are in progress.
    async fn begin(
        &self,
        (format, in_progress): (Format, u64),
        (token, path): (&str, &str),
        body: &[u8],
    ) -> Unfinished {
        let Format { method, content_type } = format;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: {content_type}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        let (last, first) = body.split_last().unwrap();
        let mut stream = TcpStream::connect(self.0.base.strip_prefix("http://").unwrap()).await.unwrap();
        stream.write_all(&[head.as_bytes(), first].concat()).await.unwrap();
        self.wait_until_in_progress(format, in_progress).await;
        Unfinished { stream, last: *last }
    }

    async fn wait_until_in_progress(&self, format: Format, uploads: u64) {
        let kind = if format.method == BUNDLE.method { "bundle" } else { "zone_file" };
        eventually(&format!("{uploads} uploads of {kind} in progress"), async || {
            (self.metric("svc_uploads_in_progress", &[kind]).await == uploads).then_some(())
        })
        .await;
    }

    /// Returns the value of the metric with these label values, or 0 if it does not exist.
    async fn metric(&self, name: &str, labels: &[&str]) -> u64 {
        let metrics = self.0.metrics().await;
        let has_labels = |line: &&str| labels.iter().all(|label| line.contains(&format!("=\"{label}\"")));
        let line = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{"))).find(has_labels);
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    async fn upload(&self, format: Format, (token, path): (&str, &str), body: Vec<u8>) -> (StatusCode, Value, String) {
        let request = client().request(format.method.parse::<Method>().unwrap(), format!("{}{path}", self.0.base));
        let request = request.bearer_auth(token).header("content-type", format.content_type).body(body);
        let response = request.send().await.unwrap();
        let retry_after = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        (response.status(), response.json().await.unwrap(), retry_after.unwrap_or_default())
    }

    async fn assert_accepted(&self, format: Format, to: (&str, &str), body: Vec<u8>) {
        let (status, body, _) = self.upload(format, to, body).await;
        assert!(status.is_success(), "{status} {body}");
    }

    async fn assert_above_limit(&self, format: Format, to: (&str, &str), details: Value) {
        let (status, body, retry_after) = self.upload(format, to, site("above the limit")).await;
        assert_eq!((status, &body["code"]), (StatusCode::TOO_MANY_REQUESTS, &json!("rate_limited")), "{body}");
        assert_eq!((&body["details"], retry_after.as_str()), (&details, "5"));
    }
}

impl Unfinished {
    /// Sends the last byte and returns the status line of the response.
    async fn finish(mut self) -> String {
        self.stream.write_all(&[self.last]).await.unwrap();
        let mut status = [0; 12];
        self.stream.read_exact(&mut status).await.unwrap();
        String::from_utf8(status.to_vec()).unwrap()
    }
}

/// Creates a bundle that takes 30 seconds at the minimum rate. After the server has received most of it, it waits that
/// long for the last byte.
fn large_bundle() -> Vec<u8> {
    let mut state = 1u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'0' + (state >> 24) as u8 % 64)
    });
    site(&noise.take(800 * 1024).collect::<String>())
}

fn zone_file() -> Vec<u8> {
    let comments = "; a comment that fills the file\n".repeat(20_000);
    format!("{comments}www 300 IN A 192.0.2.1\n").into_bytes()
}

fn deployments(org: &str) -> String {
    format!("/v1/orgs/{org}/projects/site/deployments")
}

#[tokio::test(flavor = "multi_thread")]
async fn organization_has_at_most_four_concurrent_uploads() {
    let server = Server::start().await;
    let (ada, bob, cy) = (server.user("ada").await, server.user("bob").await, server.user("cy").await);
    for member in ["bob", "cy"] {
        server.add_member(&ada, "ada", member).await;
    }
    let (to_ada, to_cy, large) = (deployments("ada"), deployments("cy"), large_bundle());
    let mut unfinished = Vec::new();
    for (caller, in_progress) in [(&ada, 1), (&bob, 2), (&ada, 3), (&bob, 4)] {
        unfinished.push(server.begin((BUNDLE, in_progress), (caller, &to_ada), &large).await);
    }
    let details = json!({ "limit": 4, "of": "organization" });
    server.assert_above_limit(BUNDLE, (&cy, &to_ada), details.clone()).await;
    server.assert_above_limit(BUNDLE, (&ada, &to_ada), details.clone()).await;
    assert_eq!(server.metric("svc_uploads_rejected_total", &["bundle", "organization"]).await, 2);
    // Other organizations and zone files have their own permits.
    server.assert_accepted(BUNDLE, (&cy, &to_cy), site("page")).await;
    server.0.json(&ada, "POST", "/v1/orgs/ada/dns/zones", Some(json!({ "name": "example.org" }))).await;
    server.assert_accepted(ZONE_FILE, (&ada, "/v1/orgs/ada/dns/zones/example.org/zonefile"), zone_file()).await;

    assert_eq!(unfinished.pop().unwrap().finish().await, "HTTP/1.1 201");
    server.wait_until_in_progress(BUNDLE, 3).await;
    server.assert_accepted(BUNDLE, (&cy, &to_ada), site("page")).await;
    // An interrupted upload releases its permit.
    drop(unfinished);
    server.wait_until_in_progress(BUNDLE, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn user_has_at_most_four_concurrent_uploads() {
    let server = Server::start().await;
    let (ada, bob) = (server.user("ada").await, server.user("bob").await);
    server.0.json(&ada, "POST", "/v1/orgs", Some(json!({ "slug": "acme" }))).await;
    server.project(&ada, "acme").await;
    server.add_member(&ada, "acme", "bob").await;
    let (to_ada, to_acme, large) = (deployments("ada"), deployments("acme"), large_bundle());
    let mut unfinished = Vec::new();
    for (path, in_progress) in [(&to_ada, 1), (&to_acme, 2), (&to_ada, 3), (&to_acme, 4)] {
        unfinished.push(server.begin((BUNDLE, in_progress), (&ada, path), &large).await);
    }
    // A second credential of the user has no additional permits.
    let again = server.0.sign_in().await;
    for path in [&to_ada, &to_acme] {
        server.assert_above_limit(BUNDLE, (&again, path), json!({ "limit": 4, "of": "user" })).await;
    }
    server.assert_accepted(BUNDLE, (&bob, &to_acme), site("page")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_files_have_separate_limits() {
    let server = Server::start().await;
    let ada = server.user("ada").await;
    server.0.json(&ada, "POST", "/v1/orgs/ada/dns/zones", Some(json!({ "name": "example.org" }))).await;
    let (path, file) = ("/v1/orgs/ada/dns/zones/example.org/zonefile", zone_file());
    let first = server.begin((ZONE_FILE, 1), (&ada, path), &file).await;
    let second = server.begin((ZONE_FILE, 2), (&ada, path), &file).await;
    server.assert_above_limit(ZONE_FILE, (&ada, path), json!({ "limit": 2, "of": "organization" })).await;
    server.assert_accepted(BUNDLE, (&ada, &deployments("ada")), site("page")).await;
    assert_eq!(first.finish().await, "HTTP/1.1 200");
    server.wait_until_in_progress(ZONE_FILE, 1).await;
    server.assert_accepted(ZONE_FILE, (&ada, path), file).await;
    assert_eq!(second.finish().await, "HTTP/1.1 200");
}
