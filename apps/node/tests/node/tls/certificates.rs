//! The certificates of the control plane: restarts, removal and failures.

use std::fs;

use protocol::CertificateReference;
use sandbox::Certificate;
use serde_json::Value;

use super::{HOST, NAMES, Rig, tls_config, wait_for};
use crate::running::RunningNode;

#[tokio::test(flavor = "multi_thread")]
async fn restarted_node_presents_its_certificates_without_the_control_plane() {
    let (mut rig, certificate) = Rig::start_with_certificate().await;
    rig.node.visitor.sees(HOST, "/", 308, "").await;
    rig.node.stop().await;
    rig.core.stop().await;
    let mut config = tls_config(&rig.core, &rig.dir, None);
    // An unreadable file is skipped.
    let unreadable = rig.dir.path().join("certificates/unreadable");
    fs::create_dir(&unreadable).unwrap();
    rig.node = RunningNode::start_as(&config).await;
    let client = rig.client(&[&certificate]);
    assert!(client.get(HOST, "/").await.ends_with("home"));
    rig.node.stop().await;
    fs::remove_dir(&unreadable).unwrap();

    // The keys are sealed with the credential of the node.
    for file in fs::read_dir(rig.dir.path().join("certificates")).unwrap() {
        let content = fs::read(file.unwrap().path()).unwrap();
        assert!(!content.windows(7).any(|window| window == b"PRIVATE" || window == HOST.as_bytes().split_at(7).0));
    }
    config.authorization = "Bearer svc_nod_another".parse().unwrap();
    rig.node = RunningNode::start_as(&config).await;
    rig.client(&[&certificate]).is_rejected(HOST).await;
    assert_eq!(rig.saved(), 0);
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_without_reference_is_removed() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    let client = rig.client(&[&certificate]);
    assert_eq!(rig.saved(), 1);
    rig.core.set_part("shop", "certificates", Value::Null);
    client.is_rejected(HOST).await;
    wait_for("the removal of the file", async || rig.saved() == 0).await;
    rig.node.visitor.sees(HOST, "/", 200, "home").await;
    let metrics = rig.metrics().await;
    assert!(!metrics.contains("svc_node_tls_earliest_expiry_timestamp_seconds{source=\"issued\"}"), "{metrics}");
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_during_a_stop_is_noticed_and_an_unavailable_part_keeps_the_certificate() {
    let (mut rig, certificate) = Rig::start_with_certificate().await;
    let other = Certificate::generate_for(&["blog.localhost"]);
    rig.core.issue("blog", "blog.localhost", &other);
    rig.client(&[&other]).presents("blog.localhost", &other).await;
    rig.node.stop().await;
    rig.core.set_part("blog", "certificates", Value::Null);
    rig.core.make_unavailable("shop", "certificates");
    rig.node = RunningNode::start_as(&tls_config(&rig.core, &rig.dir, None)).await;
    let client = rig.client(&[&certificate, &other]);
    // While the references of a project are unknown, no certificate is removed.
    let third = Certificate::generate_for(&["third.localhost"]);
    rig.core.issue("third", "third.localhost", &third);
    rig.client(&[&third]).presents("third.localhost", &third).await;
    client.presents(HOST, &certificate).await;
    client.presents("blog.localhost", &other).await;
    rig.core.make_available();
    let renewed = Certificate::generate_for(&NAMES);
    rig.core.issue("shop", HOST, &renewed);
    rig.client(&[&renewed]).presents(HOST, &renewed).await;
    client.is_rejected("blog.localhost").await;
    wait_for("the removal of the files", async || rig.saved() == 2).await;
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_that_is_gone_or_invalid_is_not_presented() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    let client = rig.client(&[&certificate]);
    let not_after = "2091-01-01T00:00:00.000Z".to_owned();
    let gone = CertificateReference { id: "crt_gone".to_owned(), name: HOST.to_owned(), not_after };
    rig.core.set_certificates("shop", vec![gone]);
    wait_for("the request", async || rig.core.certificate_fetches_of("crt_gone") == 1).await;
    wait_for("the metric", async || rig.metrics().await.contains("svc_node_tls_missing_certificates 1")).await;
    client.presents(HOST, &certificate).await;
    // The certificate is for another name.
    let wrong = rig.core.issue("shop", HOST, &Certificate::generate_for(&["other.localhost"]));
    wait_for("the second attempt", async || rig.core.certificate_fetches_of(&wrong) > 1).await;
    client.presents(HOST, &certificate).await;
    assert_eq!(rig.core.certificate_fetches_of("crt_gone"), 1);
    let renewed = Certificate::generate_for(&NAMES);
    rig.core.issue("shop", HOST, &renewed);
    rig.client(&[&renewed]).presents(HOST, &renewed).await;
    wait_for("the metric", async || rig.metrics().await.contains("svc_node_tls_missing_certificates 0")).await;
    rig.node.stop().await;
}

/// `SVC_TEST_CERTIFICATES` sets the number of certificates.
#[tokio::test(flavor = "multi_thread")]
async fn many_certificates_are_fetched_once_and_restored() {
    let count = std::env::var_os("SVC_TEST_CERTIFICATES").map_or(200, |count| count.to_str().unwrap().parse().unwrap());
    let rig = Rig::start().await;
    let certificate = Certificate::generate_for(&["*.many.localhost"]);
    let name = |number: usize| format!("h{number}.many.localhost");
    for chunk in (0..count).collect::<Vec<_>>().chunks(100) {
        let references = chunk.iter().map(|number| rig.core.store_certificate(&name(*number), &certificate)).collect();
        rig.core.set_certificates(&format!("project{}", chunk[0]), references);
    }
    let held = format!("svc_node_tls_certificates{{source=\"issued\"}} {count}\n");
    let began = std::time::Instant::now();
    while !rig.metrics().await.contains(&held) {
        assert!(began.elapsed().as_secs() < 300, "{}", rig.metrics().await);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    println!("fetched {count} certificates in {:?}", began.elapsed());
    rig.client(&[&certificate]).presents(&name(count - 1), &certificate).await;
    let Rig { core, dir, node } = rig;
    node.stop().await;
    let (before, began) = (resident_kib(), std::time::Instant::now());
    let node = RunningNode::start_as(&tls_config(&core, &dir, None)).await;
    println!("restored them in {:?}; resident memory {before} KiB, then {} KiB", began.elapsed(), resident_kib());
    let rig = Rig { core, dir, node };
    rig.client(&[&certificate]).presents(&name(0), &certificate).await;
    assert_eq!(rig.core.total_certificate_fetches(), count);
    rig.node.stop().await;
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}
