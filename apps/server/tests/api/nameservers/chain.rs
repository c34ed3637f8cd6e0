//! From the API to every nameserver.

use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _};
use serde_json::json;

use super::rig::{Rig, SOON};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn every_nameserver_serves_a_zone_its_changes_and_then_no_longer() {
    let Some(rig) = Rig::start().await else { return };
    rig.zone("example.org").await;
    rig.all_answer(Duration::from_secs(5), "www.example.org", "A", &["192.0.2.1"]).await;
    rig.all_answer(SOON, "example.org", "NS", &["ns1.svc.example.", "ns2.svc.example.", "ns3.svc.example."]).await;

    for round in 2..8 {
        let address = format!("192.0.2.{round}");
        rig.put("example.org", "www", "A", &[&address]).await;
        rig.all_answer(SOON, "www.example.org", "A", &[&address]).await;
    }
    // Whatever a record holds arrives as it was written.
    let text = r#""a \"quoted\" \\ \000\255; $ORIGIN .""#;
    rig.put("example.org", "txt", "TXT", &[text]).await;
    rig.put("example.org", "mail", "MX", &["10 mx", "20 mx.example.net."]).await;
    rig.all_answer(SOON, "mail.example.org", "MX", &["10 mx.example.org.", "20 mx.example.net."]).await;
    for daemon in rig.daemons() {
        let server = format!("@127.0.0.1 -p {} txt.example.org TXT +short", daemon.port);
        let said = rig.packages.said("bin/kdig", &server.split(' ').collect::<Vec<_>>());
        assert_eq!(said.trim(), r#""a \"quoted\" \\ \000\255; $ORIGIN .""#);
    }
    rig.send("DELETE", "/example.org/rrsets/mail/MX", "", String::new()).await;
    rig.all_answer(SOON, "mail.example.org", "MX", &[]).await;

    rig.send("DELETE", "/example.org", "", String::new()).await;
    rig.within(Duration::from_secs(5), "the zone is gone", async || {
        rig.knot.ask("www.example.org", "A").await.is_refused()
            && rig.bind.ask("www.example.org", "A").await.is_refused()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_rrsets_arrive_whole() {
    let Some(rig) = Rig::start().await else { return };
    rig.zone("large.example").await;
    let lines = (0..10_000).map(|number| format!("host-{number} 300 A 10.{}.{}.7\n", number / 250, number % 250));
    rig.send("PUT", "/large.example/zonefile", "text/dns", lines.collect()).await;
    rig.all_answer(LONG, "host-9999.large.example", "A", &["10.39.249.7"]).await;
    for daemon in rig.daemons() {
        let names = stream::iter(0..10_000).map(async |number| {
            let answer = daemon.ask(&format!("host-{number}.large.example"), "A").await;
            assert!(answer.is(&[&format!("10.{}.{}.7", number / 250, number % 250)]), "host-{number}: {answer:?}");
        });
        names.buffer_unordered(16).collect::<Vec<()>>().await;
    }
    let key = super::daemon::TSIG.split_once(':').unwrap();
    let key = format!("{}:{}:{}", "hmac-sha256", key.0, key.1.split_once(':').unwrap().1);
    for daemon in [&rig.knot, &rig.bind] {
        let port = daemon.port.to_string();
        let arguments = ["@127.0.0.1", "-p", &port, "-y", &key, "large.example", "AXFR", "+noall", "+answer"];
        let said = rig.packages.said("bin/kdig", &arguments);
        // Three of NS, and the SOA at both ends.
        assert_eq!(said.lines().filter(|line| line.contains("\tIN\t")).count(), 10_000 + 3 + 2);
    }
    rig.put("large.example", "host-1", "A", &["192.0.2.9"]).await;
    rig.all_answer(SOON, "host-1.large.example", "A", &["192.0.2.9"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nameserver_that_was_away_catches_up() {
    let Some(mut rig) = Rig::start().await else { return };
    rig.zone("example.org").await;
    rig.all_answer(Duration::from_secs(5), "www.example.org", "A", &["192.0.2.1"]).await;
    rig.knot.kill();
    rig.bind.kill();
    rig.nsd.kill();
    rig.put("example.org", "www", "A", &["192.0.2.2"]).await;
    rig.call("POST", "", Some(json!({ "name": "meanwhile.example" }))).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    rig.put("example.org", "www", "A", &["192.0.2.3"]).await;
    rig.knot.start_again();
    rig.bind.start_again();
    rig.nsd.start_again();
    rig.all_answer(LONG, "www.example.org", "A", &["192.0.2.3"]).await;
    rig.within(LONG, "what was created meanwhile is served", async || {
        rig.knot.ask("meanwhile.example", "NS").await.data.len() == 3
            && rig.bind.ask("meanwhile.example", "NS").await.data.len() == 3
    })
    .await;

    // One that stays away holds up nobody else.
    rig.bind.kill();
    rig.put("example.org", "www", "A", &["192.0.2.4"]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    for round in 5..10 {
        let address = format!("192.0.2.{round}");
        rig.put("example.org", "www", "A", &[&address]).await;
        let arrived = async || rig.knot.ask("www.example.org", "A").await.is(&[&address]);
        rig.within(SOON, "Knot serves the change", arrived).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_zones_at_once_all_arrive() {
    let Some(rig) = Rig::start().await else { return };
    let start = Instant::now();
    let create = |number: usize| rig.call("POST", "", Some(json!({ "name": format!("zone-{number}.example") })));
    stream::iter(0..1000).map(create).buffer_unordered(8).collect::<Vec<_>>().await;
    let created = start.elapsed();
    for (name, daemon) in [("Knot", &rig.knot), ("BIND", &rig.bind)] {
        for number in 0..1000 {
            let zone = format!("zone-{number}.example");
            rig.within(LONG, &format!("{name} serves {zone}"), async || daemon.ask(&zone, "NS").await.data.len() == 3)
                .await;
        }
        println!("1,000 zones, created in {created:?}, were at {name} after {:?}", start.elapsed());
    }
}
