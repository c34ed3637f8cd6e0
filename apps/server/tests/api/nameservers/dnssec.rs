//! Signing on and off, seen from the outside.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::ask::ask;
use super::rig::{Rig, SOON};

/// On and off have to arrive within this.
const SECONDS: Duration = Duration::from_secs(6);

/// Asks for an address all the time; every question must be answered.
struct Prober {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<Vec<String>>,
}

impl Prober {
    fn start(port: u16, name: &'static str) -> Self {
        let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopping, count) = (stop.clone(), asked.clone());
        let task = tokio::spawn(async move {
            let (begin, mut failed) = (Instant::now(), Vec::new());
            while !stopping.load(Ordering::Relaxed) {
                let answer = ask(port, name, "A").await;
                count.fetch_add(1, Ordering::Relaxed);
                if answer.data.len() != 1 {
                    failed.push(format!("{port} after {:?}: {answer:?}", begin.elapsed()));
                }
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            failed
        });
        Self { stop, asked, task }
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let failed = self.task.await.unwrap();
        let asked = self.asked.load(Ordering::Relaxed);
        assert!(failed.is_empty() && asked > 100, "{} of {asked} answers failed: {failed:#?}", failed.len());
    }
}

/// Has BIND's own validator look at an answer, with a DS record as all that it trusts.
fn validates(rig: &Rig, port: u16, name: &str, zone: &str, ds: &Value) -> String {
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
    rig.packages.said("bin/delv", &["@127.0.0.1", "-p", &port, "-a", file, &root, name, "A", "+multiline"])
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_comes_and_goes_without_a_failed_answer() {
    let Some(rig) = Rig::start().await else { return };
    rig.zone("example.org").await;
    rig.all_answer(Duration::from_secs(5), "www.example.org", "A", &["192.0.2.1"]).await;
    let probers = rig.steady().map(|daemon| Prober::start(daemon.port, "www.example.org"));
    for round in 0..3 {
        rig.dnssec("example.org", true).await;
        let on = rig.within(SECONDS, "the answer is signed", async || is_signed(&rig, true).await).await;
        let dnssec = async || rig.call("GET", "/example.org/dnssec", None).await;
        let known = async || dnssec().await["state"] == "ds_pending";
        let known = rig.within(Duration::from_secs(10), "the DS is known", known).await;
        let seen = dnssec().await;
        assert_eq!(seen["signer"]["error"], Value::Null);
        assert_eq!(seen["ds"][0]["keyTag"], seen["signer"]["keys"][0]["keyTag"]);

        // Changes of a signed zone arrive as soon as those of another, and are signed too.
        let address = format!("192.0.2.{}", 10 + round);
        rig.put("example.org", "www", "A", &[&address]).await;
        rig.all_answer(SOON, "www.example.org", "A", &[&address]).await;
        for daemon in rig.daemons() {
            let said = validates(&rig, daemon.port, "www.example.org", "example.org", &seen["ds"][0]);
            assert!(said.contains("; fully validated") && said.contains(&address), "{said}");
        }
        rig.dnssec("example.org", false).await;
        let off = rig.within(SECONDS, "the answer is not signed", async || is_signed(&rig, false).await).await;
        rig.put("example.org", "www", "A", &["192.0.2.1"]).await;
        rig.these_answer(&rig.steady(), SOON, "www.example.org", "A", &["192.0.2.1"]).await;
        println!("signed after {on:?}, the DS known {known:?} later, unsigned after {off:?}");
    }
    for prober in probers {
        prober.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_comes_and_goes_while_the_zone_changes() {
    let Some(rig) = Rig::start().await else { return };
    rig.zone("example.org").await;
    rig.all_answer(Duration::from_secs(5), "www.example.org", "A", &["192.0.2.1"]).await;
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
                        (rig.knot.ask("www.example.org", "A").await, rig.knot.ask("example.org", "DNSKEY").await);
                    answer.is_signed == enabled && keys.data.is_empty() != enabled
                };
                rig.within(Duration::from_secs(12), "the switch arrives", arrived).await;
            }
        }
        changing.store(false, Ordering::Relaxed);
    };
    let (last, ()) = tokio::join!(change, switch);
    rig.these_answer(&rig.steady(), SOON, "www.example.org", "A", &[&format!("192.0.2.{last}")]).await;
    prober.stop().await;
    for kind in ["DNSKEY", "CDS", "NSEC3PARAM"] {
        rig.these_answer(&rig.steady(), SOON, "example.org", kind, &[]).await;
    }
}

async fn is_signed(rig: &Rig, wanted: bool) -> bool {
    let daemons = if wanted { rig.daemons().to_vec() } else { rig.steady().to_vec() };
    for daemon in daemons {
        let answer = daemon.ask("www.example.org", "A").await;
        let keys = daemon.ask("example.org", "DNSKEY").await;
        if answer.is_signed != wanted || keys.data.is_empty() == wanted {
            return false;
        }
    }
    true
}
