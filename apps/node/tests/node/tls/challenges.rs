//! HTTP-01 challenges.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{HOST, Rig, wait_for};
use crate::visitor::{Visitor, VisitorResponse};

const TOKEN: &str = "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA";
/// The number of requests of which at least one arrives within a second. During this time, the node remembers an unknown
/// token or a failure.
const REPEATED: usize = 20;

fn path(token: &str) -> String {
    format!("/.well-known/acme-challenge/{token}")
}

/// Sends a request for a challenge from the address with this number. The node must trust the proxy.
fn lookup(rig: &Rig, host: &str, token: &str, address: usize) -> impl Future<Output = VisitorResponse> + use<> {
    let request = rig.node.visitor.request(Method::GET, host, &path(token));
    Visitor::send(request.header("x-forwarded-for", format!("192.0.2.{address}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn challenge_is_answered_at_every_host() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    for host in [HOST, "other.example"] {
        rig.core.add_challenge(TOKEN, host, &format!("{TOKEN}.thumbprint"));
        let seen = rig.node.visitor.get(host, &path(TOKEN)).await;
        assert_eq!((seen.status, seen.body), (200, format!("{TOKEN}.thumbprint")), "{host}");
        assert_eq!(seen.headers["content-type"], "application/octet-stream");
        assert_eq!(seen.headers["cache-control"], "no-store");
    }
    // Certification authorities follow redirects to https.
    let response = rig.client(&[&certificate]).get(HOST, &path(TOKEN)).await;
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with(".thumbprint"), "{response}");
    let lookups = rig.core.challenge_lookups();
    let seen = rig.node.visitor.get(HOST, &path("short")).await;
    assert_eq!((seen.status, seen.header("location")), (308, &*format!("https://{HOST}{}", path("short"))));
    assert_eq!(rig.core.challenge_lookups(), lookups);
    rig.has_metrics(&["svc_node_acme_challenges_total{outcome=\"answered\"} 3"]).await;
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_validations_from_several_networks_are_answered() {
    let rig = Rig::start_with(|config| config.proxies = "127.0.0.1/32".parse().unwrap()).await;
    rig.core.add_challenge(TOKEN, HOST, "response");
    rig.core.delay_challenges(Duration::from_millis(100));
    // These are more than the lookups of the host, and two come from one address. The others wait.
    let requests = (0..12).map(|number| lookup(&rig, HOST, TOKEN, number.max(1)));
    let seen = join_all(requests).await;
    let answered = seen.iter().filter(|seen| seen.status == 200 && seen.body == "response").count();
    assert_eq!(answered, seen.len());
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn challenge_is_answered_before_the_access_gate() {
    let rig = Rig::start().await;
    let access = json!({ "mode": "org", "password": null, "bypass": null, "version": 1 });
    rig.core.protect("inner", &[("assets/index.html", b"inside")], access);
    rig.node.visitor.sees("inner.localhost", "/", 302, "").await;
    rig.core.add_challenge(TOKEN, "inner.localhost", "response");
    rig.node.visitor.sees("inner.localhost", &path(TOKEN), 200, "response").await;
    let unknown = path("aaaaaaaaaaaaaaaaaaaaaa");
    assert_eq!(rig.node.visitor.get("inner.localhost", &unknown).await.status, 302);
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn project_answers_challenges_that_the_control_plane_does_not_know() {
    let (mut rig, _certificate) = Rig::start_with_certificate().await;
    let file = format!("assets/.well-known/acme-challenge/{TOKEN}");
    rig.core.deploy("shop", &[("assets/index.html", b"home"), (&file, b"own")]);
    rig.node.visitor.sees(HOST, &path(TOKEN), 200, "own").await;
    let lookups = rig.core.challenge_lookups();
    for _ in 0..REPEATED {
        rig.node.visitor.get(HOST, &path("bbbbbbbbbbbbbbbbbbbbbb")).await;
    }
    assert!(rig.core.challenge_lookups() < lookups + REPEATED, "an unknown token is remembered for a second");
    assert_eq!(rig.node.visitor.get("other.example", &path(TOKEN)).await.status, 404);
    rig.core.stop().await;
    rig.node.visitor.sees(HOST, &path(TOKEN), 200, "own").await;
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_of_the_control_plane_fails_no_validation() {
    let mut rig = Rig::start().await;
    rig.core.add_challenge(TOKEN, HOST, "response");
    rig.core.stop().await;
    let path = path(TOKEN);
    let restart = async {
        sleep(Duration::from_millis(500)).await;
        rig.core.restart().await;
    };
    let (seen, ()) = tokio::join!(rig.node.visitor.get(HOST, &path), restart);
    assert_eq!((seen.status, &*seen.body), (200, "response"));
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_lookups_are_limited() {
    let rig = Rig::start_with(|config| config.proxies = "127.0.0.1/32".parse().unwrap()).await;
    rig.core.delay_challenges(Duration::from_secs(600));
    let hosts = (0..36).map(|number| format!("host{number}.example")).chain([(); 11].map(|()| HOST.to_owned()));
    let mut requests = JoinSet::new();
    for (number, host) in hosts.enumerate() {
        let request = lookup(&rig, &host, &format!("cccccccccccccccccccc{number}"), number);
        requests.spawn(async move { (host, request.await) });
    }
    // The lookups wait for the control plane. So the first responses are those of the refused requests.
    let mut refused = Vec::new();
    while refused.len() < 7 {
        let (host, seen) = requests.join_next().await.unwrap().unwrap();
        assert_eq!((seen.status, seen.header("retry-after")), (503, "1"), "{host}");
        refused.push(host);
    }
    wait_for("the lookups", async || rig.core.challenge_lookups() == 40).await;
    // Hosts without a site have half of the permits, and each host eight.
    assert_eq!(refused.iter().filter(|host| *host == HOST).count(), 3, "{refused:?}");
    requests.join_all().await;
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_has_one_lookup_of_a_host() {
    let rig = Rig::start_with(|config| config.proxies = "127.0.0.1/32".parse().unwrap()).await;
    rig.core.delay_challenges(Duration::from_secs(600));
    let mut requests = JoinSet::new();
    for (number, address) in [1, 1, 1, 1, 1, 1, 1, 1, 2].into_iter().enumerate() {
        requests.spawn(lookup(&rig, HOST, &format!("ffffffffffffffffffff{number}"), address));
    }
    for _ in 0..7 {
        assert_eq!(requests.join_next().await.unwrap().unwrap().status, 503);
    }
    wait_for("the lookups", async || rig.core.challenge_lookups() == 2).await;
    requests.join_all().await;
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lookups_of_a_client_are_limited() {
    let rig = Rig::start().await;
    // On one connection, the requests are faster than the client gets permits.
    let request = |number: usize| {
        let (path, connection) =
            (path(&format!("dddddddddddddddddddd{number}")), if number == 199 { "close" } else { "keep-alive" });
        format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: {connection}\r\n\r\n")
    };
    let began = Instant::now();
    let responses = rig.node.visitor.raw_answer(&(0..200).map(request).collect::<String>()).await;
    // A client has 64 permits, and gets one each 50 ms.
    let permits = 65 + usize::try_from(began.elapsed().as_millis() / 50).unwrap();
    let count = |status: &str| responses.matches(&format!("HTTP/1.1 {status} ")).count();
    let (unknown, busy) = (count("404"), count("503"));
    assert_eq!((unknown + busy, rig.core.challenge_lookups()), (200, unknown), "{responses}");
    assert!((1..=permits).contains(&unknown), "{unknown} lookups, {permits} permits");
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_hosts_are_not_looked_up_and_failures_are_remembered() {
    let mut rig = Rig::start().await;
    let paths = [1, 2, 3, 4].map(|number| path(&format!("eeeeeeeeeeeeeeeeeeee{number}")));
    for path in &paths {
        assert_eq!(rig.node.visitor.get("unknown.example", path).await.status, 404);
    }
    assert_eq!(rig.core.challenge_lookups(), 4, "unknown tokens prevent no lookup of another token");
    let long = format!("{}.example", "a".repeat(250));
    assert_eq!(rig.node.visitor.get(&long, &paths[0]).await.status, 404);
    assert_eq!(rig.core.challenge_lookups(), 4);
    rig.core.stop().await;
    for path in paths.iter().cycle().take(REPEATED) {
        assert_eq!(rig.node.visitor.get(HOST, path).await.status, 404);
    }
    let metrics = rig.metrics().await;
    let failed = "svc_node_acme_challenges_total{outcome=\"failed\"} ";
    let failed: usize = metrics.lines().find_map(|line| line.strip_prefix(failed)).unwrap().parse().unwrap();
    assert!((1..REPEATED).contains(&failed), "{failed} lookups failed");
    rig.node.stop().await;
}
