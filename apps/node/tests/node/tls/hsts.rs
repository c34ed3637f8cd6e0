//! `Strict-Transport-Security` of hostnames.

use sandbox::Certificate;
use serde_json::{Value, json};

use super::{Client, HOST, NAMES, Rig, tls_config, wait_for};
use crate::control_plane::ControlPlane;
use crate::running::{Dir, RunningNode, config};
use crate::workers::{with_workers, workerd};

const HEADER: &str = "strict-transport-security";

fn hsts(hostname: &str, max_age: u32, include_sub_domains: bool, preload: bool) -> Value {
    json!({ "hostname": hostname, "maxAge": max_age, "includeSubDomains": include_sub_domains, "preload": preload })
}

/// Returns the values of the header in a response.
fn values(response: &str) -> Vec<&str> {
    let head = response.split("\r\n\r\n").next().unwrap_or_default();
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.filter(|(name, _)| name.eq_ignore_ascii_case(HEADER)).map(|(_, value)| value).collect()
}

async fn becomes(client: &Client, host: &str, path: &str, expected: &[&str]) {
    wait_for(&format!("{expected:?}"), async || values(&client.get(host, path).await) == expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn header_is_sent_for_its_hostname_and_only_over_tls() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    let other = Certificate::generate_for(&["blog.localhost"]);
    rig.core.deploy("blog", &[("assets/index.html", b"blog")]);
    rig.core.issue("blog", "blog.localhost", &other);
    let client = rig.client(&[&certificate, &other]);
    client.presents("blog.localhost", &other).await;
    assert_eq!(values(&client.get(HOST, "/").await), [""; 0]);
    rig.core.set_hsts("shop", json!([hsts(HOST, 31_536_000, true, true)]));
    becomes(&client, HOST, "/", &["max-age=31536000; includeSubDomains; preload"]).await;
    let missing = client.get(HOST, "/missing").await;
    assert!(missing.starts_with("HTTP/1.1 404 ") && values(&missing).len() == 1, "{missing}");
    assert_eq!(values(&client.get("blog.localhost", "/").await), [""; 0]);
    let redirect = rig.node.visitor.get(HOST, "/").await;
    assert_eq!((redirect.status, redirect.header(HEADER)), (308, ""));

    // A change needs no deployment. The time 0 makes browsers forget the hostname.
    rig.core.set_hsts("shop", json!([hsts(HOST, 0, false, false)]));
    becomes(&client, HOST, "/", &["max-age=0"]).await;
    let access = json!({ "mode": "org", "password": null, "bypass": null, "version": 1 });
    rig.core.protect("shop", &[("assets/index.html", b"inside")], access);
    rig.core.set_hsts("shop", json!([hsts(HOST, 300, false, false)]));
    becomes(&client, HOST, "/", &["max-age=300"]).await;
    assert!(client.get(HOST, "/").await.starts_with("HTTP/1.1 302 "), "the access gate");
    rig.core.set_hsts("shop", json!([]));
    becomes(&client, HOST, "/", &[]).await;
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_node_sends_the_header_without_the_control_plane() {
    let (mut rig, certificate) = Rig::start_with_certificate().await;
    rig.core.set_hsts("shop", json!([hsts(HOST, 600, false, false)]));
    becomes(&rig.client(&[&certificate]), HOST, "/", &["max-age=600"]).await;
    rig.node.stop().await;
    rig.core.stop().await;
    rig.node = RunningNode::start_as(&tls_config(&rig.core, &rig.dir, None)).await;
    becomes(&rig.client(&[&certificate]), HOST, "/", &["max-age=600"]).await;
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_connection_counts_as_https_only_behind_a_proxy_that_terminates_tls() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    core.deploy("shop", &[("assets/index.html", b"home")]);
    core.set_hsts("shop", json!([hsts(HOST, 600, false, false)]));
    let node = RunningNode::start_as(&config(&core, &dir)).await;
    node.visitor.sees(HOST, "/", 200, "home").await;
    assert_eq!(node.visitor.get(HOST, "/").await.header(HEADER), "");
    core.set_site_url("https://{hostname}");
    core.republish("shop");
    wait_for("https", async || node.visitor.get(HOST, "/").await.header(HEADER) == "max-age=600").await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn header_of_worker_code_takes_precedence() {
    const CODE: &str = r#"export default { async fetch(request) {
        const own = new URL(request.url).pathname === "/own";
        return new Response("code", { headers: own ? { "Strict-Transport-Security": "max-age=1" } : {} });
    } };"#;
    let Some(workerd) = workerd() else { return };
    let (core, dir, certificate) = (ControlPlane::start().await, Dir::new(), Certificate::generate_for(&NAMES));
    core.deploy("shop", &[("worker/index.js", CODE.as_bytes())]);
    core.issue("shop", HOST, &certificate);
    core.set_hsts("shop", json!([hsts(HOST, 600, false, false)]));
    let config = node::config::Config { tls: tls_config(&core, &dir, None).tls, ..with_workers(&core, &dir, workerd) };
    let node = RunningNode::start_as(&config).await;
    let rig = Rig { core, dir, node };
    let client = rig.client(&[&certificate]);
    client.presents(HOST, &certificate).await;
    wait_for("the worker", async || client.get(HOST, "/").await.ends_with("code")).await;
    assert_eq!(values(&client.get(HOST, "/").await), ["max-age=600"]);
    assert_eq!(values(&client.get(HOST, "/own").await), ["max-age=1"]);
    rig.node.stop().await;
}
