//! HTTP-01 challenges.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::{HOST, Rig};
use crate::visitor::VisitorResponse;

const TOKEN: &str = "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA";

fn path(token: &str) -> String {
    format!("/.well-known/acme-challenge/{token}")
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
    let metrics = rig.metrics().await;
    assert!(metrics.contains("svc_node_acme_challenges_total{outcome=\"answered\"} 3"), "{metrics}");
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
    rig.node.visitor.get(HOST, &path("bbbbbbbbbbbbbbbbbbbbbb")).await;
    rig.node.visitor.get(HOST, &path("bbbbbbbbbbbbbbbbbbbbbb")).await;
    assert_eq!(rig.core.challenge_lookups(), lookups + 1, "an unknown token is remembered for a second");
    assert_eq!(rig.node.visitor.get("other.example", &path(TOKEN)).await.status, 404);
    rig.core.stop().await;
    rig.node.visitor.sees(HOST, &path(TOKEN), 200, "own").await;
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_lookups_are_limited() {
    let rig = Rig::start().await;
    rig.core.delay_challenges(Duration::from_secs(2));
    let hosts = (0..12).map(|number| format!("host{number}.example")).chain([(); 6].map(|()| HOST.to_owned()));
    let requests: Vec<_> =
        hosts.enumerate().map(|(number, host)| (host, path(&format!("cccccccccccccccccccc{number}")))).collect();
    let seen = join_all(requests.iter().map(|(host, path)| rig.node.visitor.get(host, path))).await;
    let (unrouted, routed) = seen.split_at(12);
    let busy = |seen: &[VisitorResponse]| seen.iter().filter(|seen| seen.status == 503).count();
    // Hosts without a site have half of the permits, and each host four.
    assert_eq!((busy(unrouted), busy(routed), rig.core.challenge_lookups()), (4, 2, 12));
    assert!(seen.iter().filter(|seen| seen.status == 503).all(|seen| seen.header("retry-after") == "1"));
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn authority_can_validate_from_several_addresses_at_the_same_time() {
    let rig = Rig::start().await;
    rig.core.add_challenge(TOKEN, "other.example", "response");
    rig.core.delay_challenges(Duration::from_millis(50));
    let path = path(TOKEN);
    let seen = join_all((0..8).map(|_| rig.node.visitor.get("other.example", &path))).await;
    assert!(seen.iter().all(|seen| (seen.status, &*seen.body) == (200, "response")));
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lookups_of_a_client_are_limited() {
    let rig = Rig::start().await;
    let paths: Vec<_> = (0..200).map(|number| path(&format!("dddddddddddddddddddd{number}"))).collect();
    let mut statuses = Vec::new();
    for path in &paths {
        statuses.push(rig.node.visitor.get(HOST, path).await.status);
    }
    let busy = statuses.iter().filter(|status| **status == 503).count();
    assert_eq!((statuses[0], rig.core.challenge_lookups()), (404, 200 - busy));
    assert!(busy > 0, "all requests of a client caused a lookup");
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
    for path in &paths {
        assert_eq!(rig.node.visitor.get(HOST, path).await.status, 404);
    }
    let metrics = rig.metrics().await;
    assert!(metrics.contains("svc_node_acme_challenges_total{outcome=\"failed\"} 1"), "{metrics}");
    rig.node.stop().await;
}
