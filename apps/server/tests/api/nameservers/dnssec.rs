//! Switching DNSSEC on and off, as DNS clients see it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use serde_json::Value;

use super::query::query_twice;
use super::rig::Rig;

/// Queries an address continuously. Every query must succeed.
struct Prober {
    stop: Arc<AtomicBool>,
    queries: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<Vec<String>>,
}

impl Prober {
    fn start(port: u16, name: &'static str) -> Self {
        let (stop, queries) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopping, count) = (stop.clone(), queries.clone());
        let task = tokio::spawn(async move {
            let (begin, mut failed) = (Instant::now(), Vec::new());
            while !stopping.load(Ordering::Relaxed) {
                let answer = query_twice(port, name, "A").await;
                count.fetch_add(1, Ordering::Relaxed);
                if answer.data.len() != 1 {
                    failed.push(format!("{port} after {:?}: {answer:?}", begin.elapsed()));
                }
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            failed
        });
        Self { stop, queries, task }
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let failed = self.task.await.unwrap();
        let queries = self.queries.load(Ordering::Relaxed);
        assert!(failed.is_empty() && queries > 100, "{} of {queries} queries failed: {failed:#?}", failed.len());
    }
}

/// Validates an answer with BIND's `delv`, with the DS record as the only trust anchor. Returns the output.
pub fn validate(rig: &Rig, port: u16, name: &str, zone: &str, ds: &Value) -> String {
    let number = |field: &str| ds[field].as_u64().unwrap();
    let digest = ds["digest"].as_str().unwrap();
    let anchor = format!(
        "trust-anchors {{ \"{zone}\" static-ds {} {} {} \"{digest}\"; }};\n",
        number("keyTag"),
        number("algorithm"),
        number("digestType")
    );
    let file = rig.knot.folder.join("anchor");
    fs::write(&file, anchor).unwrap();
    let (port, root) = (port.to_string(), format!("+root={zone}"));
    let file = file.to_str().unwrap();
    rig.packages.run("bin/delv", &["@127.0.0.1", "-p", &port, "-a", file, &root, name, "A", "+multiline"])
}

#[tokio::test(flavor = "multi_thread")]
async fn dnssec_is_switched_without_failed_queries() {
    let Some(rig) = Rig::start().await else { return };
    rig.zone("example.org").await;
    rig.all_answer("www.example.org", "A", &["192.0.2.1"]).await;
    let probers = rig.steady().map(|daemon| Prober::start(daemon.port, "www.example.org"));
    for round in 0..3 {
        rig.dnssec("example.org", true).await;
        let on = rig.until("the answer is signed", async || is_signed(&rig, true).await).await;
        let dnssec = async || rig.call("GET", "/example.org/dnssec", None).await;
        let is_ds_known = async || dnssec().await["state"] == "ds_pending";
        let known = rig.until("the DS is known", is_ds_known).await;
        let state = dnssec().await;
        assert_eq!(state["signer"]["error"], Value::Null);
        assert_eq!(state["ds"][0]["keyTag"], state["signer"]["keys"][0]["keyTag"]);

        // Changes of a signed zone reach all nameservers, and are signed.
        let address = format!("192.0.2.{}", 10 + round);
        rig.put("example.org", "www", "A", &[&address]).await;
        rig.all_answer("www.example.org", "A", &[&address]).await;
        for daemon in rig.daemons() {
            let output = validate(&rig, daemon.port, "www.example.org", "example.org", &state["ds"][0]);
            assert!(output.contains("; fully validated") && output.contains(&address), "{output}");
        }
        rig.dnssec("example.org", false).await;
        let off = rig.until("the answer is not signed", async || is_signed(&rig, false).await).await;
        rig.put("example.org", "www", "A", &["192.0.2.1"]).await;
        rig.these_answer(&rig.steady(), "www.example.org", "A", &["192.0.2.1"]).await;
        println!("signed after {on:?}, DS known {known:?} later, unsigned after {off:?}");
    }
    for prober in probers {
        prober.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dnssec_is_switched_while_the_zone_changes() {
    let Some(rig) = Rig::start().await else { return };
    rig.zone("example.org").await;
    rig.all_answer("www.example.org", "A", &["192.0.2.1"]).await;
    let prober = Prober::start(rig.knot.port, "www.example.org");
    let changing = AtomicBool::new(true);
    let change = async {
        let mut round = 0;
        while changing.load(Ordering::Relaxed) {
            round = round % 200 + 1;
            rig.put("example.org", "www", "A", &[&format!("192.0.2.{round}")]).await;
            tokio::time::sleep(Duration::from_millis(80)).await;
        }
        round
    };
    let switch = async {
        for _ in 0..4 {
            for enabled in [true, false] {
                rig.dnssec("example.org", enabled).await;
                let arrived = async || {
                    let (answer, keys) =
                        (rig.knot.query("www.example.org", "A").await, rig.knot.query("example.org", "DNSKEY").await);
                    answer.is_signed == enabled && keys.data.is_empty() != enabled
                };
                rig.until("the switch takes effect", arrived).await;
            }
        }
        changing.store(false, Ordering::Relaxed);
    };
    let (last, ()) = tokio::join!(change, switch);
    rig.these_answer(&rig.steady(), "www.example.org", "A", &[&format!("192.0.2.{last}")]).await;
    prober.stop().await;
    for kind in ["DNSKEY", "CDS", "NSEC3PARAM"] {
        rig.these_answer(&rig.steady(), "example.org", kind, &[]).await;
    }
}

/// A zone within a signed zone is not signed, and must not appear to be: the signed zone proves that the delegation has
/// no DS record (RFC 4035 section 5.2).
#[tokio::test(flavor = "multi_thread")]
async fn zones_within_a_signed_zone_are_insecure_and_not_bogus() {
    let Some(rig) = Rig::start().await else { return };
    for zone in ["example.org", "early.example.org"] {
        rig.zone(zone).await;
    }
    rig.dnssec("example.org", true).await;
    let dnssec = async || rig.call("GET", "/example.org/dnssec", None).await;
    rig.until("the DS is known", async || dnssec().await["state"] == "ds_pending").await;
    rig.zone("late.example.org").await;
    let ds = dnssec().await["ds"][0].clone();
    for zone in ["early.example.org", "late.example.org"] {
        let host = format!("www.{zone}");
        rig.these_answer(&rig.steady(), &host, "A", &["192.0.2.1"]).await;
        for daemon in rig.steady() {
            // The signed zone answers for the DS record. Without the delegation, it answers that the name does not exist.
            let is_delegated = async || daemon.query(zone, "DS").await.code == Some(ResponseCode::NoError);
            rig.until("the zone is delegated", is_delegated).await;
            let output = validate(&rig, daemon.port, &host, "example.org", &ds);
            assert!(output.contains("; unsigned answer") && output.contains("192.0.2.1"), "{output}");
        }
    }
}

async fn is_signed(rig: &Rig, expected: bool) -> bool {
    let daemons = if expected { rig.daemons().to_vec() } else { rig.steady().to_vec() };
    for daemon in daemons {
        let answer = daemon.query("www.example.org", "A").await;
        let keys = daemon.query("example.org", "DNSKEY").await;
        if answer.is_signed != expected || keys.data.is_empty() == expected {
            return false;
        }
    }
    true
}
